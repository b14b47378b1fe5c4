//! Errors of a fetch, with the text that a model reads.

use std::error::Error;
use std::fmt::Display;

use url::ParseError;

use crate::limits::one_line;
use crate::outbound::dns::ResolveError;

/// The length of details, which come from outside: enough to recognise the cause.
const MAX_DETAIL_BYTES: usize = 200;

/// The page was not fetched. Each variant has the code of `web_fetch` with its detail; see
/// `reference/builtin-tools.md`.
///
/// The text contains no secret, and no address except in URLs that the caller or a server gave.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FetchError {
    /// Neither http nor https; the detail is empty if the text has no scheme at all.
    #[error("invalid_scheme{}", detail(.0))]
    InvalidScheme(String),
    #[error("missing_host")]
    MissingHost,
    /// The host is an address that is not public, or its name has one.
    #[error("blocked_host: {0}")]
    BlockedHost(String),
    /// The server's status, 400 or more.
    #[error("http_error: {0}")]
    HttpError(u16),
    #[error("too_many_redirects")]
    TooManyRedirects,
    /// Anything else, including a URL with a user name or password, and a page that is not text.
    #[error("fetch_failed: {0}")]
    Failed(String),
}

impl FetchError {
    pub(super) fn failed(why: impl AsRef<str>) -> Self {
        Self::Failed(one_line(why.as_ref(), MAX_DETAIL_BYTES))
    }

    pub(super) fn blocked(host: impl Display) -> Self {
        Self::BlockedHost(one_line(&host.to_string(), MAX_DETAIL_BYTES))
    }

    pub(super) fn scheme(scheme: &str) -> Self {
        Self::InvalidScheme(one_line(scheme, MAX_DETAIL_BYTES))
    }

    pub(super) fn from_parse_error(error: ParseError) -> Self {
        match error {
            ParseError::EmptyHost => Self::MissingHost,
            ParseError::RelativeUrlWithoutBase => Self::scheme(""),
            error => Self::failed(format!("not a URL: {error}")),
        }
    }

    /// The cause of a failed request to that host.
    pub(super) fn from_transport(error: &reqwest::Error, host: impl Display) -> Self {
        let mut cause: Option<&(dyn Error + 'static)> = error.source();
        while let Some(inner) = cause {
            match inner.downcast_ref() {
                Some(ResolveError::Blocked) => return Self::blocked(host),
                Some(ResolveError::Unknown) => return Self::failed("unknown host"),
                None => {}
            }
            cause = inner.source();
        }
        // The library's own text would reveal the address of a name.
        Self::failed(if error.is_connect() { "no connection" } else { "the connection broke" })
    }
}

fn detail(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}
