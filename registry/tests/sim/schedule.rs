//! A schedule: the requests of clients and the faults, with their times. An operation that does not
//! apply is skipped, so that a schedule without some of its operations is a schedule, too.

use std::rc::Rc;
use std::time::Duration;

use abide_conversation::command::IfBusy;
use abide_conversation::{Action, ConversationId, Scoped, Seq, State, replay};
use abide_registry::membership::LinkState;

use crate::activities;
use crate::actor::{Ask, Msg, Outcome, Request};
use crate::erasures;
use crate::imports;
use crate::random::Random;
use crate::reads;
use crate::redis::Fault;
use crate::rollouts;
use crate::server_faults;
use crate::steering;
use crate::store::Written;
use crate::workers;
use crate::world::{NODES, Promise, World};

/// How long faults happen: more than two leases, so that lapsed nodes also come back.
pub const FAULTS_MS: u64 = 5_000;
/// How long tools go on to end their processes in the calm: long enough for five of them.
const POISON_MS: u64 = 3_000;
/// How often an operator looks for quarantined conversations.
const LET_OUT_INTERVAL_MS: u64 = 500;
const OPERATIONS: u64 = 38;
/// One of this many messages is to be delivered later.
const LATER_EVERY: u64 = 5;
const CONVERSATIONS: u64 = 3;
/// How often a client repeats a request, and after which delay.
const MAX_REPEATS: usize = 4;
const REPEAT_DELAY: Duration = Duration::from_millis(150);

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
        remember: bool,
    },
    Cancel {
        node: usize,
        to: u64,
    },
    /// Withdraws the turn that waits, or cancels exactly that turn.
    Withdraw {
        node: usize,
        to: u64,
        cancels: bool,
    },
    /// Goes on from an earlier event.
    Rewind {
        node: usize,
        to: u64,
        percent: u64,
    },
    Delete {
        node: usize,
        to: u64,
        keyed: bool,
    },
    /// Reads a conversation's journal.
    Read {
        node: usize,
        to: u64,
    },
    /// Begins another conversation with a copy of this one.
    Fork {
        node: usize,
        from: u64,
    },
    /// Calls a tool as a user, or has a child answer the call.
    Dispatch {
        node: usize,
        to: u64,
        child: bool,
    },
    /// Erases a person from the conversation of somebody else.
    Erase {
        node: usize,
        to: u64,
        subject: &'static str,
    },
    /// Imports a conversation's journal as another conversation.
    Import {
        node: usize,
        from: u64,
    },
    /// Begins or changes a rollout, or ends it with nothing.
    Rollout {
        node: usize,
        percent: u8,
    },
    /// Chooses the revision of a conversation.
    Choose {
        node: usize,
        to: u64,
    },
    /// Has a program outside carry out a call that waits for one.
    Work {
        node: usize,
        to: u64,
    },
    /// Crashes a conversation's actor.
    Crash {
        to: u64,
    },
    /// From now on, each tool of a conversation ends the process that runs it.
    Poison {
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
    /// A fault of the store's servers.
    Server(Fault),
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
    operations.extend((0..OPERATIONS).map(|_| random_operation(&mut random, seed)));
    operations.sort_by_key(|it| it.at);
    operations
}

fn random_operation(random: &mut Random, seed: u64) -> ScheduledOperation {
    let at = 200 + random.below(FAULTS_MS - 200);
    let node = usize::try_from(random.below(NODES as u64)).unwrap();
    let to = random.below(CONVERSATIONS);
    let kinds = if workers::has_programs(seed) { 70 } else { 66 };
    let operation = match random.below(kinds) {
        0..=10 => random_send(random),
        11..=14 => Operation::Approve { node, to, remember: random.percent(40) },
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
        37..=42 => Operation::Server(server_faults::random_fault(random, seed)),
        43 => Operation::Poison { to },
        47..=48 => Operation::Delete { node, to, keyed: random.percent(50) },
        49..=50 => Operation::Fork { node, from: to },
        51..=53 => Operation::Dispatch { node, to, child: random.percent(50) },
        54..=56 => Operation::Read { node, to },
        57..=58 => Operation::Rewind { node, to, percent: random.below(100) },
        59 => Operation::Withdraw { node, to, cancels: random.percent(50) },
        60..=61 => Operation::Erase { node, to, subject: random.pick(&erasures::SUBJECTS) },
        62..=63 => Operation::Import { node, from: to },
        64 => Operation::Rollout { node, percent: random.pick(&[0, 30, 70, 100]) },
        65 => Operation::Choose { node, to },
        66.. => Operation::Work { node, to },
        _ => Operation::Network { accident_percent: random.pick(&[0, 20, 60]) },
    };
    ScheduledOperation { at, operation }
}

