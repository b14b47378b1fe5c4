//! What is an address of a Redis, and what is shown of it.
#![allow(clippy::unwrap_used)]

use super::*;

fn parse(url: &str) -> Result<RedisUrl, RedisUrlError> {
    url.parse()
}

#[test]
fn every_kind_of_address_is_read_and_shown() {
    for (url, shown) in [
        ("redis://h", "redis://h:6379"),
        ("redis://h:1/", "redis://h:1"),
        ("rediss://h:1/7", "rediss://h:1/7"),
        ("redis://[::1]:7", "redis://[::1]:7"),
        ("redis://[::1]", "redis://[::1]:6379"),
        ("redis+cluster://a:1,b", "redis+cluster://a:1,b:6379"),
        ("rediss+cluster://a:1", "rediss+cluster://a:1"),
        ("redis+sentinel://a,b:2/main", "redis+sentinel://a:26379,b:2/main"),
        ("redis+sentinel://a/main/3", "redis+sentinel://a:26379/main/3"),
    ] {
        assert_eq!(parse(url).unwrap().to_string(), shown);
    }
}

#[test]
fn what_is_no_address_is_refused() {
    use RedisUrlError::{ClusterPath, Credentials, Database, Host, Name, Scheme};
    for (url, error) in [
        ("", Scheme),
        ("h:6379", Scheme),
        ("http://h", Scheme),
        ("redis+://h", Scheme),
        ("redis+raft://h", Scheme),
        ("redis://", Host),
        ("redis://a,b", Host),
        ("redis://a:port", Host),
        ("redis://a:65536", Host),
        ("redis://[::1", Host),
        ("redis://[::1]1", Host),
        ("redis://a b", Host),
        ("redis://a?db=1", Host),
        ("redis+cluster://a,,b", Host),
        ("redis://h/x", Database),
        ("redis://h/-1", Database),
        ("redis+cluster://h/0", ClusterPath),
        ("redis+sentinel://h", Name),
        ("redis+sentinel://h/", Name),
        ("redis+sentinel://h/main/x", Database),
        ("redis://u:%zz@h", Credentials),
        ("redis://u:%f@h", Credentials),
        ("redis://u:a:b@h", Credentials),
        ("redis://u:%ff@h", Credentials),
    ] {
        assert_eq!(parse(url), Err(error), "{url}");
    }
}

#[test]
fn credentials_reach_the_server_and_nobody_else() {
    let url = parse("redis://us%40er:p%3Aw%25@h:1/2").unwrap();
    let server = url.server(&url.hosts()[0]).unwrap();
    let settings = server.redis_settings();
    assert_eq!(settings.username(), Some("us@er"));
    assert_eq!((settings.password(), settings.db()), (Some("p:w%"), 2));
    assert!(server.tcp_settings().nodelay());
    for shown in [format!("{url}"), format!("{url:?}")] {
        assert_eq!(shown, "redis://h:1/2");
    }
    let url = parse("redis+sentinel://:pw@h/main/2").unwrap();
    let sentinel = url.sentinel(&url.hosts()[0]).unwrap();
    let settings = sentinel.redis_settings();
    assert_eq!((settings.username(), settings.password(), settings.db()), (None, Some("pw"), 0));
}
