//! Folds an event into the state. Never fails, because the event has happened.

mod child;
mod context;
mod external;
mod steering;
mod waiting;

use crate::elicitation::PendingInput;
use crate::event::{
    AssistantMsg, CallKind, Created, DecisionPublished, DecisionRemembered, DecisionRevoked,
    DispatchFinished, DispatchStarted, Doubt, Event, EventData, Executor, InputRequired,
    MessageRefused, Resolution, Suspension, ToolAttemptFailed, ToolCall, ToolStarted, TurnEnded,
    TurnStarted, Updated, UserMsg, Voted,
};
use crate::fork::Fork;
use crate::identity::Participants;
use crate::ids::CallId;
use crate::key_value;
use crate::message::CallRef;
use crate::numbers::{Attempt, Step};
use crate::remembered_decision::Scope;
use crate::state::{
    Call, CallPhase, OpenApproval, OpenSuspension, OwedReport, QueuedTurn, RunningDispatch,
    ScheduledMessages, State, Steering, Turn,
};
use crate::usage::Usage;

/// Folds one more event into the state, in place.
pub fn evolve(state: &mut State, event: &Event) {
    state.seq = event.seq;
    match &event.data {
        EventData::Created(created) => create(state, event, created),
        EventData::UserMsg(message) => queue_turn(state, event, message),
        EventData::TurnStarted(started) => start_turn(state, event, started),
        EventData::AssistantMsg(message) => {
            add_assistant_message(state, message);
            context::count_tokens(state, event.seq, message);
        }
        EventData::ToolCall(call) => plan_call(state, event, call),
        EventData::Suspension(suspension) => suspend_call(state, event, suspension),
        EventData::Voted(voted) => count_vote(state, voted),
        EventData::Resolution(resolution) => resolve_call(state, resolution),
        EventData::ToolStarted(started) => run_call(state, event, started),
        EventData::InputRequired(required) => require_input(state, required),
        EventData::ToolResult(result) => finish_call(state, &result.call_id),
        EventData::RepairRequested(_) => {
            if let Some(turn) = &mut state.turn {
                turn.repair_requested = true;
            }
        }
        EventData::ContextAdded(added) => {
            if let Some(turn) = &mut state.turn {
                turn.hooks_done_for = added.step;
            }
        }
        EventData::MessageRefused(refused) => refuse_message(state, refused),
        EventData::Forked(fork) => finish_fork(state, event, fork),
        EventData::ContextReduced(reduced) => context::reduce(state, event.seq, reduced),
        EventData::Summarized(summarized) => context::summarize(state, event.seq, summarized),
        EventData::SummaryFailed(_) => state.context.summarize_upto = None,
        EventData::TurnEnded(ended) => end_turn(state, event, ended),
        EventData::DispatchStarted(started) => start_dispatch(state, started),
        EventData::DispatchFinished(finished) => finish_dispatch(state, finished),
        EventData::PhaseChanged(changed) => state.planning_override = Some(changed.planning),
        EventData::TodosChanged(changed) => state.todos = changed.todos.clone(),
        EventData::WorkspaceOpened(opened) => {
            state.storages.insert(opened.root.clone(), opened.storage.clone());
        }
        EventData::ChildStarted(started) => child::start(state, event, started),
        EventData::ChildEnded(ended) => child::end(state, event, ended),
        EventData::ChildReleased(released) => child::release(state, released),
        EventData::ParentNotified(_) => state.owed_report = None,
        EventData::Abandoned {} => {
            state.abandoned = true;
            state.owed_report = None;
        }
        EventData::DecisionRemembered(remembered) => remember_decision(state, event, remembered),
        EventData::DecisionPublished(DecisionPublished { decision_id })
        | EventData::DecisionRevoked(DecisionRevoked { decision_id }) => {
            state.decisions.remove(decision_id);
            state.unpublished.remove(decision_id);
        }
        EventData::Updated(updated) => update(state, updated),
        EventData::Operated(_) => {}
        EventData::ToolQueued(queued) => external::queue(state, event, queued),
        EventData::ToolLeased(leased) => external::lease(state, leased),
        EventData::CallbackAwaited(awaited) => external::await_callback(state, event, awaited),
        EventData::MessageScheduled(scheduled) => state.scheduled.add(scheduled),
        EventData::ScheduleEnded(ended) => state.scheduled.end(&ended.scheduled_id),
        EventData::SuspensionExpiring(expiring) => waiting::remind(state, event, expiring),
        EventData::SuspensionExtended(extended) => waiting::extend(state, event, extended),
        EventData::SuspensionEscalated(escalated) => waiting::escalate(state, escalated),
        EventData::ToolAttemptFailed(failed) => await_retry(state, failed),
        EventData::StateChanged(changed) => {
            key_value::merge(&mut state.key_values, &changed.changes)
        }
        EventData::TurnWithdrawn(_) => steering::withdraw(state, event),
        EventData::Steered(steered) => steering::steer(state, event, steered),
        EventData::Rewound(rewound) => steering::rewind(state, event, rewound),
        EventData::Unknown(_) => state.has_unknown_events = true,
    }
}

