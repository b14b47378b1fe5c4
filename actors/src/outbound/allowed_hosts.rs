//! Matches URLs with `allowed_hosts`, of a tenant or of an agent's permissions.

use std::net::Ipv6Addr;

use url::{Host, Url};

/// Whether the entry, `host` or `host:port`, matches the host (and port) of this URL. Case and a
/// trailing dot are ignored; an IPv6 address may be in brackets. An invalid entry matches nothing.
pub(crate) fn matches(entry: &str, url: &Url) -> bool {
    let Some((host, port)) = parse(entry) else { return false };
    Some(host) == without_trailing_dot(url.host())
        && (port.is_none() || port == url.port_or_known_default())
}

/// The host and the port of an entry; `None` for an invalid one.
pub(crate) fn parse(entry: &str) -> Option<(Host<String>, Option<u16>)> {
    let entry = match entry.parse::<Ipv6Addr>() {
        Ok(address) => format!("[{address}]"),
        Err(_) => entry.to_owned(),
    };
    // The parser drops the default port of a scheme; no port is the default of both schemes.
    let read = |scheme: &str| Url::parse(&format!("{scheme}://{entry}")).ok();
    let (plain, secure) = (read("http")?, read("https")?);
    let is_bare = plain.username().is_empty()
        && plain.password().is_none()
        && plain.path() == "/"
        && plain.query().is_none()
        && plain.fragment().is_none();
    let host = without_trailing_dot(plain.host()).filter(|_| is_bare)?;
    Some((host, plain.port().or(secure.port())))
}

fn without_trailing_dot(host: Option<Host<&str>>) -> Option<Host<String>> {
    host.map(|host| match host {
        Host::Domain(name) => Host::Domain(name.trim_end_matches('.').to_owned()),
        Host::Ipv4(address) => Host::Ipv4(address),
        Host::Ipv6(address) => Host::Ipv6(address),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[track_caller]
    fn is_match(entry: &str, url: &str) -> bool {
        matches(entry, &Url::parse(url).unwrap())
    }

    #[test]
    fn an_entry_names_one_host_however_it_is_written() {
        for (entry, url) in [
            ("127.0.0.1", "http://127.0.0.1:9000/x"),
            ("127.0.0.1", "http://2130706433/"),
            ("Docs.Internal", "https://docs.INTERNAL/"),
            ("docs.internal.", "http://docs.internal/"),
            ("docs.internal", "http://docs.internal./"),
            ("docs.internal:80", "http://docs.internal/"),
            ("docs.internal:443", "https://docs.internal/"),
            ("docs.internal:8080", "http://docs.internal:8080/"),
            ("::1", "http://[0:0::1]/"),
            ("[::1]", "http://[::1]/"),
            ("[::1]:9000", "http://[::1]:9000/"),
            ("bücher.internal", "http://xn--bcher-kva.internal/"),
        ] {
            assert!(is_match(entry, url), "{entry} {url}");
        }
    }

    #[test]
    fn an_entry_names_no_other_host() {
        for (entry, url) in [
            ("127.0.0.1", "http://127.0.0.2/"),
            ("docs.internal", "http://a.docs.internal/"),
            ("a.docs.internal", "http://docs.internal/"),
            ("docs.internal:80", "https://docs.internal/"),
            ("docs.internal:443", "http://docs.internal/"),
            ("docs.internal:8080", "http://docs.internal/"),
            ("[::1]:9000", "http://[::1]/"),
            ("", "http://docs.internal/"),
            ("*", "http://docs.internal/"),
            ("user@docs.internal", "http://docs.internal/"),
            ("docs.internal/path", "http://docs.internal/path"),
            ("docs.internal:99999", "http://docs.internal/"),
        ] {
            assert!(!is_match(entry, url), "{entry} {url}");
        }
    }
}