fn random_send(random: &mut Random) -> Operation {
    let node = usize::try_from(random.below(NODES as u64)).unwrap();
    let to = random.below(CONVERSATIONS);
    let policies = [IfBusy::Queue, IfBusy::Queue, IfBusy::Reject, IfBusy::Interrupt, IfBusy::Steer];
    let if_busy = random.pick(&policies);
    Operation::Send { node, to, keyed: random.percent(50), if_busy }
}

impl ScheduledOperation {
    pub fn carry_out(self, world: &Rc<World>) {
        world.trace(|| format!("-- {:?}", self.operation));
        match self.operation {
            Operation::Send { node, to, keyed, if_busy } => {
                let number = world.number();
                let text = format!("m{number} to {}", id(to).tenant());
                let key = keyed.then(|| format!("key:{text}"));
                let message = activities::send(number, &text, if_busy);
                let is_later =
                    number.is_multiple_of(LATER_EVERY) && workers::has_programs(world.seed);
                let later = world.node(node).filter(|_| is_later);
                // What is delivered later has an event of its own first.
                let (action, text) = match later {
                    Some(sender) => (activities::later(message, number, sender.now()), None),
                    None => (message, Some(text)),
                };
                send(world, node, id(to), text, Request { ask: Ask::Act(action), key });
            }
            Operation::Approve { node, to, remember } => approve(world, node, id(to), remember),
            Operation::Cancel { node, to } => {
                send(world, node, id(to), None, Request::from(activities::cancel()));
            }
            Operation::Withdraw { node, to, cancels } => {
                steering::withdraw(world, node, id(to), cancels);
            }
            Operation::Rewind { node, to, percent } => {
                steering::rewind(world, node, id(to), percent);
            }
            Operation::Delete { node, to, keyed } => {
                let key = keyed.then(|| format!("key:delete{}", world.number()));
                send(world, node, id(to), None, Request { ask: Ask::Delete, key });
            }
            Operation::Read { node, to } => reads::begin(world, node, id(to)),
            Operation::Fork { node, from } => {
                let from = id(from);
                let fork = from.sibling(&ConversationId::new(format!("f{}", world.number())));
                let ask = Ask::Fork(from);
                send(world, node, fork, None, Request { ask, key: None });
            }
            Operation::Dispatch { node, to, child } => {
                let request = Request::from(activities::dispatch(world.number(), child));
                send(world, node, id(to), None, request);
            }
            Operation::Erase { node, to, subject } => {
                erasures::begin(world, node, id(to), subject);
            }
            Operation::Import { node, from } => imports::begin(world, node, &id(from)),
            Operation::Rollout { node, percent } => rollouts::change(world, node, percent),
            Operation::Choose { node, to } => rollouts::choose(world, node, id(to)),
            Operation::Work { node, to } => workers::begin(world, node, id(to)),
            Operation::Crash { to } => crash(world, &id(to)),
            Operation::Poison { to } => drop(world.poison.borrow_mut().insert(id(to))),
            Operation::Kill { node, refuses } => {
                if let Some(node) = world.node(node) {
                    world.kill(node.process_id, refuses);
                }
            }
            Operation::Start { node } if world.node(node).is_none() => world.start(node),
            Operation::Replace { node } if world.node(node).is_some() => world.start(node),
            Operation::Start { .. } | Operation::Replace { .. } => {}
            Operation::ShutDown { node, drain_timeout_ms } => {
                shut_down(world, node, Duration::from_millis(drain_timeout_ms));
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
            Operation::Server(fault) => server_faults::begin(world, fault),
            Operation::Network { accident_percent } => world.accident_percent.set(accident_percent),
        }
    }
}

/// Approves the first call of a conversation that waits, if there is one.
fn approve(world: &Rc<World>, node: usize, id: Scoped<ConversationId>, remember: bool) {
    let state = stored_state(world, &id);
    let Some(pending) = state.pending_calls().into_iter().next() else { return };
    let number = remember.then(|| world.number());
    let request = Request::from(activities::approve(pending.call_id, number));
    send(world, node, id, None, request);
}

/// Kills the actors of a conversation, wherever they live.
fn crash(world: &Rc<World>, id: &Scoped<ConversationId>) {
    for node in world.running() {
        if let Some(live) = node.live(id) {
            live.cast(Msg::Kill);
        }
    }
}

/// Shuts a node down, unless it is down or on the way.
fn shut_down(world: &Rc<World>, node: usize, drain_timeout: Duration) {
    let running = world.node(node).filter(|node| !node.shutdown_requested.replace(true));
    if let Some(node) = running {
        node.spawn(node.clone().shut_down(drain_timeout));
    }
}

/// Ends all faults. Dead nodes are started again, except that in three of four schedules one node
/// stays dead, if it is dead and another one runs.
pub fn end_faults(world: &Rc<World>, seed: u64) {
    world.trace(|| "-- calm".to_owned());
    let operator = world.clone();
    world.exec.spawn(None, async move { let_out(&operator).await });
    world.accident_percent.set(0);
    world.store.group.borrow_mut().mend();
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

/// Mends, after a while, what ended processes, and lets out what was quarantined because of it.
async fn let_out(world: &World) {
    world.exec.sleep(POISON_MS).await;
    world.poison.borrow_mut().clear();
    loop {
        for node in world.running() {
            node.spawn({
                let node = node.clone();
                async move { node.retry_quarantined().await }
            });
        }
        world.exec.sleep(LET_OUT_INTERVAL_MS).await;
    }
}

/// The conversations of this number: `x0` of two tenants, then `x1` of both, and so on.
pub fn id(number: u64) -> Scoped<ConversationId> {
    let tenant = ["", "acme/"][usize::from(number % 2 == 1)];
    Scoped::parse(&format!("{tenant}x{}", number / 2)).unwrap()
}

/// The state that the stored conversation folds to.
pub fn stored_state(world: &World, id: &Scoped<ConversationId>) -> State {
    let stored = world.store.load(id).ok().flatten();
    stored.map(|stored| replay(stored.state, &stored.events)).unwrap_or_default()
}

/// Sends a client's request; it dies with the process that it reached.
pub fn send(
    world: &Rc<World>,
    node: usize,
    id: Scoped<ConversationId>,
    text: Option<String>,
    request: Request,
) {
    let Some(node) = world.node(node) else { return };
    let (sender, sent_at) = (node.clone(), world.exec.now());
    let deleted = matches!(request.ask, Ask::Delete);
    world.store.count(match &request.ask {
        Ask::Act(Action::Send(_)) => "messages",
        Ask::Act(Action::Schedule(_)) => "scheduled messages",
        Ask::Act(Action::Dispatch(_)) => "dispatches",
        Ask::Act(Action::External(_)) => "completions",
        Ask::Act(_) => "approvals and cancels",
        Ask::Delete => "deletions",
        Ask::Fork(_) => "forks",
        Ask::Erase(_) => "erasures",
    });
    node.spawn(async move {
        let mut outcome = sender.deliver(&id, request.clone()).await;
        for _ in 0..MAX_REPEATS {
            // A client that sent a key repeats what got no answer.
            let unanswered = matches!(outcome, Outcome::Lost | Outcome::Unavailable(_));
            if request.key.is_none() || !unanswered {
                break;
            }
            sender.sleep(REPEAT_DELAY).await;
            sender.world.store.count("requests repeated");
            outcome = sender.deliver(&id, request.clone()).await;
        }
        sender.world.trace(|| format!("{} answers {text:?} of {id}: {outcome:?}", sender.me()));
        if let Outcome::Done(seq) = outcome {
            let world = &sender.world;
            let durable = world.store.is_durable(&id, Written::Event(seq), world.exec.now());
            if seq > Seq::ZERO
                && world.store.group.borrow().is_replicated()
                && durable != Some(true)
            {
                world.store.report_violation(format!(
                    "{id}: event {seq} is answered before a replica has it"
                ));
                return;
            }
            sender.world.promises.borrow_mut().push(Promise { id, text, seq, deleted, sent_at });
        }
    });
}
