//! Why a server cannot be used.

use crate::limits::{MAX_EXCERPT_BYTES, one_line};

/// The server cannot be used now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub(super) struct McpUnavailable {
    /// In our words, so that a log and an operator may read it.
    pub(super) reason: String,
    /// What the server or the library said, which may hold a secret of the URL.
    pub(super) detail: Option<String>,
}

impl McpUnavailable {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), detail: None }
    }

    pub(super) fn with_detail(reason: &str, detail: &str) -> Self {
        Self { detail: Some(one_line(detail, MAX_EXCERPT_BYTES)), ..Self::new(reason) }
    }
}
