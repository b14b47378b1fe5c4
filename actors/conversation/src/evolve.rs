//! Folds an event into the state. Never fails: what an event says has happened.

use crate::event::{
    AssistantMsg, Data, DispatchStarted, Event, Executor, Resolution, Suspension, ToolCall,
    ToolStarted, TurnStarted, UserMsg,
};
use crate::ids::CallId;
use crate::state::{Call, Phase, QueuedTurn, RunningDispatch, State, Turn, Waiting};

/// The state after one more event.
pub fn evolve(mut state: State, event: &Event) -> State {
    state.seq = event.seq;
    match &event.data {
        Data::Created(created) => {
            state.agent = Some(created.agent.clone());
            state.created_at = Some(event.at);
            state.assigns = created.assigns.clone();
            state.metadata = created.metadata.clone();
            state.tools = created.tools.clone();
        }
        Data::UserMsg(said) => queue(&mut state, event, said),
        Data::TurnStarted(started) => start(&mut state, event, started),
        Data::AssistantMsg(spoken) => speak(&mut state, spoken),
        Data::ToolCall(call) => plan(&mut state, event, call),
        Data::Suspension(suspension) => suspend(&mut state, event, suspension),
        Data::Resolution(resolution) => resolve(&mut state, resolution),
        Data::ToolStarted(started) => run(&mut state, event, started),
        Data::ToolResult(result) => {
            with_call(&mut state, &result.call_id, |call| call.phase = Phase::Done);
        }
        Data::RepairRequested(_) => {
            if let Some(turn) = &mut state.turn {
                turn.repaired = true;
            }
        }
        Data::TurnEnded(_) => state.turn = None,
        Data::DispatchStarted(started) => dispatch(&mut state, started),
        Data::Dispatch(done) => {
            state.dispatches.remove(&done.call_id);
        }
    }
    state
}

/// The state that a journal comes to, from an earlier state on.
pub fn replay<'a>(state: State, events: impl IntoIterator<Item = &'a Event>) -> State {
    events.into_iter().fold(state, evolve)
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
        started_at: event.at,
        principal: queued.principal,
        assigns: queued.assigns,
        shape: queued.shape,
        step: 0,
        calls: Vec::new(),
        repaired: false,
        late_ids: Vec::new(),
    });
}

fn speak(state: &mut State, spoken: &AssistantMsg) {
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
        phase: Phase::Requested,
    };
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
        if runs {
            call.phase = Phase::Running { attempt: 1, since: event.at };
        }
    });
}

fn suspend(state: &mut State, event: &Event, suspension: &Suspension) {
    with_call(state, &suspension.call_id, |call| {
        call.suspensions = suspension.suspension;
        call.phase = Phase::Suspended(Waiting {
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
        call.phase = Phase::Requested;
        if resolution.approved == Some(true) {
            call.phase = Phase::Approved;
            call.principal = resolution.by.clone();
        }
        if let Some(args) = &resolution.args {
            call.args = args.clone();
        }
    });
}

fn run(state: &mut State, event: &Event, started: &ToolStarted) {
    with_call(state, &started.call_id, |call| {
        call.phase = Phase::Running { attempt: started.attempt, since: event.at };
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
