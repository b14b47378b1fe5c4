//! Why a conversation is deleted.

use abide_conversation::{State, Timestamp};
use serde::{Deserialize, Serialize};

use super::Request;

/// Why a conversation is deleted. Its children are deleted for the same reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeletionReason {
    /// Somebody deleted it by hand.
    Request,
    /// Nothing happened in it for as long as its agent or its tenant keeps conversations.
    Idle,
    /// Its own `expires_at` has come.
    ExpiresAt,
    /// Everything of its owner is erased.
    Erasure,
    /// It is a child that nobody waits for.
    Parent,
    /// It is a fork whose original was gone before its prefix was copied.
    Original,
}

impl DeletionReason {
    /// The name by which notices, logs and metrics tell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Idle => "idle",
            Self::ExpiresAt => "expires_at",
            Self::Erasure => "erasure",
            Self::Parent => "parent",
            Self::Original => "original",
        }
    }
}

/// What must be so at the moment of a deletion that nobody made by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeletionCondition {
    /// Nothing has happened in the conversation since then, and nothing runs, waits or is to come.
    IdleSince(Timestamp),
    /// The conversation's own end has come.
    Expired,
}

impl DeletionCondition {
    /// Why a conversation is deleted that meets it.
    pub fn reason(self) -> DeletionReason {
        match self {
            Self::IdleSince(_) => DeletionReason::Idle,
            Self::Expired => DeletionReason::ExpiresAt,
        }
    }

    /// Whether a conversation in this state meets it.
    pub fn is_met(self, state: &State, now: Timestamp) -> bool {
        match self {
            Self::IdleSince(since) => {
                state.idle_since().is_some_and(|active_at| active_at <= since)
            }
            Self::Expired => state.is_expired(now),
        }
    }
}

impl Request {
    /// The request that deletes a conversation for this reason. Nodes of every version understand a
    /// deletion by hand.
    pub fn delete(reason: DeletionReason) -> Self {
        match reason {
            DeletionReason::Request => Self::Delete,
            DeletionReason::Idle
            | DeletionReason::ExpiresAt
            | DeletionReason::Erasure
            | DeletionReason::Parent
            | DeletionReason::Original => Self::DeleteFor(reason),
        }
    }

    /// Why the request deletes its conversation; `None` for a request that does not.
    pub fn deletion_reason(&self) -> Option<DeletionReason> {
        match self {
            Self::Delete => Some(DeletionReason::Request),
            Self::DeleteFor(reason) => Some(*reason),
            Self::DeleteIf(condition) => Some(condition.reason()),
            _ => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_deletion_by_hand_travels_as_it_always_did() {
        let travelling = |reason| serde_json::to_value(Request::delete(reason)).unwrap();
        assert_eq!(travelling(DeletionReason::Request), json!("Delete"));
        assert_eq!(travelling(DeletionReason::Erasure), json!({"DeleteFor": "erasure"}));
    }

    #[test]
    fn a_reason_has_one_name_everywhere() {
        for reason in [
            DeletionReason::Request,
            DeletionReason::Idle,
            DeletionReason::ExpiresAt,
            DeletionReason::Erasure,
            DeletionReason::Parent,
            DeletionReason::Original,
        ] {
            assert_eq!(serde_json::to_value(reason).unwrap(), json!(reason.as_str()));
            assert_eq!(Request::delete(reason).deletion_reason(), Some(reason));
        }
    }
}
