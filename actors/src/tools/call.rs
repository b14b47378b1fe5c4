//! One run of a call, and the environment that it runs in.

use std::sync::Arc;

use abide_conversation::elicitation::PendingInput;
use abide_conversation::permission::{Network, PermissionPhase};
use abide_conversation::{AgentName, Attempt, CallId, ConversationId, Principal, TurnId};

use super::Grant;
use crate::assigns::Assigns;
use crate::workspace::WorkspaceRef;

/// One run of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub agent: AgentName,
    pub conversation: ConversationId,
    /// `None` for a user's dispatch.
    pub turn: Option<TurnId>,
    pub call: CallId,
    pub attempt: Attempt,
    /// Which tool may run, and with which arguments.
    pub grant: Grant,
    pub assigns: Arc<Assigns>,
    pub principal: Principal,
    /// What an earlier attempt asked a person, and the answer.
    pub input: Option<PendingInput>,
    pub environment: ToolEnvironment,
}

/// The workspace of a built-in tool, and what the tool may reach.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolEnvironment {
    pub workspace: WorkspaceRef,
    /// The storage that held the workspace when it was last used.
    pub storage: Option<String>,
    /// Hosts that may be fetched from although their addresses are not public.
    pub allowed_hosts: Vec<String>,
    /// Where commands may connect to.
    pub network: Network,
    /// The permission phase that applies outside of planning.
    pub base_phase: PermissionPhase,
}
