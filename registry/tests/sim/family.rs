//! Activities that reach beyond their conversation, as the product carries them out: children are
//! spawned, report and are released, a fork copies its prefix, a decision is published.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use abide_actors::journal::StoreError;
use abide_conversation::command::{
    ChildEnded, ChildStarted, CopiedEvents, Create, IfBusy, ToolReturned,
};
use abide_conversation::event::{PlannedChildren, TurnOutcome};
use abide_conversation::message::{ErrorType, Outcome as ToolOutcome};
use abide_conversation::parent::Parent;
use abide_conversation::usage::Usage;
use abide_conversation::{
    Action, AgentName, Attempt, CallId, ConversationId, DecisionId, Rejection, Scoped, Seq, State,
    TurnId,
};
use serde_json::json;

use crate::activities;
use crate::actor::{Ask, Outcome, Request};
use crate::mutation::Mutation;
use crate::node::Node;
use crate::store::Client;

/// The delay before another conversation is tried again doubles between these.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(50);
const MAX_RETRY_DELAY: Duration = Duration::from_millis(1_000);
/// How long a child may take.
const CHILD_TIMEOUT: Duration = Duration::from_millis(3_000);
/// The events that are read at once.
const PAGE_EVENTS: usize = 4;
/// How often a deletion finds new children.
const MAX_DELETION_ATTEMPTS: usize = 8;
/// Why a conversation is not deleted before its children are.
pub const CHILDREN_REMAIN: &str = "the conversation still has children";

/// Delivers a request to the parent or a child, and retries while that is unavailable.
async fn deliver(node: &Rc<Node>, to: &Scoped<ConversationId>, action: Action) -> Outcome {
    let mut delay = MIN_RETRY_DELAY;
    loop {
        match node.deliver(to, Request::from(action.clone())).await {
            done @ (Outcome::Done(_) | Outcome::Rejected(_)) => return done,
            Outcome::Untouched | Outcome::Lost | Outcome::Unavailable(_) => {}
        }
        node.sleep(delay).await;
        delay = (delay * 2).min(MAX_RETRY_DELAY);
    }
}

fn create(id: &Scoped<ConversationId>, call: &CallId) -> Create {
    let parent = Parent {
        conversation_id: id.local(),
        call_id: call.clone(),
        root_conversation_id: id.local(),
        depth: 1,
        ceiling: Default::default(),
        budget: Default::default(),
        storages: Default::default(),
        requesters: Default::default(),
        model: None,
    };
    Create {
        agent: AgentName::new("a"),
        assigns: Default::default(),
        metadata: Default::default(),
        tools: Vec::new(),
        parent: Some(Box::new(parent)),
        fork: None,
        title: None,
        expires_at: None,
        participants: Default::default(),
    }
}

/// The child that a call or a dispatch is for.
pub fn child_of(state: &State, call: &CallId) -> Option<ConversationId> {
    let dispatched = || state.dispatches.get(call)?.child.clone();
    state.call(call).and_then(|call| call.kind.child().cloned()).or_else(dispatched)
}

/// Starts the child of a call, or finds it started.
pub async fn spawn(
    node: &Rc<Node>,
    id: &Scoped<ConversationId>,
    child: &Scoped<ConversationId>,
    call: &CallId,
    attempt: Attempt,
) -> Action {
    let number = node.world.number();
    let Action::Send(mut message) = activities::send(number, &format!("m{number}"), IfBusy::Queue)
    else {
        unreachable!("a message is sent");
    };
    message.create = Some(create(id, call));
    node.world.store.count("children spawned");
    node.world.trace(|| format!("{} spawns {child} for {id}", node.me()));
    let spawned = deliver(node, child, Action::Spawn(message));
    let spawned = node.world.exec.within(node.ms(CHILD_TIMEOUT), spawned).await;
    if let Some(Outcome::Rejected(rejection)) = spawned {
        return Action::ToolReturned(ToolReturned {
            call: call.clone(),
            attempt,
            outcome: failed(&rejection.to_string()),
            ui: None,
            halt: None,
            changes: Vec::new(),
            input_request: None,
            effective_args: None,
        });
    }
    // A child that was too slow may have started or not.
    let within = spawned.map_or(Duration::ZERO, |_| CHILD_TIMEOUT);
    Action::ChildStarted(ChildStarted {
        call: call.clone(),
        attempt,
        within_ms: u64::try_from(within.as_millis()).unwrap(),
        effective_args: None,
    })
}

