//! A schedule: the requests of clients and the faults, with their times. An operation that does not
//! apply is skipped, so that a schedule without some of its operations is a schedule, too.

use std::rc::Rc;
use std::time::Duration;

use abide_conversation::command::IfBusy;
use abide_conversation::{ConversationId, State, replay};
use abide_registry::membership::LinkState;

use crate::activities;
use crate::actor::{Msg, Outcome, Request};
use crate::random::Random;
use crate::world::{NODES, Promise, World};

/// How long faults happen: more than two leases, so that lapsed nodes also come back.
pub const FAULTS_MS: u64 = 5_000;
const OPERATIONS: u64 = 30;
const CONVERSATIONS: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledOperation {
    pub at: u64,
    pub operation: Operation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sends a message through a node; a message with a key may be repeated.
    Send {
        node: usize,
        to: u64,
        keyed: bool,
        if_busy: IfBusy,
    },
    Approve {
        node: usize,
        to: u64,
    },
    Cancel {
        node: usize,
        to: u64,
    },
    /// Crashes a conversation's actor.
    Crash {
        to: u64,
    },
    Kill {
        node: usize,
        refuses: bool,
    },
    Start {
        node: usize,
    },
    /// Starts another process under the name of a running node.
    Replace {
        node: usize,
    },
    ShutDown {
        node: usize,
        drain_timeout_ms: u64,
    },
    Stop {
        node: usize,
    },
    Continue {
        node: usize,
    },
    Link {
        from: usize,
        to: usize,
        link: LinkState,
        both: bool,
    },
    /// Sets the state of the connection between a node and the store.
    Store {
        node: usize,
        down: bool,
        accident_percent: u64,
    },
    /// Sets the accidents of the network between nodes.
    Network {
        accident_percent: u64,
    },
}

/// The schedule of a seed.
pub fn schedule(seed: u64) -> Vec<ScheduledOperation> {
    let mut random = Random::new(seed, 2);
    // Faults before the first message would test nothing.
    let first =
        ScheduledOperation { at: 100 + random.below(100), operation: random_send(&mut random) };
    let mut operations = vec![first];
    operations.extend((0..OPERATIONS).map(|_| random_operation(&mut random)));
    operations.sort_by_key(|it| it.at);
    operations
}

fn random_operation(random: &mut Random) -> ScheduledOperation {
    let at = 200 + random.below(FAULTS_MS - 200);
    let node = usize::try_from(random.below(NODES as u64)).unwrap();
    let to = random.below(CONVERSATIONS);
    let operation = match random.below(40) {
        0..=10 => random_send(random),
        11..=14 => Operation::Approve { node, to },
        15 => Operation::Cancel { node, to },
        16 => Operation::Crash { to },
        17..=18 => Operation::Kill { node, refuses: random.percent(60) },
        19..=20 => Operation::Start { node },
        21 => Operation::Replace { node },
        22 => Operation::ShutDown { node, drain_timeout_ms: random.below(1_500) },
        23..=24 => Operation::Stop { node },
        25..=27 => Operation::Continue { node },
        28..=31 => {
            let to = (node + 1 + usize::try_from(random.below(2)).unwrap()) % NODES;
            let link = random.pick(&[LinkState::Connected, LinkState::Lost, LinkState::Refused]);
            Operation::Link { from: node, to, link, both: random.percent(60) }
        }
        32..=36 => {
            let accident_percent = random.pick(&[0, 20, 60]);
            Operation::Store { node, down: random.percent(25), accident_percent }
        }
        _ => Operation::Network { accident_percent: random.pick(&[0, 20, 60]) },
    };
    ScheduledOperation { at, operation }
}

fn random_send(random: &mut Random) -> Operation {
    let node = usize::try_from(random.below(NODES as u64)).unwrap();
    let to = random.below(CONVERSATIONS);
    let if_busy = random.pick(&[IfBusy::Queue, IfBusy::Queue, IfBusy::Reject, IfBusy::Interrupt]);
    Operation::Send { node, to, keyed: random.percent(50), if_busy }
}

