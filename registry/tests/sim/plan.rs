//! A schedule: what clients and misfortune do, and when. What does not apply is passed over, so
//! that a schedule stays one when steps are taken out of it.

use std::rc::Rc;
use std::time::Duration;

use abide_conversation::command::IfBusy;
use abide_conversation::{ConversationId, State, replay};
use abide_registry::membership::LinkState;

use crate::actor::{Msg, Outcome, Request};
use crate::chance::Chance;
use crate::script;
use crate::world::{NODES, Promise, World};

/// How long things go wrong: more than two leases, so that what lapses also comes back.
pub const ROUGH_MS: u64 = 5_000;
const STEPS: u64 = 30;
const CONVERSATIONS: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub at: u64,
    pub what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A message by way of a node; with a key, it may be sent again.
    Say {
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
    /// Another process by the name of one that runs.
    Replace {
        node: usize,
    },
    Retire {
        node: usize,
        patience_ms: u64,
    },
    Stop {
        node: usize,
    },
    GoOn {
        node: usize,
    },
    Link {
        from: usize,
        to: usize,
        link: LinkState,
        both: bool,
    },
    /// The way from a node to the store.
    Store {
        node: usize,
        away: bool,
        rough: u64,
    },
    /// The network between nodes.
    Net {
        rough: u64,
    },
}

/// The schedule of a seed.
pub fn schedule(seed: u64) -> Vec<Step> {
    let mut chance = Chance::new(seed, 2);
    // What goes wrong before anything is begun shows nothing.
    let first = Step { at: 100 + chance.below(100), what: say(&mut chance) };
    let mut steps = vec![first];
    steps.extend((0..STEPS).map(|_| step(&mut chance)));
    steps.sort_by_key(|step| step.at);
    steps
}

fn step(chance: &mut Chance) -> Step {
    let at = 200 + chance.below(ROUGH_MS - 200);
    let node = usize::try_from(chance.below(NODES as u64)).unwrap();
    let to = chance.below(CONVERSATIONS);
    let what = match chance.below(40) {
        0..=10 => say(chance),
        11..=14 => What::Approve { node, to },
        15 => What::Cancel { node, to },
        16 => What::Crash { to },
        17..=18 => What::Kill { node, refuses: chance.percent(60) },
        19..=20 => What::Start { node },
        21 => What::Replace { node },
        22 => What::Retire { node, patience_ms: chance.below(1_500) },
        23..=24 => What::Stop { node },
        25..=27 => What::GoOn { node },
        28..=31 => {
            let to = (node + 1 + usize::try_from(chance.below(2)).unwrap()) % NODES;
            let link = chance.of(&[LinkState::Connected, LinkState::Lost, LinkState::Refused]);
            What::Link { from: node, to, link, both: chance.percent(60) }
        }
        32..=36 => {
            let rough = chance.of(&[0, 20, 60]);
            What::Store { node, away: chance.percent(25), rough }
        }
        _ => What::Net { rough: chance.of(&[0, 20, 60]) },
    };
    Step { at, what }
}

fn say(chance: &mut Chance) -> What {
    let node = usize::try_from(chance.below(NODES as u64)).unwrap();
    let to = chance.below(CONVERSATIONS);
    let if_busy = chance.of(&[IfBusy::Queue, IfBusy::Queue, IfBusy::Reject, IfBusy::Interrupt]);
    What::Say { node, to, keyed: chance.percent(50), if_busy }
}

impl Step {
    pub fn carry_out(self, world: &Rc<World>) {
        world.tell(|| format!("-- {:?}", self.what));
        match self.what {
            What::Say { node, to, keyed, if_busy } => {
                let number = world.number();
                let text = format!("m{number}");
                let key = keyed.then(|| format!("key:{text}"));
                let request = Request { action: script::say(number, &text, if_busy), key };
                send(world, node, to, Some(text), request);
            }
            What::Approve { node, to } => {
                let state = stored(world, &id(to));
                let Some(pending) = state.pending_calls().into_iter().next() else { return };
                let request = Request { action: script::approve(pending.call_id), key: None };
                send(world, node, to, None, request);
            }
            What::Cancel { node, to } => {
                send(world, node, to, None, Request { action: script::cancel(), key: None });
            }
            What::Crash { to } => {
                for node in world.running() {
                    if let Some(live) = node.live(&id(to)) {
                        live.cast(Msg::Kill);
                    }
                }
            }
            What::Kill { node, refuses } => {
                if let Some(node) = world.node(node) {
                    world.kill(node.life, refuses);
                }
            }
            What::Start { node } if world.node(node).is_none() => world.start(node),
            What::Replace { node } if world.node(node).is_some() => world.start(node),
            What::Start { .. } | What::Replace { .. } => {}
            What::Retire { node, patience_ms } => {
                if let Some(node) = world.node(node).filter(|node| !node.retires.replace(true)) {
                    let patience = Duration::from_millis(patience_ms);
                    node.spawn(node.clone().retire(patience));
                }
            }
            What::Stop { node } => {
                if let Some(node) = world.node(node) {
                    world.exec.stop(node.life);
                }
            }
            What::GoOn { node } => {
                if let Some(node) = world.node(node) {
                    world.exec.go_on(node.life);
                }
            }
            What::Link { from, to, link, both } => {
                let (Some(from), Some(to)) = (world.node(from), world.node(to)) else { return };
                world.link(from.life, to.life, link);
                if both {
                    world.link(to.life, from.life, link);
                }
            }
            What::Store { node, away, rough } => {
                if let Some(node) = world.node(node) {
                    node.away.set(away);
                    node.rough.set(rough);
                }
            }
            What::Net { rough } => world.rough.set(rough),
        }
    }
}

/// Everything is well from here on. What is dead is started, but for one that stays dead in three
/// schedules of four, if it is.
pub fn calm(world: &Rc<World>, seed: u64) {
    world.tell(|| "-- calm".to_owned());
    world.rough.set(0);
    let lives: Vec<_> = world.lives.borrow().iter().cloned().collect();
    for node in lives.iter().filter(|node| node.alive.get()) {
        node.away.set(false);
        node.rough.set(0);
        world.exec.go_on(node.life);
        // A process whose name another took ends at last, as its operator finds it.
        if world.slots.borrow()[node.slot] != Some(node.life) || node.retires.get() {
            world.kill(node.life, true);
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

/// What the journal comes to.
pub fn stored(world: &World, id: &ConversationId) -> State {
    let stored = world.store.load(id).ok().flatten();
    stored.map(|stored| replay(stored.state, &stored.events)).unwrap_or_default()
}

/// A client's call; it goes with the process that it reached.
fn send(world: &Rc<World>, node: usize, to: u64, text: Option<String>, request: Request) {
    let Some(node) = world.node(node) else { return };
    let work = node.clone();
    node.spawn(async move {
        let id = id(to);
        let outcome = work.deliver(&id, request).await;
        work.world.tell(|| format!("{} answers {text:?} of {id}: {outcome:?}", work.me()));
        if let Outcome::Done(seq) = outcome {
            work.world.promises.borrow_mut().push(Promise { id, text, seq });
        }
    });
}
