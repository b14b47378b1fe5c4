//! An origin whose pages may use the public API.

use std::str::FromStr;

use axum::http::HeaderValue;
use url::Url;

/// Where pages that may use the public API come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Any origin.
    Any,
    /// This origin, as a browser writes it.
    Exact(HeaderValue),
}

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "must be * or an origin such as https://example.com:8443".to_owned();
        if text == "*" {
            return Ok(Self::Any);
        }
        let url = Url::parse(text).map_err(|_| wrong())?;
        let bare = Url::parse(&url.origin().ascii_serialization()).map_err(|_| wrong())?;
        // `*.example.com` parses as a host, but no page comes from there.
        let is_pattern = text.contains('*');
        if !matches!(url.scheme(), "http" | "https") || url != bare || is_pattern {
            return Err(wrong());
        }
        let origin = url.origin().ascii_serialization();
        origin.parse().map(Self::Exact).map_err(|_| wrong())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_what_a_browser_writes() {
        let exact = |text: &'static str| Ok(Origin::Exact(HeaderValue::from_static(text)));
        assert_eq!("*".parse(), Ok(Origin::Any));
        for (given, origin) in [
            ("https://Example.com", "https://example.com"),
            ("https://example.com:443/", "https://example.com"),
            ("http://127.0.0.1:3000", "http://127.0.0.1:3000"),
            ("http://[::1]:3000", "http://[::1]:3000"),
            ("https://bücher.example", "https://xn--bcher-kva.example"),
        ] {
            assert_eq!(given.parse(), exact(origin), "{given}");
        }
        for wrong in [
            "",
            "null",
            "example.com",
            "https://example.com/path",
            "https://example.com?x",
            "https://example.com#x",
            "https://me@example.com",
            "https://*.example.com",
            "https://example.com https://example.org",
            "ftp://example.com",
            "file:///",
            "https://",
        ] {
            assert!(wrong.parse::<Origin>().is_err(), "{wrong}");
        }
    }
}
