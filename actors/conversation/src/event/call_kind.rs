//! Who produces a call's result, with the settings that only such a call has.

use std::borrow::Cow;

use serde_json::Value;

use super::{Executor, OnInterrupt};
use crate::ids::ConversationId;

/// The executor of a call, and the settings that only its calls have.
#[derive(Clone, Debug, PartialEq)]
pub enum CallKind {
    Server {
        on_interrupt: OnInterrupt,
        /// The child conversation that is to answer the call.
        child: Option<ConversationId>,
        /// Calls of one step in the same lane run one after another, in call order; for example
        /// those on one file.
        lane: Option<String>,
    },
    Client {
        /// How long the call waits while no page is connected; `None`: until it expires.
        grace_ms: Option<u64>,
        /// The result of a call that needs no answer from the page.
        default_result: Option<Value>,
    },
    Human,
    Provider,
}

impl CallKind {
    /// Who produces the result.
    pub fn executor(&self) -> Executor {
        match self {
            Self::Server { .. } => Executor::Server,
            Self::Client { .. } => Executor::Client,
            Self::Human => Executor::Human,
            Self::Provider => Executor::Provider,
        }
    }

    /// The child conversation that is to answer the call.
    pub fn child(&self) -> Option<&ConversationId> {
        match self {
            Self::Server { child, .. } => child.as_ref(),
            Self::Client { .. } | Self::Human | Self::Provider => None,
        }
    }

    /// Takes the child out of the call, which then belongs to no child any more.
    pub(crate) fn take_child(&mut self) -> Option<ConversationId> {
        match self {
            Self::Server { child, .. } => child.take(),
            Self::Client { .. } | Self::Human | Self::Provider => None,
        }
    }

    /// The lane that the call runs in.
    pub(crate) fn lane(&self) -> Option<&str> {
        match self {
            Self::Server { lane, .. } => lane.as_deref(),
            Self::Client { .. } | Self::Human | Self::Provider => None,
        }
    }

    /// Whether a run of the call never runs again after its node died. A second request to a child
    /// does nothing, so this never holds for a call that a child answers.
    pub fn runs_once(&self) -> bool {
        matches!(self, Self::Server { on_interrupt: OnInterrupt::Fail, child: None, .. })
    }
}

/// The kind of a call with nothing set.
impl From<Executor> for CallKind {
    fn from(executor: Executor) -> Self {
        match executor {
            Executor::Server => {
                Self::Server { on_interrupt: OnInterrupt::default(), child: None, lane: None }
            }
            Executor::Client => Self::Client { grace_ms: None, default_result: None },
            Executor::Human => Self::Human,
            Executor::Provider => Self::Provider,
        }
    }
}

/// A kind as stored calls spell it: the settings of every executor side by side.
pub(crate) struct StoredKind<'a> {
    pub(crate) executor: Executor,
    pub(crate) grace_ms: Option<u64>,
    pub(crate) on_interrupt: OnInterrupt,
    pub(crate) default_result: Option<Cow<'a, Value>>,
    pub(crate) child: Option<Cow<'a, ConversationId>>,
    pub(crate) lane: Option<Cow<'a, str>>,
}

impl<'a> From<&'a CallKind> for StoredKind<'a> {
    fn from(kind: &'a CallKind) -> Self {
        let unset = Self {
            executor: kind.executor(),
            grace_ms: None,
            on_interrupt: OnInterrupt::default(),
            default_result: None,
            child: None,
            lane: None,
        };
        match kind {
            CallKind::Server { on_interrupt, child, lane } => Self {
                on_interrupt: *on_interrupt,
                child: child.as_ref().map(Cow::Borrowed),
                lane: lane.as_deref().map(Cow::Borrowed),
                ..unset
            },
            CallKind::Client { grace_ms, default_result } => Self {
                grace_ms: *grace_ms,
                default_result: default_result.as_ref().map(Cow::Borrowed),
                ..unset
            },
            CallKind::Human | CallKind::Provider => unset,
        }
    }
}

/// Drops what other executors' calls have: older programs wrote settings that had no effect.
impl From<StoredKind<'_>> for CallKind {
    fn from(stored: StoredKind<'_>) -> Self {
        match stored.executor {
            Executor::Server => Self::Server {
                on_interrupt: stored.on_interrupt,
                child: stored.child.map(Cow::into_owned),
                lane: stored.lane.map(Cow::into_owned),
            },
            Executor::Client => Self::Client {
                grace_ms: stored.grace_ms,
                default_result: stored.default_result.map(Cow::into_owned),
            },
            Executor::Human => Self::Human,
            Executor::Provider => Self::Provider,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
