//! What became of child conversations, and what their parents were told.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::EffectiveArgs;
use crate::Timestamp;
use crate::ids::{CallId, ConversationId, TurnId};
use crate::message::Usage;

/// A child conversation has the call; nothing runs here until it ends, or its time is up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChildStarted {
    pub call_id: CallId,
    pub conversation_id: ConversationId,
    pub attempt: u32,
    pub expires_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<EffectiveArgs>,
}

/// There is no child to care for any more: it has told what it came to, or never was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChildEnded {
    pub call_id: CallId,
    pub conversation_id: ConversationId,
    /// What it and its own children cost.
    #[serde(default)]
    pub usage: Usage,
    /// The storage that it found its workspaces on, by their root.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub storages: BTreeMap<String, String>,
}

/// A child whose call was over before it was has been stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChildReleased {
    pub conversation_id: ConversationId,
    /// What it and its own children cost until then.
    #[serde(default)]
    pub usage: Usage,
}

/// The parent knows what the turn came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ParentNotified {
    pub turn_id: TurnId,
}
