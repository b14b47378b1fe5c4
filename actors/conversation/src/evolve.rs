//! Folds an event into the state. Never fails: what an event says has happened.

mod child;
mod context;

use crate::child::OwedReport;
use crate::event::{
    AssistantMsg, Created, DecisionPublished, DecisionRemembered, DecisionRevoked, DispatchStarted,
    Event, EventData, Executor, Resolution, Suspension, ToolCall, ToolStarted, TurnEnded,
    TurnStarted, UserMsg,
};
use crate::ids::CallId;
use crate::input::PendingInput;
use crate::message::Usage;
use crate::remembered::Scope;
use crate::state::{Call, CallPhase, OpenSuspension, QueuedTurn, RunningDispatch, State, Turn};

/// The state after one more event.
pub fn evolve(mut state: State, event: &Event) -> State {
    state.seq = event.seq;
    match &event.data {
        EventData::Created(created) => create(&mut state, event, created),
        EventData::UserMsg(said) => queue(&mut state, event, said),
        EventData::TurnStarted(started) => start(&mut state, event, started),
        EventData::AssistantMsg(spoken) => {
            speak(&mut state, spoken);
            context::count(&mut state, event.seq, spoken);
        }
        EventData::ToolCall(call) => plan(&mut state, event, call),
        EventData::Suspension(suspension) => suspend(&mut state, event, suspension),
        EventData::Resolution(resolution) => resolve(&mut state, resolution),
        EventData::ToolStarted(started) => run(&mut state, event, started),
        EventData::InputRequired(required) => with_call(&mut state, &required.call_id, |call| {
            let (attempt, asks) = (required.attempt, required.asks.clone());
            call.input = Some(PendingInput { attempt, asks, answer: None });
        }),
        EventData::ToolResult(result) => finish(&mut state, &result.call_id),
        EventData::RepairRequested(_) => {
            if let Some(turn) = &mut state.turn {
                turn.repaired = true;
            }
        }
        EventData::ContextAdded(added) => {
            if let Some(turn) = &mut state.turn {
                turn.prepared = added.step;
            }
        }
        EventData::MessageRefused(refused) => {
            context::spend(&mut state, refused.usage.unwrap_or_default());
            if let Some(turn) = &mut state.turn {
                (turn.step, turn.refused) = (refused.step, true);
                turn.calls = Vec::new();
            }
        }
        EventData::Forked(_) => fork(&mut state),
        EventData::ContextReduced(reduced) => context::reduce(&mut state, event.seq, reduced),
        EventData::Summarized(summarized) => context::summarize(&mut state, event.seq, summarized),
        EventData::SummaryFailed(_) => state.context.summarize = None,
        EventData::TurnEnded(ended) => end(&mut state, event, ended),
        EventData::DispatchStarted(started) => dispatch(&mut state, started),
        EventData::Dispatch(done) => {
            let run = state.dispatches.remove(&done.call_id);
            let child = run.and_then(|run| run.child);
            state.orphans.extend(child.map(|child| (child, done.call_id.clone())));
        }
        EventData::PhaseChanged(changed) => state.planning = Some(changed.planning),
        EventData::TodosChanged(changed) => state.todos = changed.todos.clone(),
        EventData::WorkspaceOpened(opened) => {
            state.storages.insert(opened.root.clone(), opened.storage.clone());
        }
        EventData::ChildStarted(started) => child::start(&mut state, event, started),
        EventData::ChildEnded(ended) => child::end(&mut state, event, ended),
        EventData::ChildReleased(released) => child::release(&mut state, released),
        EventData::Told(_) => state.due = None,
        EventData::Abandoned {} => {
            state.abandoned = true;
            state.due = None;
        }
        EventData::DecisionRemembered(remembered) => remember(&mut state, event, remembered),
        EventData::DecisionKept(DecisionPublished { decision_id })
        | EventData::DecisionRevoked(DecisionRevoked { decision_id }) => {
            state.decisions.remove(decision_id);
            state.unkept.remove(decision_id);
        }
        EventData::Unknown(_) => state.skipped = true,
    }
    state
}

