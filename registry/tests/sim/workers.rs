//! Programs outside that carry calls out: workers, which lease them, and tools, which call back.
//! They die, work for longer than their lease, and say twice what they have done.

use std::rc::Rc;

use abide_conversation::command::{
    AwaitCallback, CompleteCall, ExternalAction, LeaseCall, PlannedCall, Proof, QueueCall,
};
use abide_conversation::event::{Event, EventData, OnInterrupt};
use abide_conversation::ids::{LeaseId, QueueName};
use abide_conversation::message::Outcome as CallOutcome;
use abide_conversation::state::ExternalRun;
use abide_conversation::{Action, Attempt, CallId, ConversationId, Scoped, State, Timestamp};
use serde_json::json;

use crate::actor::{Ask, Outcome, Request};
use crate::schedule::{self, send, stored_state};
use crate::world::{NODES, World};

/// The tool whose calls workers carry out.
const QUEUED: &str = "print";
/// The tool that calls back.
const CALLS_BACK: &str = "ship";
const QUEUE: &str = "printers";
const LEASE_MS: u64 = 300;
/// How long a program works at most: for a third of them longer than their lease.
const WORK_MS: u64 = 450;
/// One of this many programs dies at work.
const DIES_EVERY: u64 = 5;
/// One of this many programs says twice what it has done.
const REPEATS_EVERY: u64 = 3;

/// Whether the schedule of this seed has calls that are carried out outside, and messages for later.
/// Their alarms wake conversations again and again, which would hide what nobody else wakes.
pub fn has_programs(seed: u64) -> bool {
    matches!(seed % 5, 2 | 3)
}

/// Has programs outside carry out what tools of the nodes would.
pub fn hand_over(calls: &mut [PlannedCall]) {
    if let [first, second] = calls {
        for (call, tool) in [(first, CALLS_BACK), (second, QUEUED)] {
            if call.tool == "once" {
                tool.clone_into(&mut call.tool);
            }
        }
    }
}

/// What a node does about an attempt that it does not carry out; `None` if it carries it out.
pub fn hand_out(state: &State, call: &CallId, attempt: Attempt) -> Option<Action> {
    let (call, effective_args) = (call.clone(), None);
    let action = match state.call(&call)?.tool.as_str() {
        QUEUED => ExternalAction::Queue(QueueCall {
            call,
            attempt,
            queue: QueueName::new(QUEUE),
            on_interrupt: OnInterrupt::Redispatch,
            effective_args,
        }),
        CALLS_BACK => {
            ExternalAction::AwaitCallback(AwaitCallback { call, attempt, effective_args })
        }
        _ => return None,
    };
    Some(Action::External(action))
}

/// Has a program carry out the first call of a conversation that waits for one, if there is one.
pub fn begin(world: &Rc<World>, slot: usize, id: Scoped<ConversationId>) {
    let state = stored_state(world, &id);
    let Some(turn) = &state.turn else { return };
    let waits = |run: &ExternalRun| run.lease().is_none();
    let mut calls = turn.calls.iter().filter_map(|call| Some((call, call.external_run()?)));
    let Some((call, run)) = calls.find(|(_, run)| waits(run)) else { return };
    let (call, number) = (call.id.clone(), world.number());
    match run.queue() {
        Some(queue) => {
            let lease = LeaseCall {
                call,
                attempt: run.attempt,
                queue: queue.clone(),
                lease: LeaseId::new(format!("lease{number}")),
                worker: format!("worker{number}"),
                for_ms: LEASE_MS,
            };
            take(world, slot, id, lease, number);
        }
        None => {
            let proof = Proof::Callback { turn: turn.id.clone(), attempt: run.attempt };
            world.store.count("callbacks");
            work(world, slot, id, call, proof, number);
        }
    }
}

/// Leases a call, and works if the worker got it.
fn take(world: &Rc<World>, slot: usize, id: Scoped<ConversationId>, lease: LeaseCall, number: u64) {
    let Some(node) = world.node(slot) else { return };
    let (call, proof) = (lease.call.clone(), Proof::Lease(lease.lease.clone()));
    let request = Request::from(Action::External(ExternalAction::Lease(lease)));
    node.clone().spawn(async move {
        if let Outcome::Done(_) = node.deliver(&id, request).await {
            node.world.store.count("leases");
            work(&node.world, slot, id, call, proof, number);
        }
    });
}

/// Works, in no process of the cluster, and then says what it has done, through any node.
fn work(
    world: &Rc<World>,
    slot: usize,
    id: Scoped<ConversationId>,
    call: CallId,
    proof: Proof,
    number: u64,
) {
    if number.is_multiple_of(DIES_EVERY) {
        return;
    }
    let here = world.clone();
    world.exec.spawn(None, async move {
        here.exec.sleep(number * 61 % WORK_MS).await;
        let text = format!("done{number} to {}", id.tenant());
        let complete = CompleteCall {
            call,
            proof,
            outcome: CallOutcome::Ok(json!(text)),
            ui: None,
            halt: None,
        };
        let action = Action::External(ExternalAction::Complete(Box::new(complete)));
        let says = 1 + usize::from(number.is_multiple_of(REPEATS_EVERY));
        for nth in 0..says {
            let ask = Ask::Act(action.clone());
            let request = Request { ask, key: None };
            send(&here, (slot + nth) % NODES, id.clone(), Some(text.clone()), request);
        }
    });
}

/// The first lease of a call that begins before another one of it has run out.
pub fn overlapping_leases(events: &[Event]) -> Option<String> {
    let mut current: Vec<(&CallId, &LeaseId, Timestamp)> = Vec::new();
    for event in events {
        let EventData::ToolLeased(leased) = &event.data else { continue };
        let same_call = |(call, ..): &(&CallId, &LeaseId, Timestamp)| *call == &leased.call_id;
        if let Some((_, lease, until)) = current.iter().find(|it| same_call(it))
            && **lease != leased.lease
            && event.at < *until
        {
            return Some(format!("{}: {lease} is another worker's until {until}", leased.call_id));
        }
        current.retain(|it| !same_call(it));
        current.push((&leased.call_id, &leased.lease, leased.until));
    }
    None
}

/// What the index of the queues still has of a settled world.
pub fn left_in_queues(world: &World) -> Option<String> {
    let tenants = [0, 1].map(|number| schedule::id(number).tenant());
    let left = tenants.iter().find_map(|tenant| world.store.queues(tenant).pop())?;
    Some(format!("the index has {} of queue {}, and none waits", left.depth, left.queue))
}
