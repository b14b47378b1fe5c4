//! What a conversation's journal comes to: a small value, folded by `evolve`.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Timestamp;
use crate::child::{OwedReport, Parent};
use crate::context::Context;
use crate::cost::Budget;
use crate::event::{AnswerFormat, Executor, Intent, OnInterrupt, Suspension, SuspensionKind, Todo};
use crate::fork::Fork;
use crate::ids::{AgentName, CallId, ConversationId, DecisionId, Principal, Revision, TurnId};
use crate::input::PendingInput;
use crate::message::Usage;
use crate::permission::{Decision, Verdict};
use crate::read;
use crate::remembered::RememberedDecision;
use crate::used_ids::UsedIds;

/// The folded journal. `State::default()` is the conversation that does not exist yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The last event's `seq`; 0 before the first.
    pub seq: u64,
    pub agent: Option<AgentName>,
    pub created_at: Option<Timestamp>,
    pub assigns: Map<String, Value>,
    pub metadata: Map<String, Value>,
    pub tools: Vec<Value>,
    pub turn: Option<Turn>,
    /// Messages whose turns have not started, oldest first.
    pub queue: VecDeque<QueuedTurn>,
    /// How many turns have started.
    pub turns: u64,
    pub used_ids: UsedIds,
    /// Users' own calls that run now.
    pub dispatches: BTreeMap<CallId, RunningDispatch>,
    #[serde(default)]
    pub todos: Vec<Todo>,
    /// Whether it plans by its own choice; `None`: as its agent says.
    #[serde(default)]
    pub planning: Option<bool>,
    /// The storage that its workspaces must be on, by their root; an empty root is the program's.
    #[serde(default)]
    pub storages: BTreeMap<String, String>,
    /// What all of its model calls cost, and those of its children.
    #[serde(default)]
    pub usage: Usage,
    /// Whose prefix is still being copied; until it is whole, nothing else happens here.
    #[serde(default)]
    pub forking: Option<Fork>,
    /// What its model reads.
    #[serde(default)]
    pub context: Context,
    #[serde(default)]
    pub parent: Option<Parent>,
    /// Whether its parent wants nothing of it any more.
    #[serde(default)]
    pub abandoned: bool,
    /// What its parent must still be told.
    #[serde(default)]
    pub due: Option<OwedReport>,
    /// Approvers' decisions that hold for later calls, of this conversation or of its whole agent as
    /// long as that has not got them.
    #[serde(default)]
    pub decisions: BTreeMap<DecisionId, RememberedDecision>,
    /// Those of the decisions that the agent must still be given.
    #[serde(default)]
    pub unkept: BTreeMap<DecisionId, AgentName>,
    /// Children that nobody waits for, to be stopped, and the calls that they were for.
    #[serde(default)]
    pub orphans: BTreeMap<ConversationId, CallId>,
    /// Whether events were skipped, being of unknown types: a program that knows them must fold them
    /// for itself, so this state is not for it.
    #[serde(skip)]
    pub skipped: bool,
}

/// A message whose turn waits for the one before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueuedTurn {
    pub id: TurnId,
    pub principal: Principal,
    pub assigns: Map<String, Value>,
    pub shape: AnswerFormat,
}

/// The open turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    pub id: TurnId,
    /// 1 for the conversation's first turn.
    pub ordinal: u64,
    pub agent: AgentName,
    pub revision: Revision,
    pub max_steps: u32,
    #[serde(default)]
    pub budget: Budget,
    /// What it cost so far, its children included.
    #[serde(default)]
    pub usage: Usage,
    /// A context of more tokens is summarized when the turn has ended.
    #[serde(default)]
    pub summarize_over: Option<u64>,
    /// The step whose context the provider found too long.
    #[serde(default)]
    pub too_long: u32,
    pub started_at: Timestamp,
    pub principal: Principal,
    pub assigns: Map<String, Value>,
    pub shape: AnswerFormat,
    /// Model calls that are done.
    pub step: u32,
    /// The calls of the last step, in the model's order.
    pub calls: Vec<Call>,
    /// Whether the one repair of a structured answer was asked for.
    pub repaired: bool,
    /// Whether a hook refused a message.
    #[serde(default)]
    pub refused: bool,
    /// The step whose durable hooks have added what they wanted.
    #[serde(default)]
    pub prepared: u32,
    /// How many calls the model has made.
    #[serde(default)]
    pub calls_made: u32,
    /// The ids of this turn that `used_ids` had no room for.
    pub late_ids: Vec<CallId>,
}

