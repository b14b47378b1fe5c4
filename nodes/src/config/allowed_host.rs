//! A name by which clients may address the node.

use std::str::FromStr;

use url::Host;

/// Which names a request's `Host` may have, besides addresses and `localhost`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedHost {
    /// Any name.
    Any,
    /// This name, in lower case.
    Exact(String),
    /// Every name that ends in this text, which begins with a dot and is in lower case.
    Below(String),
}

impl AllowedHost {
    /// Whether a name, in lower case and without its port, is allowed.
    pub(crate) fn allows(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => name == exact,
            Self::Below(suffix) => name.len() > suffix.len() && name.ends_with(suffix.as_str()),
        }
    }
}

impl FromStr for AllowedHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let (name, is_pattern) = match text.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (text, false),
        };
        // `*` is legal in a URL's host, but no name of a node has it.
        match Host::parse(name) {
            Ok(Host::Domain(name)) if !name.contains('*') => {
                Ok(if is_pattern { Self::Below(format!(".{name}")) } else { Self::Exact(name) })
            }
            Ok(Host::Ipv4(_) | Host::Ipv6(_)) => {
                Err("must be a name: addresses are always allowed".to_owned())
            }
            Ok(Host::Domain(_)) | Err(_) => {
                Err("must be *, *.example.com, or a name without a port such as example.com"
                    .to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_any_name_one_name_or_every_name_below_one() {
        let exact = |name: &str| Ok(AllowedHost::Exact(name.to_owned()));
        assert_eq!("*".parse(), Ok(AllowedHost::Any));
        assert_eq!("Example.COM".parse(), exact("example.com"));
        assert_eq!("bücher.example".parse(), exact("xn--bcher-kva.example"));
        assert_eq!("node-1".parse(), exact("node-1"));
        assert_eq!("*.svc".parse(), Ok(AllowedHost::Below(".svc".to_owned())));
        for wrong in ["", "*.", "**", "a.*", "a:80", "http://a", "a/b", "a b", "me@a"] {
            assert!(wrong.parse::<AllowedHost>().is_err(), "{wrong}");
        }
        for address in ["127.0.0.1", "[::1]"] {
            let error = address.parse::<AllowedHost>();
            assert!(error.is_err_and(|error| error.contains("always allowed")), "{address}");
        }
    }

    #[test]
    fn a_pattern_allows_only_what_is_below_it() {
        let below = AllowedHost::Below(".example.com".to_owned());
        assert!(below.allows("a.example.com") && below.allows("a.b.example.com"));
        for other in ["example.com", ".example.com", "badexample.com", "a.example.com.evil"] {
            assert!(!below.allows(other), "{other}");
        }
        assert!(!AllowedHost::Exact("a".to_owned()).allows("b"));
    }
}