impl ScheduledOperation {
    pub fn carry_out(self, world: &Rc<World>) {
        world.trace(|| format!("-- {:?}", self.operation));
        match self.operation {
            Operation::Send { node, to, keyed, if_busy } => {
                let number = world.number();
                let text = format!("m{number}");
                let key = keyed.then(|| format!("key:{text}"));
                let request = Request { action: activities::send(number, &text, if_busy), key };
                send(world, node, to, Some(text), request);
            }
            Operation::Approve { node, to } => {
                let state = stored_state(world, &id(to));
                let Some(pending) = state.pending_calls().into_iter().next() else { return };
                let request = Request { action: activities::approve(pending.call_id), key: None };
                send(world, node, to, None, request);
            }
            Operation::Cancel { node, to } => {
                send(world, node, to, None, Request { action: activities::cancel(), key: None });
            }
            Operation::Crash { to } => {
                for node in world.running() {
                    if let Some(live) = node.live(&id(to)) {
                        live.cast(Msg::Kill);
                    }
                }
            }
            Operation::Kill { node, refuses } => {
                if let Some(node) = world.node(node) {
                    world.kill(node.process_id, refuses);
                }
            }
            Operation::Start { node } if world.node(node).is_none() => world.start(node),
            Operation::Replace { node } if world.node(node).is_some() => world.start(node),
            Operation::Start { .. } | Operation::Replace { .. } => {}
            Operation::ShutDown { node, drain_timeout_ms } => {
                if let Some(node) =
                    world.node(node).filter(|node| !node.shutdown_requested.replace(true))
                {
                    let drain_timeout = Duration::from_millis(drain_timeout_ms);
                    node.spawn(node.clone().shut_down(drain_timeout));
                }
            }
            Operation::Stop { node } => {
                if let Some(node) = world.node(node) {
                    world.exec.stop(node.process_id);
                }
            }
            Operation::Continue { node } => {
                if let Some(node) = world.node(node) {
                    world.exec.resume(node.process_id);
                }
            }
            Operation::Link { from, to, link, both } => {
                let (Some(from), Some(to)) = (world.node(from), world.node(to)) else { return };
                world.link(from.process_id, to.process_id, link);
                if both {
                    world.link(to.process_id, from.process_id, link);
                }
            }
            Operation::Store { node, down, accident_percent } => {
                if let Some(node) = world.node(node) {
                    node.store_down.set(down);
                    node.accident_percent.set(accident_percent);
                }
            }
            Operation::Network { accident_percent } => world.accident_percent.set(accident_percent),
        }
    }
}

/// Ends all faults. Dead nodes are started again, except that in three of four schedules one node
/// stays dead, if it is dead and another one runs.
pub fn end_faults(world: &Rc<World>, seed: u64) {
    world.trace(|| "-- calm".to_owned());
    world.accident_percent.set(0);
    let processes: Vec<_> = world.processes.borrow().iter().cloned().collect();
    for node in processes.iter().filter(|node| node.alive.get()) {
        node.store_down.set(false);
        node.accident_percent.set(0);
        world.exec.resume(node.process_id);
        // An operator ends a process whose name another process has taken.
        if world.slots.borrow()[node.slot] != Some(node.process_id) || node.shutdown_requested.get()
        {
            world.kill(node.process_id, true);
        }
    }
    world.mend();
    let lost = usize::try_from(seed % 4)
        .ok()
        .filter(|lost| (0..NODES).any(|slot| slot != *lost && world.node(slot).is_some()));
    for slot in 0..NODES {
        if world.node(slot).is_none() && lost != Some(slot) {
            world.start(slot);
        }
    }
}

pub fn id(number: u64) -> ConversationId {
    ConversationId::new(format!("x{number}"))
}

/// The state that the stored conversation folds to.
pub fn stored_state(world: &World, id: &ConversationId) -> State {
    let stored = world.store.load(id).ok().flatten();
    stored.map(|stored| replay(stored.state, &stored.events)).unwrap_or_default()
}

/// Sends a client's request; it dies with the process that it reached.
fn send(world: &Rc<World>, node: usize, to: u64, text: Option<String>, request: Request) {
    let Some(node) = world.node(node) else { return };
    let sender = node.clone();
    node.spawn(async move {
        let id = id(to);
        let outcome = sender.deliver(&id, request).await;
        sender.world.trace(|| format!("{} answers {text:?} of {id}: {outcome:?}", sender.me()));
        if let Outcome::Done(seq) = outcome {
            sender.world.promises.borrow_mut().push(Promise { id, text, seq });
        }
    });
}
