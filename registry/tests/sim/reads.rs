//! Clients that read a journal past its actor: what they read is never older than what was
//! acknowledged before, and never changes.

use std::rc::Rc;
use std::time::Duration;

use abide_conversation::event::Event;
use abide_conversation::{ConversationId, Scoped, Seq};

use crate::erasures::without_persons;
use crate::world::World;

/// The longest that a read may take.
const READ_TIMEOUT: Duration = Duration::from_millis(1_500);

/// A journal as a client has read it.
pub struct ReadJournal {
    id: Scoped<ConversationId>,
    /// How often the conversation had been deleted.
    life: usize,
    events: Vec<Event>,
}

/// Reads a journal through a node.
pub fn begin(world: &Rc<World>, slot: usize, id: Scoped<ConversationId>) {
    let Some(node) = world.node(slot) else { return };
    let (life, acknowledged) = (life(world, &id), last_acknowledged(world, &id));
    node.clone().spawn(async move {
        let read = node.ask(READ_TIMEOUT, node.store.events(&id, Seq::ZERO, usize::MAX)).await;
        let (Ok(events), world) = (read, &node.world) else { return };
        if self::life(world, &id) != life {
            return;
        }
        world.store.count("journals read");
        let last = events.last().map_or(Seq::ZERO, |event| event.seq);
        if last < acknowledged {
            world.store.report_violation(format!(
                "{id}: a client reads {last} events after {acknowledged} were acknowledged"
            ));
        }
        world.reads.borrow_mut().push(ReadJournal { id, life, events });
    });
}

/// Checks that everything that was read is still there.
pub fn check(world: &World) {
    for read in world.reads.borrow().iter().filter(|read| life(world, &read.id) == read.life) {
        let [there, read_once] = [world.store.events(&read.id), read.events.clone()];
        if !without_persons(there).starts_with(&without_persons(read_once)) {
            let id = &read.id;
            world.store.report_violation(format!("{id}: a client has read what is gone"));
        }
    }
}

fn life(world: &World, id: &Scoped<ConversationId>) -> usize {
    world.store.observer.borrow().deletions_of(id)
}

/// The last event of the conversation that was acknowledged to a client.
fn last_acknowledged(world: &World, id: &Scoped<ConversationId>) -> Seq {
    let observer = world.store.observer.borrow();
    let deleted = observer.deletions.iter().filter(|(deleted, _)| deleted == id);
    let deleted = deleted.map(|(_, at)| *at).max();
    let promises = world.promises.borrow();
    let lives = promises.iter().filter(|it| it.id == *id && Some(it.sent_at) > deleted);
    lives.map(|promise| promise.seq).max().unwrap_or(Seq::ZERO)
}
