//! Pages of other origins: which ones a browser lets read the public API.

use std::str::FromStr;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Method, header};
use tower_http::cors::{AllowOrigin, CorsLayer};
use url::Url;

/// How long a browser need not ask again whether it may ask; none keeps it for much longer.
const REMEMBERED: Duration = Duration::from_secs(3_600);

/// Where pages come from that may use the public API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// From anywhere.
    Any,
    /// From here, as a browser writes it.
    Of(HeaderValue),
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
        // A pattern would be a legal host, which no page is from.
        let is_pattern = text.contains('*');
        if !matches!(url.scheme(), "http" | "https") || url != bare || is_pattern {
            return Err(wrong());
        }
        let origin = url.origin().ascii_serialization();
        origin.parse().map(Self::Of).map_err(|_| wrong())
    }
}

/// What tells browsers so; `None` when only pages of the node itself may.
pub(super) fn layer(allowed: &[Origin]) -> Option<CorsLayer> {
    let of = |origin: &Origin| match origin {
        Origin::Any => None,
        Origin::Of(origin) => Some(origin.clone()),
    };
    let origins = match allowed.iter().map(of).collect::<Option<Vec<_>>>() {
        Some(origins) if origins.is_empty() => return None,
        Some(origins) => AllowOrigin::list(origins),
        None => AllowOrigin::any(),
    };
    let headers = [
        header::CONTENT_TYPE,
        header::AUTHORIZATION,
        HeaderName::from_static("idempotency-key"),
        HeaderName::from_static("last-event-id"),
    ];
    let cors = CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::DELETE])
        .allow_headers(headers)
        .expose_headers([header::RETRY_AFTER])
        .max_age(REMEMBERED);
    Some(cors)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_what_a_browser_writes() {
        let of = |text: &'static str| Ok(Origin::Of(HeaderValue::from_static(text)));
        assert_eq!("*".parse(), Ok(Origin::Any));
        for (given, origin) in [
            ("https://Example.com", "https://example.com"),
            ("https://example.com:443/", "https://example.com"),
            ("http://127.0.0.1:3000", "http://127.0.0.1:3000"),
            ("http://[::1]:3000", "http://[::1]:3000"),
            ("https://bücher.example", "https://xn--bcher-kva.example"),
        ] {
            assert_eq!(given.parse(), of(origin), "{given}");
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
