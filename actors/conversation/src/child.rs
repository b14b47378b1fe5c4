//! Conversations that one conversation asks: whose they are, and what becomes of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::cost::Budget;
use crate::event::TurnOutcome;
use crate::ids::{CallId, ConversationId, TurnId};
use crate::permission::Ceiling;

/// How deep conversations may ask each other; the root is at 0.
pub const DEEPEST: u32 = 5;

/// Whose child a conversation is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Parent {
    pub conversation_id: ConversationId,
    /// The call that this conversation answers.
    pub call_id: CallId,
    /// The one that a person started.
    pub root_conversation_id: ConversationId,
    /// 1 for a child of the root.
    pub depth: u32,
    pub ceiling: Ceiling,
    /// What its parent can still spend, at the time of the call.
    #[serde(default, skip_serializing_if = "Budget::is_open")]
    pub budget: Budget,
    /// The storage that workspaces were on when they were used before, by their root.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub storages: BTreeMap<String, String>,
}

/// What a child has to tell its parent, once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwedReport {
    pub turn: TurnId,
    pub outcome: TurnOutcome,
    pub reason: Option<String>,
    /// Model calls.
    pub steps: u32,
    /// Tool calls.
    pub calls: u32,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
}
