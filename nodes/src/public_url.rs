//! Where others reach the cluster: tools that call back, and people who follow a link.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use url::Url;

/// An http or https URL without query, fragment and the slash at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl(String);

impl PublicUrl {
    /// The URL of a listener that others can dial; `None` if it listens on any address.
    pub(crate) fn of_listener(address: SocketAddr) -> Option<Self> {
        (!address.ip().is_unspecified()).then(|| Self(format!("http://{address}")))
    }

    /// The URL of a path, which begins with a slash.
    pub(crate) fn join(&self, path: &str) -> String {
        format!("{}{path}", self.0)
    }
}

impl FromStr for PublicUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "must be an http or https URL without query and fragment".to_owned();
        let url = Url::parse(text).map_err(|_| wrong())?;
        let is_plain = matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none();
        if !is_plain {
            return Err(wrong());
        }
        Ok(Self(url.as_str().trim_end_matches('/').to_owned()))
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_public_url_is_where_paths_begin() {
        for (given, path) in [
            ("https://abide.example.com", "https://abide.example.com/v1/x"),
            ("https://example.com/abide/", "https://example.com/abide/v1/x"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1/x"),
        ] {
            assert_eq!(given.parse::<PublicUrl>().unwrap().join("/v1/x"), path);
        }
        for wrong in ["", "example.com", "ftp://a", "https://a?x", "https://a#x", "https://u:p@a"] {
            assert!(wrong.parse::<PublicUrl>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_listener_on_any_address_has_no_url() {
        let url = |address: &str| PublicUrl::of_listener(address.parse().unwrap());
        assert_eq!(url("127.0.0.1:80").unwrap().to_string(), "http://127.0.0.1:80");
        assert_eq!(url("[::1]:80").unwrap().to_string(), "http://[::1]:80");
        assert_eq!((url("0.0.0.0:80"), url("[::]:80")), (None, None));
    }
}