/// The state after these events, beginning with an earlier state.
pub fn replay<'a>(mut state: State, events: impl IntoIterator<Item = &'a Event>) -> State {
    events.into_iter().for_each(|event| evolve(&mut state, event));
    state
}

fn create(state: &mut State, event: &Event, created: &Created) {
    state.agent = Some(created.agent.clone());
    state.created_at = Some(event.at);
    state.active_at = Some(event.at);
    state.assigns = created.assigns.clone();
    state.metadata = created.metadata.clone();
    state.title = created.title.clone();
    state.expires_at = created.expires_at;
    state.participants =
        Participants { owner: created.owner.clone(), members: created.members.clone() };
    state.tools = created.tools.clone();
    state.parent = created.parent.clone();
    state.forking = created.fork.clone();
    state.storages =
        created.parent.as_ref().map(|parent| parent.storages.clone()).unwrap_or_default();
}

fn update(state: &mut State, updated: &Updated) {
    if let Some(metadata) = &updated.metadata {
        state.metadata = metadata.clone();
    }
    if let Some(title) = &updated.title {
        state.title = title.clone();
    }
    // The members of a fork are those of the original now, whenever the prefix ends. The end of the
    // original is not the end of a fork.
    if state.forking.is_some() {
        return;
    }
    if let Some(members) = &updated.members {
        state.participants.members = members.clone();
    }
    if let Some(expires_at) = updated.expires_at {
        state.expires_at = expires_at;
    }
}

/// The prefix is complete. The original's parent, children, remembered decisions and usage stay
/// with the original.
fn finish_fork(state: &mut State, event: &Event, fork: &Fork) {
    // The prefix may be that of a fork, which was completed long ago.
    if state.forking.as_ref().is_some_and(|own| !own.is_ended_by(event.seq, fork)) {
        return;
    }
    state.forking = None;
    state.active_at = Some(event.at);
    state.context.summarize_upto = None;
    state.abandoned = false;
    state.owed_report = None;
    state.decisions.clear();
    state.unpublished.clear();
    state.orphans.clear();
    state.scheduled = ScheduledMessages::default();
    state.usage = Usage::default();
}

fn queue_turn(state: &mut State, event: &Event, message: &UserMsg) {
    if let Some(scheduled) = &message.scheduled_id {
        state.scheduled.deliver(scheduled);
    }
    let Some(id) = event.turn_id.clone() else { return };
    state.queue.push_back(QueuedTurn {
        id,
        message_seq: Some(event.seq),
        principal: message.principal.clone(),
        identity: message.identity.clone(),
        assigns: message.assigns.clone(),
        answer_format: message.answer_format.clone(),
        tools: message.tools.clone(),
    });
}

fn start_turn(state: &mut State, event: &Event, started: &TurnStarted) {
    let index = state.queue.iter().position(|queued| Some(&queued.id) == event.turn_id.as_ref());
    let Some(queued) = index.and_then(|index| state.queue.remove(index)) else { return };
    state.turns_started = state.turns_started.saturating_add(1);
    state.turn = Some(Turn {
        id: queued.id,
        ordinal: state.turns_started,
        agent: started.agent.clone(),
        revision: started.revision.clone(),
        max_steps: started.max_steps,
        budget: started.budget,
        usage: Usage::default(),
        summarize_over: started.summarize_over,
        overflowed_step: Step::ZERO,
        started_at: event.at,
        principal: queued.principal,
        identity: queued.identity,
        assigns: queued.assigns,
        answer_format: queued.answer_format,
        tools: queued.tools,
        step: Step::ZERO,
        calls: Vec::new(),
        repair_requested: false,
        message_refused: false,
        hooks_done_for: Step::ZERO,
        calls_made: 0,
        overflow_ids: Vec::new(),
        steering: Steering::default(),
    });
}

