//! Opening a store: which servers are refused, and how the others are described.

use std::num::NonZeroU8;

use super::super::{Durability, OpenError, Redis, RedisUrl};
use super::servers::{Server, free_port};

async fn refusal(server: &Server, durability: Durability) -> String {
    match Redis::open(&server.url(), durability).await {
        Err(OpenError::Promise { reason, .. }) => reason,
        other => panic!("{:?}", other.err()),
    }
}

#[tokio::test]
async fn a_promise_that_the_server_cannot_keep_is_refused_by_name() {
    use Durability::{Fsync, Os, Replicas};
    let server = Server::start(&["--appendfsync", "everysec"]).await;
    assert_eq!(refusal(&server, Fsync).await, "appendfsync is everysec, and must be always");
    assert_eq!(
        refusal(&server, Replicas(NonZeroU8::MIN)).await,
        "0 replicas are connected, and 1 are needed"
    );
    server.ask::<()>(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
    assert!(Redis::open(&server.url(), Os).await.is_ok(), "memory has no bound");
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "1gb"]).await;
    let evicts = "maxmemory-policy is allkeys-lru, and must be noeviction";
    assert_eq!(refusal(&server, Os).await, evicts);
    server.ask::<()>(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
    server.ask::<()>(&["CONFIG", "SET", "appendonly", "no"]).await;
    for durability in [Fsync, Os] {
        assert_eq!(refusal(&server, durability).await, "appendonly is no, and must be yes");
    }
}

#[tokio::test]
async fn the_description_of_the_server_is_one_line() {
    let server = Server::start(&["--appendfsync", "always"]).await;
    let store = Redis::open(&server.url(), Durability::Fsync).await.unwrap();
    let found = store.description();
    assert!(found.starts_with("redis ") && !found.contains('\n'), "{found}");
    let settings = "appendonly yes, appendfsync always, maxmemory-policy noeviction, \
         connected replicas 0";
    assert!(found.ends_with(settings), "{found}");
}

#[tokio::test]
async fn info_is_read_where_config_is_forbidden() {
    let server = Server::start(&["--appendfsync", "everysec"]).await;
    server.ask::<()>(&["ACL", "SETUSER", "default", "-config"]).await;
    let store = Redis::open(&server.url(), Durability::Fsync).await.unwrap();
    assert!(
        store.description().contains("appendonly yes, appendfsync unknown"),
        "{}",
        store.description()
    );
    assert!(store.description().ends_with("CONFIG is forbidden"), "{}", store.description());
    let server = Server::start(&["--appendonly", "no"]).await;
    server.ask::<()>(&["ACL", "SETUSER", "default", "-config"]).await;
    assert_eq!(refusal(&server, Durability::Os).await, "appendonly is no, and must be yes");
}

#[tokio::test]
async fn an_unreachable_server_is_distinguished_from_one_that_denies_access() {
    let away: RedisUrl = format!("redis://u:secret@127.0.0.1:{}", free_port()).parse().unwrap();
    let cluster: RedisUrl =
        format!("redis+cluster://u:secret@127.0.0.1:{}", free_port()).parse().unwrap();
    let sentinel: RedisUrl =
        format!("redis+sentinel://u:secret@127.0.0.1:{}/main", free_port()).parse().unwrap();
    for url in [away, cluster, sentinel] {
        let error = Redis::open(&url, Durability::Os).await.err().unwrap();
        assert!(matches!(error, OpenError::Away { .. }), "{error}");
        assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    }
    let user = ["--user", "u", "on", ">right", "~*", "&*", "+@all"];
    let server = Server::start(&user).await;
    let at = server.port;
    let encrypted: RedisUrl = format!("rediss://u:secret@127.0.0.1:{at}").parse().unwrap();
    let error = Redis::open(&encrypted, Durability::Os).await.err().unwrap();
    assert!(matches!(error, OpenError::Away { .. }), "{error}");
    let wrong: RedisUrl = format!("redis://u:secret@127.0.0.1:{at}").parse().unwrap();
    let error = Redis::open(&wrong, Durability::Os).await.err().unwrap();
    assert!(matches!(error, OpenError::Denied { .. }), "{error}");
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    let right: RedisUrl = format!("redis://u:right@127.0.0.1:{at}").parse().unwrap();
    assert!(Redis::open(&right, Durability::Os).await.is_ok());
}
