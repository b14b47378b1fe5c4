//! Reports about child conversations.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::event::EffectiveArgs;
use crate::ids::{CallId, ConversationId};
use crate::message::{Outcome, Ui};
use crate::numbers::Attempt;
use crate::usage::Usage;

/// A child conversation has taken up a call.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildStarted {
    pub call: CallId,
    pub attempt: Attempt,
    /// How long the child may take.
    pub within_ms: u64,
    /// The arguments that the child was given, if they are not the journalled ones.
    pub effective_args: Option<EffectiveArgs>,
}

/// A child conversation has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChildEnded {
    pub call: CallId,
    pub child: ConversationId,
    pub outcome: Outcome,
    pub ui: Option<Ui>,
    pub usage: Usage,
    /// The storages that the child found its workspaces on, by workspace root.
    #[serde(default)]
    pub storages: BTreeMap<String, String>,
}
