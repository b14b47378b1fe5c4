//! Why an attempt of a tool failed, as far as another attempt depends on it.

use std::time::Duration;

/// A failure that another attempt may follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    /// How long the tool asks to wait.
    pub(crate) retry_after: Option<Duration>,
}

/// What failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// No connection could be made: nothing was sent.
    NoConnection,
    /// The connection broke after the request may have arrived.
    ConnectionBroke,
    /// HTTP 429.
    TooManyRequests,
    /// HTTP 500 to 599.
    ServerError,
    /// The run took longer than its `run_timeout`.
    Timeout,
}

impl From<FailureKind> for Failure {
    fn from(kind: FailureKind) -> Self {
        Self { kind, retry_after: None }
    }
}

impl FailureKind {
    /// Its name in metrics and logs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NoConnection => "no_connection",
            Self::ConnectionBroke => "connection_broke",
            Self::TooManyRequests => "too_many_requests",
            Self::ServerError => "server_error",
            Self::Timeout => "timeout",
        }
    }
}
