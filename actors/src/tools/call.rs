//! One run of a call, and the environment that it runs in.

use std::sync::Arc;

use abide_conversation::approval::Approver;
use abide_conversation::elicitation::PendingInput;
use abide_conversation::identity::Identity;
use abide_conversation::permission::{Network, PermissionPhase};
use abide_conversation::{AgentName, Attempt, CallId, ConversationId, Principal, Scoped, TurnId};

use serde_json::{Map, Value};

use super::Grant;
use crate::assigns::Assigns;
use crate::external::Callback;
use crate::outbound::Outbound;
use crate::workspace::WorkspaceRef;

/// What the id of a turn begins with whose calls have the turn in their keys. Turns of earlier
/// versions begin with `turn_` alone: their calls keep the keys under which they may have run.
const KEYED_TURN_PREFIX: &str = "turn_k_";
/// The prefix for the ids of new turns, as the clock takes it.
pub(crate) const NEW_TURN: &str = "turn_k";

/// One run of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub agent: AgentName,
    pub conversation: Scoped<ConversationId>,
    /// `None` for a user's dispatch.
    pub turn: Option<TurnId>,
    pub call: CallId,
    pub attempt: Attempt,
    /// Which tool may run, and with which arguments.
    pub grant: Grant,
    pub assigns: Arc<Assigns>,
    pub principal: Principal,
    /// Who asked for it; `None` if nobody was authenticated.
    pub identity: Option<Arc<Identity>>,
    /// Those whose votes approved it.
    pub approvals: Vec<Approver>,
    /// What an earlier attempt asked a person, and the answer.
    pub input: Option<PendingInput>,
    /// Where an HTTP tool may send its result later.
    pub callback: Option<Callback>,
    /// The key-value state of the conversation.
    pub state: Arc<Map<String, Value>>,
    pub environment: ToolEnvironment,
}

impl Run {
    /// The idempotency key of the call, the same for every attempt: `CONVERSATION/CALL/TURN`. Both
    /// ids may come again, when a conversation was deleted and its id is used anew; a turn never
    /// does. The call of a dispatch has an id that never comes again, and needs no turn.
    pub fn idempotency_key(&self) -> String {
        idempotency_key(&self.conversation, &self.call, self.turn.as_ref())
    }
}

/// The idempotency key of a call; see [`Run::idempotency_key`].
pub(crate) fn idempotency_key(
    conversation: &Scoped<ConversationId>,
    call: &CallId,
    turn: Option<&TurnId>,
) -> String {
    match turn.and_then(|turn| turn.as_str().strip_prefix(KEYED_TURN_PREFIX)) {
        Some(number) => format!("{conversation}/{call}/{number}"),
        None => format!("{conversation}/{call}"),
    }
}

/// The workspace of a built-in tool, and what the tool may reach.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolEnvironment {
    pub workspace: WorkspaceRef,
    /// The storage that held the workspace when it was last used.
    pub storage: Option<String>,
    /// Hosts that may be fetched from although their addresses are not public.
    pub allowed_hosts: Vec<String>,
    /// What the agent's tenant may reach.
    pub outbound: Outbound,
    /// Where commands may connect to.
    pub network: Network,
    /// The permission phase that applies outside of planning.
    pub base_phase: PermissionPhase,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::fixtures::a_run;

    #[test]
    fn the_calls_of_a_conversation_that_was_created_anew_have_other_keys() {
        let key = |turn: &str| {
            let turn = Some(TurnId::new(turn));
            Run { turn, ..a_run("t", serde_json::json!({})) }.idempotency_key()
        };
        let first = key(&format!("{NEW_TURN}_1"));
        assert_eq!(first, "c1/call_1/1");
        assert_ne!(first, key(&format!("{NEW_TURN}_2")));
        assert_eq!(key("turn_1"), "c1/call_1", "a call of an earlier version may have run already");
    }
}
