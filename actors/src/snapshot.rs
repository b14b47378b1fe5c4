//! A conversation as clients see it: its state, and what only a live actor knows
//! (`reference/snapshot.md`).

use std::collections::BTreeMap;

use abide_conversation::event::{Executor, Todo};
use abide_conversation::ids::{AgentName, CallId, ConversationId, Revision, TurnId};
use abide_conversation::permission::PermissionPhase;
use abide_conversation::state::{Call, CallPhase, ConversationStatus, PendingCall};
use abide_conversation::usage::Usage;
use abide_conversation::{Attempt, Seq, State, Step, Timestamp};
use serde::Serialize;

use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::agents::Choice;
use crate::child_calls::DescendantCalls;
use crate::identity::{Epoch, NodeName};
use crate::journal::{Claim, InboxEntry};
use crate::streaming::StreamingMessage;
use crate::tools::Gate;

/// `GET /v1/conversations/{id}`, and the first frame of every event stream.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Snapshot {
    pub id: ConversationId,
    pub agent: AgentName,
    /// The revision of the open turn, else the one that the next turn begins with; null when the agent was deleted.
    #[schema(required)]
    pub revision: Option<Revision>,
    /// Whether that revision is the one that the agent's rollout is about.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub canary: bool,
    pub state: ConversationStatus,
    #[schema(value_type = u64)]
    pub last_seq: Seq,
    #[schema(required)]
    pub turn: Option<OpenTurn>,
    #[schema(required)]
    pub streaming_message: Option<StreamingMessage>,
    pub in_flight: Vec<InFlight>,
    pub pending: Vec<PendingCall>,
    /// What the children of this conversation, and theirs, wait for; empty for a child.
    #[serde(rename = "child_pending")]
    #[schema(value_type = Vec<InboxEntry>)]
    pub descendants: DescendantCalls,
    pub queued: usize,
    pub todos: Vec<Todo>,
    /// The permission phase that applies now; null when the agent was deleted.
    #[schema(required)]
    pub phase: Option<PermissionPhase>,
    /// The usage of all model calls so far, including those of child conversations.
    pub usage: Usage,
    /// The node that holds the conversation; null when none does.
    #[schema(required)]
    pub holder: Option<HolderView>,
    pub metadata: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// When the conversation is deleted, at a time of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The subject whose conversation it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The subjects who may take part.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
    #[schema(required)]
    pub created_at: Option<Timestamp>,
}

/// The open turn.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct OpenTurn {
    pub id: TurnId,
    /// The step whose model call or tool calls run, from 1.
    #[schema(value_type = u32)]
    pub step: Step,
    pub started_at: Timestamp,
}

/// A call that its executor is running.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct InFlight {
    pub call_id: CallId,
    pub tool: String,
    pub executor: Executor,
    #[schema(value_type = u32)]
    pub attempt: Attempt,
    pub started_at: Timestamp,
    /// The latest progress of a streaming tool.
    #[schema(required)]
    pub progress: Option<Value>,
    /// The child conversation that answers the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_conversation_id: Option<ConversationId>,
}

/// The node that holds a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = SnapshotHolder)]
pub struct HolderView {
    #[schema(value_type = String)]
    pub node: NodeName,
    #[schema(value_type = u64)]
    pub epoch: Epoch,
}

/// What a live actor adds to the journal's state.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    pub claim: Option<Claim>,
    pub streaming: Option<StreamingMessage>,
    pub progress: BTreeMap<CallId, Value>,
}

impl Snapshot {
    /// The snapshot of a conversation that exists.
    pub fn new(
        id: ConversationId,
        state: &State,
        overlay: Overlay,
        descendants: DescendantCalls,
        choice: Option<Choice>,
    ) -> Self {
        let (next, canary) = match choice {
            Some(Choice { definition, canary, newest: _ }) => (Some(definition), canary),
            None => (None, None),
        };
        let revision = state.turn.as_ref().map(|turn| turn.revision.clone());
        let revision = revision.or_else(|| next.as_ref().map(|next| next.revision.clone()));
        let phase = next.map(|next| Gate::new(next, state).phase());
        let Overlay { claim, streaming, progress } = overlay;
        let status = state.status().with_streaming(streaming.is_some());
        let holder = claim.map(|claim| HolderView { node: claim.holder.node, epoch: claim.epoch });
        let calls = state.turn.iter().flat_map(|turn| &turn.calls);
        Self {
            id,
            agent: state.agent.clone().unwrap_or_else(|| AgentName::new("")),
            canary: revision.is_some() && revision == canary,
            revision,
            state: status,
            last_seq: state.seq,
            turn: state.turn.as_ref().map(open_turn),
            streaming_message: streaming,
            in_flight: calls.filter_map(|call| in_flight(call, &progress)).collect(),
            pending: state.pending_calls(),
            descendants,
            queued: state.queue.len(),
            todos: state.todos.clone(),
            phase,
            usage: state.usage,
            holder,
            metadata: state.metadata.clone(),
            title: state.title.clone(),
            expires_at: state.expires_at,
            owner: state.participants.owner.clone(),
            members: state.participants.members.clone(),
            created_at: state.created_at,
        }
    }
}

fn open_turn(turn: &abide_conversation::state::Turn) -> OpenTurn {
    let step = if turn.is_settled() { turn.next_step() } else { turn.step };
    OpenTurn { id: turn.id.clone(), step, started_at: turn.started_at }
}

fn in_flight(call: &Call, progress: &BTreeMap<CallId, Value>) -> Option<InFlight> {
    let (attempt, since) = match &call.phase {
        CallPhase::Running { attempt, since } | CallPhase::Delegated { attempt, since, .. } => {
            (attempt, since)
        }
        CallPhase::External(run) => (&run.attempt, &run.since),
        CallPhase::Requested
        | CallPhase::AwaitingRetry { .. }
        | CallPhase::Suspended(_)
        | CallPhase::Approved
        | CallPhase::Done => return None,
    };
    Some(InFlight {
        call_id: call.id.clone(),
        tool: call.tool.clone(),
        executor: call.kind.executor(),
        attempt: *attempt,
        started_at: *since,
        progress: progress.get(&call.id).cloned(),
        child_conversation_id: call.kind.child().cloned(),
    })
}