fn add_assistant_message(state: &mut State, message: &AssistantMsg) {
    context::add_usage(state, message.usage.unwrap_or_default());
    let Some(turn) = &mut state.turn else { return };
    turn.step = message.step;
    let requested = |named: &CallRef| Call {
        id: named.id.clone(),
        tool: named.name.clone(),
        args: named.args.clone(),
        kind: CallKind::from(Executor::Server),
        intent: Default::default(),
        message: String::new(),
        timeout_ms: 0,
        principal: turn.principal.clone(),
        suspensions: 0,
        gate: None,
        approved: false,
        approvals: Vec::new(),
        pending_input: None,
        answer_schema: None,
        waiting_rules: None,
        failed_attempts: 0,
        phase: CallPhase::Requested,
    };
    let made = u32::try_from(message.message.tool_calls.len()).unwrap_or(u32::MAX);
    turn.calls_made = turn.calls_made.saturating_add(made);
    turn.calls = message.message.tool_calls.iter().map(requested).collect();
    for call in &turn.calls {
        if state.used_ids.is_full() {
            turn.overflow_ids.push(call.id.clone());
        }
        state.used_ids.insert(&call.id);
    }
}

fn refuse_message(state: &mut State, refused: &MessageRefused) {
    context::add_usage(state, refused.usage.unwrap_or_default());
    let Some(turn) = &mut state.turn else { return };
    turn.step = refused.step;
    turn.message_refused = true;
    turn.calls = Vec::new();
}

fn plan_call(state: &mut State, event: &Event, planned: &ToolCall) {
    let is_running = planned.started && planned.kind.executor() == Executor::Server;
    with_call(state, &planned.call_id, |call| {
        call.args = planned.args.clone();
        call.kind = planned.kind.clone();
        call.intent = planned.intent;
        call.message = planned.message.clone();
        call.timeout_ms = planned.timeout_ms;
        call.gate = planned.gate.clone();
        call.answer_schema = planned.answer_schema.clone();
        call.waiting_rules = planned.waiting_rules.clone();
        // A remembered decision makes the person who decided responsible for the call.
        if let Some(by) = planned.gate.as_ref().and_then(|verdict| verdict.by.clone()) {
            call.principal = by;
        }
        let voters = planned.gate.as_ref().map(|verdict| verdict.approvals.clone());
        call.approvals = voters.unwrap_or_default();
        if is_running {
            call.phase = CallPhase::Running { attempt: Attempt::FIRST, since: event.at };
        }
    });
}

fn suspend_call(state: &mut State, event: &Event, suspension: &Suspension) {
    state.active_at = Some(event.at);
    with_call(state, &suspension.call_id, |call| {
        call.suspensions = suspension.suspension;
        call.phase = CallPhase::Suspended(OpenSuspension {
            kind: suspension.kind,
            suspension: suspension.suspension,
            since: event.at,
            expires_at: suspension.expires_at,
            message: suspension.message.clone(),
            approval: suspension.policy.clone().map(|policy| Box::new(OpenApproval::new(policy))),
            answer_schema: suspension.answer_schema.clone(),
            reminded_until: None,
            escalations: 0,
            doubt: suspension.doubt.clone(),
        });
    });
}

fn count_vote(state: &mut State, voted: &Voted) {
    with_call(state, &voted.call_id, |call| {
        if let CallPhase::Suspended(OpenSuspension { approval: Some(approval), .. }) =
            &mut call.phase
        {
            approval.count(voted);
        }
    });
}

/// An approved or answered call goes on to its executor. Any other resolution is followed by the
/// result.
fn resolve_call(state: &mut State, resolution: &Resolution) {
    with_call(state, &resolution.call_id, |call| {
        let doubt = call.open_suspension().and_then(|open| Some((open.doubt.clone()?, open.since)));
        call.phase = CallPhase::Requested;
        if resolution.approved == Some(true) {
            call.phase = CallPhase::Approved;
            call.approved = true;
            call.approvals = resolution.approvals.clone();
            call.principal = resolution.by.clone();
        }
        if let Some((Doubt { attempt, started_at, .. }, retry_at)) =
            doubt.filter(|_| resolution.retry)
        {
            let error = String::new();
            call.phase = CallPhase::AwaitingRetry { attempt, since: started_at, retry_at, error };
        }
        if let (Some(answer), Some(input)) = (&resolution.input, &mut call.pending_input) {
            input.answer = Some(answer.clone());
            call.phase = CallPhase::Approved;
        }
        if let Some(args) = &resolution.args {
            call.args = args.clone();
            call.gate = resolution.verdict.clone();
        }
    });
}