/// One call of the open step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    pub id: CallId,
    pub tool: String,
    pub args: Value,
    pub executor: Executor,
    pub intent: Intent,
    pub message: String,
    pub timeout_ms: u64,
    pub grace_ms: Option<u64>,
    pub on_interrupt: OnInterrupt,
    #[serde(default, deserialize_with = "read::present", skip_serializing_if = "Option::is_none")]
    pub answer: Option<Value>,
    /// Whom it runs as: the turn's principal, or the approver.
    pub principal: Principal,
    /// How many suspensions it has had.
    pub suspensions: u32,
    /// What the gate decided about the arguments as they are.
    #[serde(default)]
    pub gate: Option<Verdict>,
    /// Whether a person said yes.
    #[serde(default)]
    pub approved: bool,
    /// What it has asked of a person since it began to run.
    #[serde(default)]
    pub input: Option<PendingInput>,
    /// The child conversation that is to answer it.
    #[serde(default)]
    pub child: Option<ConversationId>,
    /// Which calls of its step it runs after.
    #[serde(default)]
    pub lane: Option<String>,
    pub phase: CallPhase,
}

/// Where a call is in its life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallPhase {
    /// Named by the model, and not yet handed to anybody.
    Requested,
    /// It waits outside.
    Suspended(OpenSuspension),
    /// Approved, and not yet handed to its executor.
    Approved,
    /// Its executor has it.
    Running { attempt: u32, since: Timestamp },
    /// Its child conversation has it.
    Delegated { attempt: u32, since: Timestamp, expires_at: Timestamp },
    /// It has its one result.
    Done,
}

/// An open suspension.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenSuspension {
    pub kind: SuspensionKind,
    pub suspension: u32,
    pub since: Timestamp,
    pub expires_at: Timestamp,
    pub message: String,
}

/// A user's own call that runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunningDispatch {
    pub tool: String,
    pub input: Value,
    pub principal: Principal,
    pub revision: Revision,
    pub attempt: u32,
    pub on_interrupt: OnInterrupt,
    pub requests: BTreeMap<String, String>,
    #[serde(default)]
    pub gate: Option<Verdict>,
    #[serde(default)]
    pub child: Option<ConversationId>,
    /// Until when the child may take; `None` while it has not taken it up.
    #[serde(default)]
    pub delegated: Option<Timestamp>,
}

/// What a conversation is doing, as clients see it. Awaiting wins over executing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = ConversationState))]
#[serde(rename_all = "snake_case")]
pub enum ConversationStatus {
    Idle,
    Preparing,
    Streaming,
    ExecutingTools,
    AwaitingInput,
}

/// An open suspension as the snapshot and the inbox show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = PendingCall))]
pub struct PendingCall {
    pub call_id: CallId,
    pub tool: String,
    pub executor: Executor,
    pub kind: SuspensionKind,
    pub args: Value,
    pub message: String,
    pub intent: Intent,
    pub suspension: u32,
    pub suspended_at: Timestamp,
    pub expires_at: Timestamp,
    /// What a tool asks for that had begun to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Value>,
    /// Of a child's call: the conversation that a person started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_conversation_id: Option<ConversationId>,
}

impl ConversationStatus {
    /// The same, given whether the model speaks now: only a live actor knows that.
    pub fn live(self, speaks: bool) -> Self {
        match self {
            Self::Preparing if speaks => Self::Streaming,
            other => other,
        }
    }
}

impl State {
    /// Whether the conversation was created.
    pub fn exists(&self) -> bool {
        self.seq > 0
    }

    /// What it is doing, as far as the journal knows: see [`Activeness::live`].
    pub fn activeness(&self) -> ConversationStatus {
        if self.forking.is_some() {
            return ConversationStatus::Preparing;
        }
        let Some(turn) = &self.turn else {
            return match self.queue.is_empty() {
                true => ConversationStatus::Idle,
                false => ConversationStatus::Preparing,
            };
        };
        if turn.calls.iter().any(|call| call.waiting().is_some()) {
            ConversationStatus::AwaitingInput
        } else if turn.settled() {
            ConversationStatus::Preparing
        } else {
            ConversationStatus::ExecutingTools
        }
    }

    /// How many calls of the open turn have no result yet.
    pub fn open_calls(&self) -> usize {
        let calls = self.turn.iter().flat_map(|turn| &turn.calls);
        calls.filter(|call| call.phase != CallPhase::Done).count()
    }

    /// The calls that run now and must not run twice: whoever interrupts them ends them.
    pub fn uninterruptible(&self) -> Vec<CallId> {
        let once = |call: &&Call| {
            matches!(call.phase, CallPhase::Running { .. })
                && call.executor == Executor::Server
                && call.on_interrupt == OnInterrupt::Fail
                && call.child.is_none()
        };
        let calls = self.turn.iter().flat_map(|turn| &turn.calls).filter(once);
        let runs = self
            .dispatches
            .iter()
            .filter(|(_, run)| run.on_interrupt == OnInterrupt::Fail && run.child.is_none());
        calls.map(|call| &call.id).chain(runs.map(|(id, _)| id)).cloned().collect()
    }

