//! Who produces a call's result, with the settings that only such a call has.

use std::borrow::Cow;

use serde_json::Value;

use super::{DoubtTerms, Executor, OnInterrupt};
use crate::approval::ApprovalPolicy;
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
        /// [`OnInterrupt::Ask`] only: who may say what becomes of a call that was cut off; `None`:
        /// whoever may answer approvals.
        answerers: Option<Box<ApprovalPolicy>>,
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
        match self {
            Self::Server { on_interrupt, child: None, .. } => match on_interrupt {
                OnInterrupt::Fail | OnInterrupt::Ask => true,
                OnInterrupt::Redispatch => false,
            },
            Self::Server { .. } | Self::Client { .. } | Self::Human | Self::Provider => false,
        }
    }

    /// Whether a person says what becomes of a run of the call that was cut off.
    pub fn asks_when_in_doubt(&self) -> bool {
        matches!(self, Self::Server { on_interrupt: OnInterrupt::Ask, child: None, .. })
    }

    /// Who may say so; `None`: whoever may answer approvals.
    pub(crate) fn answerers(&self) -> Option<&ApprovalPolicy> {
        match self {
            Self::Server { answerers, .. } => answerers.as_deref(),
            Self::Client { .. } | Self::Human | Self::Provider => None,
        }
    }
}

/// The kind of a call with nothing set.
impl From<Executor> for CallKind {
    fn from(executor: Executor) -> Self {
        match executor {
            Executor::Server => {
                let on_interrupt = OnInterrupt::default();
                Self::Server { on_interrupt, child: None, lane: None, answerers: None }
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
    pub(crate) in_doubt: Option<DoubtTerms>,
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
            in_doubt: None,
        };
        match kind {
            CallKind::Server { on_interrupt, child, lane, answerers } => Self {
                on_interrupt: match on_interrupt {
                    OnInterrupt::Redispatch => OnInterrupt::Redispatch,
                    OnInterrupt::Fail | OnInterrupt::Ask => OnInterrupt::Fail,
                },
                in_doubt: (*on_interrupt == OnInterrupt::Ask)
                    .then(|| DoubtTerms { policy: answerers.as_deref().cloned() }),
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
                on_interrupt: match &stored.in_doubt {
                    Some(_) => OnInterrupt::Ask,
                    None => stored.on_interrupt,
                },
                child: stored.child.map(Cow::into_owned),
                lane: stored.lane.map(Cow::into_owned),
                answerers: stored.in_doubt.and_then(|terms| terms.policy).map(Box::new),
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