fn failed(why: &str) -> ToolOutcome {
    ToolOutcome::Err(format!("sub_agent_failed: {why}"), ErrorType::ToolError)
}

/// Reports the outcome of a turn to the parent.
pub async fn notify_parent(
    node: &Rc<Node>,
    id: &Scoped<ConversationId>,
    state: &State,
    turn: &TurnId,
) -> Action {
    if let (Some(due), Some(parent)) = (&state.owed_report, &state.parent) {
        let outcome = match due.outcome {
            TurnOutcome::Completed => ToolOutcome::Ok(json!("done")),
            TurnOutcome::Cancelled | TurnOutcome::Halted | TurnOutcome::Failed => failed("ended"),
        };
        let ended = child_ended(&id.local(), state, outcome, &parent.call_id);
        // A parent that is gone or no longer waits needs no report.
        let _ = deliver(node, &id.sibling(&parent.conversation_id), ended).await;
    }
    Action::ParentNotified(turn.clone())
}

fn child_ended(id: &ConversationId, state: &State, outcome: ToolOutcome, call: &CallId) -> Action {
    Action::ChildEnded(ChildEnded {
        call: call.clone(),
        child: id.clone(),
        outcome,
        ui: None,
        usage: state.usage,
        storages: Default::default(),
    })
}

/// Stops a child that nobody waits for any more, or prevents it from ever starting.
pub async fn release(
    node: &Rc<Node>,
    id: &Scoped<ConversationId>,
    state: &State,
    child: &ConversationId,
) -> Action {
    if let Some(call) = state.orphans.get(child) {
        let _ = deliver(node, &id.sibling(child), Action::Abandon(create(id, call))).await;
    }
    Action::ChildReleased { child: child.clone(), usage: Usage::default() }
}

/// Copies the next page of the prefix that a fork begins with.
pub async fn copy_fork(
    node: &Rc<Node>,
    id: &Scoped<ConversationId>,
    state: &State,
    after: Seq,
) -> Result<Action, StoreError> {
    let Some(fork) = &state.forking else { return Ok(Action::Revive) };
    let left = usize::try_from(fork.at_seq.since(after)).unwrap_or(usize::MAX);
    let original = id.sibling(&fork.conversation_id);
    let events = node.store.events(&original, after, PAGE_EVENTS.min(left)).await?;
    node.world.store.count("pages of forks copied");
    let first = node.store.events(&original, Seq::ZERO, 1).await?;
    let is_there = first.first().is_some_and(|first| Some(first.at) == fork.created_at);
    if after < fork.at_seq && (!is_there || events.is_empty()) {
        return Ok(Action::OriginalGone);
    }
    let last_seq = events.last().map_or(after, |event| event.seq);
    let is_last = last_seq >= fork.at_seq;
    Ok(Action::EventsCopied(CopiedEvents { after, events, is_last }))
}

/// Gives the agent a decision.
pub async fn publish(
    node: &Rc<Node>,
    of: &Scoped<ConversationId>,
    state: &State,
    id: &DecisionId,
) -> Result<Action, StoreError> {
    if let (Some(agent), Some(decision)) = (state.unpublished.get(id), state.decisions.get(id)) {
        node.store.set_decision(&of.sibling(agent), decision).await?;
        node.world.store.count("decisions published");
    }
    Ok(Action::DecisionPublished(id.clone()))
}

