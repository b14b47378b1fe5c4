//! Checks the name by which a request addresses the node.
//!
//! A page whose name was rebound to the node's address is of the node's own origin for a browser, which
//! then sends its requests without asking. Their `Host` gives it away: it is the name of that page. An
//! address cannot be rebound.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use axum::extract::Request;
use axum::http::header;
use axum::http::uri::Authority;

use super::problem::{Kind, Problem};
use crate::config::AllowedHost;

/// The names that are allowed in addition to addresses and `localhost`; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct AllowedHosts(Arc<[AllowedHost]>);

impl AllowedHosts {
    pub(crate) fn new(allowed: &[AllowedHost]) -> Self {
        Self(allowed.into())
    }

    /// Why a request is refused: it addresses the node by a name that is not the node's.
    ///
    /// A request without a `Host` passes: every browser sends one.
    pub(super) fn refusal(&self, request: &Request) -> Option<Problem> {
        let of_target = request.uri().authority().map(|target| self.allows(target));
        let mut of_headers = request.headers().get_all(header::HOST).iter().map(|host| {
            let host = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
            host.is_some_and(|host| self.allows(&host))
        });
        let allowed = of_target != Some(false) && of_headers.all(|allowed| allowed);
        let detail = "Host: is no address, not localhost, and not named by --allow-host";
        (!allowed).then(|| Problem::new(Kind::Forbidden, detail))
    }

    fn allows(&self, authority: &Authority) -> bool {
        let host = authority.host();
        if host.parse::<Ipv4Addr>().is_ok() {
            return true;
        }
        if let Some(address) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            return address.parse::<Ipv6Addr>().is_ok();
        }
        let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        name == "localhost" || self.0.iter().any(|allowed| allowed.allows(&name))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn is_refused(allowed: &AllowedHosts, target: &str, hosts: &[&str]) -> bool {
        let request = Request::get(target);
        let request = hosts.iter().fold(request, |it, host| it.header("Host", *host));
        allowed.refusal(&request.body(Body::empty()).unwrap()).is_some()
    }

    #[test]
    fn only_addresses_and_names_of_the_node_are_allowed() {
        let none = AllowedHosts::new(&[]);
        for host in [
            "127.0.0.1:8080",
            "10.1.2.3",
            "[::1]:8080",
            "[2001:db8::1]",
            "localhost:8080",
            "LOCALHOST",
            "localhost.",
        ] {
            assert!(!is_refused(&none, "/", &[host]), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8080",
            "",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "notlocalhost",
            "[evil.example]",
            "a b",
        ] {
            assert!(is_refused(&none, "/", &[host]), "{host}");
        }
        assert!(!is_refused(&none, "/", &[]), "no browser sends this");
        assert!(is_refused(&none, "/", &["localhost", "evil.example"]));
        assert!(is_refused(&none, "http://evil.example/", &["localhost"]));
        assert!(!is_refused(&none, "http://localhost/", &["localhost"]));
        let named = AllowedHosts::new(&["node-1".parse().unwrap(), "*.svc".parse().unwrap()]);
        assert!(!is_refused(&named, "/", &["Node-1:8080"]));
        assert!(!is_refused(&named, "/", &["abide.default.svc"]));
        assert!(is_refused(&named, "/", &["node-2"]));
        assert!(!is_refused(&AllowedHosts::new(&[AllowedHost::Any]), "/", &["evil.example"]));
    }
}
