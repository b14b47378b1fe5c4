//! One run of a call, and the environment that it runs in.

use abide_conversation::elicitation::PendingInput;
use abide_conversation::permission::PermissionPhase;
use abide_conversation::{AgentName, CallId, ConversationId, Principal, TurnId};
use serde_json::{Map, Value};

use super::Grant;
use crate::workspace::WorkspaceRef;

/// One run of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub agent: AgentName,
    pub conversation: ConversationId,
    /// `None` for a user's own call.
    pub turn: Option<TurnId>,
    pub call: CallId,
    pub attempt: u32,
    /// What may run, and with what.
    pub grant: Grant,
    pub assigns: Map<String, Value>,
    pub principal: Principal,
    /// What an earlier attempt asked a person for, and the answer.
    pub input: Option<PendingInput>,
    pub place: ToolEnvironment,
}

/// Where a built-in tool works, and how far it may reach.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolEnvironment {
    pub site: WorkspaceRef,
    /// The storage that the workspace was on when it was used before.
    pub storage: Option<String>,
    /// Hosts, else refused, that may be fetched from.
    pub hosts: Vec<String>,
    /// Whether commands may use the network.
    pub network: bool,
    /// The phase that holds outside of planning.
    pub granted: PermissionPhase,
}