impl Node {
    /// Deletes a conversation: its parent learns of it first, then go its children.
    pub async fn delete(self: &Rc<Self>, id: &Scoped<ConversationId>, request: Request) -> Outcome {
        let Ok(state) = stored_state(self, id).await else {
            return Outcome::Unavailable("the store is away");
        };
        let awaited =
            state.owed_report.is_some() || state.turns_started <= 1 && state.turn.is_some();
        if let Some(parent) = state.parent.as_ref().filter(|_| awaited) {
            let ended = child_ended(&id.local(), &state, failed("deleted"), &parent.call_id);
            match Box::pin(self.deliver(&id.sibling(&parent.conversation_id), Request::from(ended)))
                .await
            {
                Outcome::Done(_) | Outcome::Rejected(_) => {}
                failed => return failed,
            }
        }
        if self.world.mutation == Some(Mutation::ChildrenOutliveParents) {
            return self.deliver_in_time(id, request).await;
        }
        for _ in 0..MAX_DELETION_ATTEMPTS {
            match self.deliver_in_time(id, request.clone()).await {
                Outcome::Unavailable(CHILDREN_REMAIN) => {}
                outcome => return outcome,
            }
            if let Err(failed) = Box::pin(self.delete_children(id)).await {
                return failed;
            }
        }
        Outcome::Unavailable("the conversation keeps spawning")
    }

    /// Deletes all children that a conversation ever had, after it has stopped waiting for them.
    async fn delete_children(self: &Rc<Self>, id: &Scoped<ConversationId>) -> Result<(), Outcome> {
        let away = |_: StoreError| Outcome::Unavailable("the store is away");
        let children = planned_children(&self.store, id).await.map_err(away)?;
        if children.is_empty() {
            return Ok(());
        }
        self.deliver_if_able(id, activities::cancel()).await?;
        let state = stored_state(self, id).await.map_err(away)?;
        for (call, child) in state.awaited_children() {
            let ended = child_ended(child, &State::default(), failed("deleted"), call);
            self.deliver_if_able(id, ended).await?;
        }
        self.world.trace(|| format!("{} deletes of {id}: {children:?}", self.me()));
        self.delete_all(&children).await
    }

    async fn deliver_if_able(
        self: &Rc<Self>,
        id: &Scoped<ConversationId>,
        action: Action,
    ) -> Result<(), Outcome> {
        match Box::pin(self.deliver(id, Request::from(action))).await {
            Outcome::Done(_) | Outcome::Rejected(_) => Ok(()),
            failed => Err(failed),
        }
    }

    /// Deletes those of these conversations that exist.
    async fn delete_all(
        self: &Rc<Self>,
        ids: &BTreeSet<Scoped<ConversationId>>,
    ) -> Result<(), Outcome> {
        for id in ids {
            let request = Request { ask: Ask::Delete, key: None };
            match Box::pin(self.deliver(id, request)).await {
                Outcome::Done(_) | Outcome::Rejected(Rejection::NotFound) => {}
                failed => return Err(failed),
            }
        }
        Ok(())
    }
}

/// A conversation as the store has it; empty if there is none.
pub async fn stored_state(
    node: &Rc<Node>,
    id: &Scoped<ConversationId>,
) -> Result<State, StoreError> {
    let stored = node.store.load(id).await?;
    let folded = |it: abide_actors::journal::StoredConversation| {
        abide_conversation::replay(it.state, &it.events)
    };
    Ok(stored.map(folded).unwrap_or_default())
}

/// All children that a conversation ever planned.
pub async fn planned_children(
    store: &Client,
    id: &Scoped<ConversationId>,
) -> Result<BTreeSet<Scoped<ConversationId>>, StoreError> {
    let events = store.events(id, Seq::ZERO, usize::MAX).await?;
    let mut planned = PlannedChildren::default();
    planned.add(&events);
    Ok(planned.into_ids().iter().map(|child| id.sibling(child)).collect())
}