fn require_input(state: &mut State, required: &InputRequired) {
    with_call(state, &required.call_id, |call| {
        call.pending_input = Some(PendingInput {
            attempt: required.attempt,
            request: required.request.clone(),
            answer: None,
        });
    });
}

/// A call that ends before its child leaves an orphan, which must be stopped.
fn finish_call(state: &mut State, id: &CallId) {
    let mut orphan = None;
    with_call(state, id, |call| {
        let has_begun =
            matches!(call.phase, CallPhase::Running { .. } | CallPhase::Delegated { .. });
        orphan = call.kind.take_child().filter(|_| has_begun);
        call.phase = CallPhase::Done;
    });
    state.orphans.extend(orphan.map(|child| (child, id.clone())));
}

/// A child owes its parent the report of its first turn.
fn end_turn(state: &mut State, event: &Event, ended: &TurnEnded) {
    state.active_at = Some(event.at);
    let Some(turn) = state.turn.take() else { return };
    context::turn_ended(state, event.seq, turn.summarize_over);
    if state.parent.is_some() && turn.ordinal == 1 && !state.abandoned {
        state.owed_report = Some(OwedReport {
            turn: turn.id,
            outcome: ended.outcome,
            reason: ended.reason.clone(),
            steps: turn.step.get(),
            calls: turn.calls_made,
            started_at: turn.started_at,
            ended_at: event.at,
        });
    }
}

/// Drops expired decisions, which bounds the memory, and adds the new one.
fn remember_decision(state: &mut State, event: &Event, remembered: &DecisionRemembered) {
    let DecisionRemembered { scope, agent, decision, .. } = remembered;
    let State { decisions, unpublished: unkept, .. } = state;
    decisions.retain(|id, it| event.at < it.expires_at || unkept.contains_key(id));
    state.decisions.insert(decision.id.clone(), decision.clone());
    if *scope == Scope::Agent {
        state.unpublished.insert(decision.id.clone(), agent.clone());
    }
}

fn run_call(state: &mut State, event: &Event, started: &ToolStarted) {
    with_call(state, &started.call_id, |call| {
        call.phase = CallPhase::Running { attempt: started.attempt, since: event.at };
    });
}

/// Nothing runs for the call until its next attempt.
fn await_retry(state: &mut State, failed: &ToolAttemptFailed) {
    if let Some(run) = state.dispatches.get_mut(&failed.call_id) {
        run.retry_at = Some(failed.retry_at);
        run.failed_attempts = run.failed_attempts.saturating_add(1);
    }
    with_call(state, &failed.call_id, |call| {
        let CallPhase::Running { attempt, since } = call.phase else { return };
        let (retry_at, error) = (failed.retry_at, failed.error.clone());
        call.phase = CallPhase::AwaitingRetry { attempt, since, retry_at, error };
        call.failed_attempts = call.failed_attempts.saturating_add(1);
    });
}

fn start_dispatch(state: &mut State, started: &DispatchStarted) {
    let before = state.dispatches.get(&started.call_id);
    let failed_attempts = before.map_or(0, |run| run.failed_attempts);
    let run = RunningDispatch {
        tool: started.tool.clone(),
        input: started.input.clone(),
        principal: started.principal.clone(),
        identity: started.identity.clone(),
        revision: started.revision.clone(),
        attempt: started.attempt,
        on_interrupt: started.on_interrupt,
        requests: started.requests.clone(),
        verdict: started.verdict.clone(),
        child: started.child.clone(),
        delegated_until: None,
        retry_at: None,
        failed_attempts,
    };
    state.used_ids.insert(&started.call_id);
    state.dispatches.insert(started.call_id.clone(), run);
}

/// A dispatch that ends before its child leaves an orphan, as a call does.
fn finish_dispatch(state: &mut State, finished: &DispatchFinished) {
    let run = state.dispatches.remove(&finished.call_id);
    let child = run.and_then(|run| run.child);
    state.orphans.extend(child.map(|child| (child, finished.call_id.clone())));
}

fn with_call(state: &mut State, id: &CallId, change: impl FnOnce(&mut Call)) {
    let calls = state.turn.iter_mut().flat_map(|turn| &mut turn.calls);
    if let Some(call) = calls.into_iter().find(|call| call.id == *id) {
        change(call);
    }
}
