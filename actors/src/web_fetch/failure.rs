//! Why there is no page, in the words that a model reads.

use std::error::Error;
use std::fmt::Display;

use url::ParseError;

use super::dns::ResolveError;
use crate::limits::one_line;

/// Enough to recognise what an error is about; hosts and kinds of pages come from outside.
const LONGEST_DETAIL: usize = 200;

/// Why a page was not fetched: the codes of `web_fetch`, with their details.
///
/// Names no address but those of URLs that the caller or a server gave, and no secret.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FetchError {
    /// Neither http nor https; the detail is empty for a text that has no scheme at all.
    #[error("invalid_scheme{}", detail(.0))]
    InvalidScheme(String),
    #[error("missing_host")]
    MissingHost,
    /// The host is, or its name has, an address that is not public.
    #[error("blocked_host: {0}")]
    BlockedHost(String),
    /// The server's status, 400 or more.
    #[error("http_error: {0}")]
    HttpError(u16),
    #[error("too_many_redirects")]
    TooManyRedirects,
    /// Anything else; also a URL with a user's name or password, and a page that is not text.
    #[error("fetch_failed: {0}")]
    Failed(String),
}

impl FetchError {
    pub(super) fn failed(why: impl AsRef<str>) -> Self {
        Self::Failed(one_line(why.as_ref(), LONGEST_DETAIL))
    }

    pub(super) fn blocked(host: impl Display) -> Self {
        Self::BlockedHost(one_line(&host.to_string(), LONGEST_DETAIL))
    }

    pub(super) fn scheme(scheme: &str) -> Self {
        Self::InvalidScheme(one_line(scheme, LONGEST_DETAIL))
    }

    pub(super) fn of_url(error: ParseError) -> Self {
        match error {
            ParseError::EmptyHost => Self::MissingHost,
            ParseError::RelativeUrlWithoutBase => Self::scheme(""),
            error => Self::failed(format!("not a URL: {error}")),
        }
    }

    /// What broke between here and that host.
    pub(super) fn of_transport(error: &reqwest::Error, host: impl Display) -> Self {
        let mut cause: Option<&(dyn Error + 'static)> = error.source();
        while let Some(inner) = cause {
            match inner.downcast_ref() {
                Some(ResolveError::Blocked) => return Self::blocked(host),
                Some(ResolveError::Unknown) => return Self::failed("the host is not known"),
                None => {}
            }
            cause = inner.source();
        }
        // The library's own words would name the address that a name has.
        Self::failed(match error.is_connect() {
            true => "no connection",
            false => "the connection broke",
        })
    }
}

fn detail(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}