/// The state that a journal comes to, from an earlier state on.
pub fn replay<'a>(state: State, events: impl IntoIterator<Item = &'a Event>) -> State {
    events.into_iter().fold(state, evolve)
}

fn create(state: &mut State, event: &Event, created: &Created) {
    state.agent = Some(created.agent.clone());
    state.created_at = Some(event.at);
    state.assigns = created.assigns.clone();
    state.metadata = created.metadata.clone();
    state.tools = created.tools.clone();
    state.parent = created.parent.clone();
    state.forking = created.fork.clone();
    state.storages =
        created.parent.as_ref().map(|parent| parent.storages.clone()).unwrap_or_default();
}

/// What was copied is whole. Whom the other conversation serves, asks or trusts is its own affair, and
/// so is what it cost.
fn fork(state: &mut State) {
    state.forking = None;
    state.context.summarize = None;
    state.abandoned = false;
    state.due = None;
    state.decisions.clear();
    state.unkept.clear();
    state.orphans.clear();
    state.usage = Usage::default();
}

fn queue(state: &mut State, event: &Event, said: &UserMsg) {
    let Some(id) = event.turn_id.clone() else { return };
    state.queue.push_back(QueuedTurn {
        id,
        principal: said.principal.clone(),
        assigns: said.assigns.clone(),
        shape: said.schema.clone(),
    });
}

fn start(state: &mut State, event: &Event, started: &TurnStarted) {
    let place = state.queue.iter().position(|queued| Some(&queued.id) == event.turn_id.as_ref());
    let Some(queued) = place.and_then(|place| state.queue.remove(place)) else { return };
    state.turns = state.turns.saturating_add(1);
    state.turn = Some(Turn {
        id: queued.id,
        ordinal: state.turns,
        agent: started.agent.clone(),
        revision: started.revision.clone(),
        max_steps: started.max_steps,
        budget: started.budget,
        usage: Usage::default(),
        summarize_over: started.summarize_over,
        too_long: 0,
        started_at: event.at,
        principal: queued.principal,
        assigns: queued.assigns,
        shape: queued.shape,
        step: 0,
        calls: Vec::new(),
        repaired: false,
        refused: false,
        prepared: 0,
        calls_made: 0,
        late_ids: Vec::new(),
    });
}

fn speak(state: &mut State, spoken: &AssistantMsg) {
    context::spend(state, spoken.usage.unwrap_or_default());
    let Some(turn) = &mut state.turn else { return };
    turn.step = spoken.step;
    let request = |named: &crate::message::CallRef| Call {
        id: named.id.clone(),
        tool: named.name.clone(),
        args: named.args.clone(),
        executor: Executor::Server,
        intent: Default::default(),
        message: String::new(),
        timeout_ms: 0,
        grace_ms: None,
        on_interrupt: Default::default(),
        answer: None,
        principal: turn.principal.clone(),
        suspensions: 0,
        gate: None,
        approved: false,
        input: None,
        child: None,
        lane: None,
        phase: CallPhase::Requested,
    };
    let made = u32::try_from(spoken.message.tool_calls.len()).unwrap_or(u32::MAX);
    turn.calls_made = turn.calls_made.saturating_add(made);
    turn.calls = spoken.message.tool_calls.iter().map(request).collect();
    for call in &turn.calls {
        if state.used_ids.is_full() {
            turn.late_ids.push(call.id.clone());
        }
        state.used_ids.insert(&call.id);
    }
}

fn plan(state: &mut State, event: &Event, planned: &ToolCall) {
    let runs = planned.started && planned.executor == Executor::Server;
    with_call(state, &planned.call_id, |call| {
        call.args = planned.args.clone();
        call.executor = planned.executor;
        call.intent = planned.intent;
        call.message = planned.message.clone();
        call.timeout_ms = planned.timeout_ms;
        call.grace_ms = planned.grace_ms;
        call.on_interrupt = planned.on_interrupt;
        call.answer = planned.answer.clone();
        call.gate = planned.gate.clone();
        // Who decided it once is who answers for it.
        if let Some(by) = planned.gate.as_ref().and_then(|verdict| verdict.by.clone()) {
            call.principal = by;
        }
        call.child = planned.child.clone();
        call.lane = planned.lane.clone();
        if runs {
            call.phase = CallPhase::Running { attempt: 1, since: event.at };
        }
    });
}