    /// The open suspensions, in call order.
    pub fn pending(&self) -> Vec<PendingCall> {
        if self.forking.is_some() {
            return Vec::new();
        }
        let root = self.parent.as_ref().map(|parent| &parent.root_conversation_id);
        let calls = self.turn.iter().flat_map(|turn| &turn.calls);
        let rooted = |pending| PendingCall { root_conversation_id: root.cloned(), ..pending };
        calls.filter_map(Call::pending).map(rooted).collect()
    }

    /// When the conversation must be woken: the earliest of its deadlines.
    pub fn alarm(&self) -> Option<Timestamp> {
        if self.forking.is_some() {
            return None;
        }
        let calls = self.turn.iter().flat_map(|turn| &turn.calls);
        let deadlines = calls.filter_map(Call::deadline);
        deadlines.chain(self.dispatches.values().filter_map(|run| run.delegated)).min()
    }

    /// Whether it was made for this call of that parent.
    pub fn is_child_for(&self, parent: Option<&Parent>) -> bool {
        let name = |parent: &Parent| (parent.conversation_id.clone(), parent.call_id.clone());
        parent.is_some() && self.parent.as_ref().map(name) == parent.map(name)
    }

    /// A call of the open step, also one that is done.
    pub fn call(&self, id: &CallId) -> Option<&Call> {
        self.turn.as_ref()?.calls.iter().find(|call| call.id == *id)
    }
}

impl Turn {
    /// Whether no call is open.
    pub fn settled(&self) -> bool {
        self.calls.iter().all(|call| call.phase == CallPhase::Done)
    }

    /// The model call that comes next.
    pub fn next_step(&self) -> u32 {
        self.step.saturating_add(1)
    }
}

impl Call {
    /// The open suspension, if there is one.
    pub fn waiting(&self) -> Option<&OpenSuspension> {
        match &self.phase {
            CallPhase::Suspended(waiting) => Some(waiting),
            CallPhase::Requested
            | CallPhase::Approved
            | CallPhase::Running { .. }
            | CallPhase::Delegated { .. }
            | CallPhase::Done => None,
        }
    }

    /// When it ends by itself, if it has a time.
    pub fn deadline(&self) -> Option<Timestamp> {
        match &self.phase {
            CallPhase::Suspended(waiting) => Some(waiting.expires_at),
            CallPhase::Delegated { expires_at, .. } => Some(*expires_at),
            CallPhase::Requested
            | CallPhase::Approved
            | CallPhase::Running { .. }
            | CallPhase::Done => None,
        }
    }

    /// The verdict by which it may run with the arguments as they are; `None` if it may not.
    pub fn leave(&self) -> Option<&Verdict> {
        self.gate.as_ref().filter(|verdict| match verdict.decision {
            Decision::Allow => true,
            Decision::Ask => self.approved,
            Decision::Deny => false,
        })
    }

    /// The open suspension as people see it.
    pub fn pending(&self) -> Option<PendingCall> {
        let waiting = self.waiting()?;
        Some(PendingCall {
            call_id: self.id.clone(),
            tool: self.tool.clone(),
            executor: self.executor,
            kind: waiting.kind,
            args: self.args.clone(),
            message: waiting.message.clone(),
            intent: self.intent,
            suspension: waiting.suspension,
            suspended_at: waiting.since,
            expires_at: waiting.expires_at,
            requests: self.requests(),
            root_conversation_id: None,
        })
    }

    /// The next suspension of this call, to be journalled.
    pub fn suspend(
        &self,
        kind: SuspensionKind,
        message: String,
        expires_at: Timestamp,
    ) -> Suspension {
        Suspension {
            call_id: self.id.clone(),
            kind,
            suspension: self.suspensions.saturating_add(1),
            expires_at,
            tool: self.tool.clone(),
            executor: self.executor,
            intent: self.intent,
            args: self.args.clone(),
            message,
            requests: self.requests(),
        }
    }

    /// What it asks for, while nobody has answered.
    fn requests(&self) -> Option<Value> {
        let open = self.input.as_ref().filter(|input| input.answer.is_none());
        open.map(|input| input.asks.requests.clone())
    }

    /// The attempt that comes next, of a call that is not running.
    pub fn next_attempt(&self) -> u32 {
        self.input.as_ref().map_or(1, |input| input.attempt.saturating_add(1))
    }
}
