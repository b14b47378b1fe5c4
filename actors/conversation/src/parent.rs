//! The link from a child conversation to its parent.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::approval::SubjectId;
use crate::ids::{CallId, ConversationId};
use crate::permission::Ceiling;
use crate::usage::Budget;

/// How deep children may be nested; the root is at 0.
pub const MAX_CHILD_DEPTH: u32 = 5;

/// The parent of a child conversation, and the limits that it sets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Parent {
    pub conversation_id: ConversationId,
    /// The call that this conversation answers.
    pub call_id: CallId,
    /// The conversation at the top of the family, which a person started.
    pub root_conversation_id: ConversationId,
    /// 1 for a child of the root.
    pub depth: u32,
    pub ceiling: Ceiling,
    /// What the parent could still spend at the time of the call.
    #[serde(default, skip_serializing_if = "Budget::is_unlimited")]
    pub budget: Budget,
    /// The storages of workspaces that the parent has used before, by workspace root.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub storages: BTreeMap<String, String>,
    /// The requesters of the call, who may not approve what the child asks either.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub requesters: BTreeSet<SubjectId>,
    /// The name of the model that the call chose; absent: that of the agent's definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}