fn suspend(state: &mut State, event: &Event, suspension: &Suspension) {
    with_call(state, &suspension.call_id, |call| {
        call.suspensions = suspension.suspension;
        call.phase = CallPhase::Suspended(OpenSuspension {
            kind: suspension.kind,
            suspension: suspension.suspension,
            since: event.at,
            expires_at: suspension.expires_at,
            message: suspension.message.clone(),
        });
    });
}

/// An approved call is on its way; any other resolution is followed by its result.
fn resolve(state: &mut State, resolution: &Resolution) {
    with_call(state, &resolution.call_id, |call| {
        call.phase = CallPhase::Requested;
        if resolution.approved == Some(true) {
            call.phase = CallPhase::Approved;
            call.approved = true;
            call.principal = resolution.by.clone();
        }
        if let (Some(answer), Some(input)) = (&resolution.input, &mut call.input) {
            input.answer = Some(answer.clone());
            call.phase = CallPhase::Approved;
        }
        if let Some(args) = &resolution.args {
            call.args = args.clone();
            call.gate = resolution.gate.clone();
        }
    });
}

/// A call that is over before its child is leaves the child to be stopped.
fn finish(state: &mut State, id: &CallId) {
    let mut orphan = None;
    with_call(state, id, |call| {
        let began = matches!(call.phase, CallPhase::Running { .. } | CallPhase::Delegated { .. });
        orphan = call.child.take().filter(|_| began);
        call.phase = CallPhase::Done;
    });
    state.orphans.extend(orphan.map(|child| (child, id.clone())));
}

/// The first turn of a child is what its parent waits for.
fn end(state: &mut State, event: &Event, ended: &TurnEnded) {
    let Some(turn) = state.turn.take() else { return };
    context::turn_ended(state, event.seq, turn.summarize_over);
    if state.parent.is_some() && turn.ordinal == 1 && !state.abandoned {
        state.due = Some(OwedReport {
            turn: turn.id,
            outcome: ended.outcome,
            reason: ended.reason.clone(),
            steps: turn.step,
            calls: turn.calls_made,
            started_at: turn.started_at,
            ended_at: event.at,
        });
    }
}

/// What has expired makes room.
fn remember(state: &mut State, event: &Event, remembered: &DecisionRemembered) {
    let DecisionRemembered { scope, agent, decision, .. } = remembered;
    let State { decisions, unkept, .. } = state;
    decisions.retain(|id, it| event.at < it.expires_at || unkept.contains_key(id));
    state.decisions.insert(decision.id.clone(), decision.clone());
    if *scope == Scope::Agent {
        state.unkept.insert(decision.id.clone(), agent.clone());
    }
}

fn run(state: &mut State, event: &Event, started: &ToolStarted) {
    with_call(state, &started.call_id, |call| {
        call.phase = CallPhase::Running { attempt: started.attempt, since: event.at };
    });
}

fn dispatch(state: &mut State, started: &DispatchStarted) {
    let run = RunningDispatch {
        tool: started.tool.clone(),
        input: started.input.clone(),
        principal: started.principal.clone(),
        revision: started.revision.clone(),
        attempt: started.attempt,
        on_interrupt: started.on_interrupt,
        requests: started.requests.clone(),
        gate: started.gate.clone(),
        child: started.child.clone(),
        delegated: None,
    };
    state.used_ids.insert(&started.call_id);
    state.dispatches.insert(started.call_id.clone(), run);
}

fn with_call(state: &mut State, id: &CallId, change: impl FnOnce(&mut Call)) {
    let calls = state.turn.iter_mut().flat_map(|turn| &mut turn.calls);
    if let Some(call) = calls.into_iter().find(|call| call.id == *id) {
        change(call);
    }
}
