//! Erasures of persons from conversations: what was acknowledged names them no more, whatever dies
//! meanwhile, and everything else of the journal stays as it is.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use abide_conversation::erase::SubjectAlias;
use abide_conversation::event::Event;
use abide_conversation::{ConversationId, Scoped, Seq};

use crate::actor::{Ask, Outcome, Request};
use crate::world::World;

/// Who sends messages, and who approves calls.
pub const SUBJECTS: [&str; 2] = ["ada", "bob"];
/// How often the job asks for an erasure, and after which delay.
const MAX_ATTEMPTS: usize = 8;
const RETRY_DELAY: Duration = Duration::from_millis(300);

/// A person who was erased from the journal of a conversation up to an event.
pub struct Erased {
    id: Scoped<ConversationId>,
    /// How often the conversation had been deleted.
    life: usize,
    seq: Seq,
    subject: &'static str,
}

fn alias(subject: &str) -> SubjectAlias {
    SubjectAlias { subject: subject.to_owned(), alias: format!("erased:{subject}") }
}

/// Erases a person through a node, again and again until that is done.
pub fn begin(world: &Rc<World>, slot: usize, id: Scoped<ConversationId>, subject: &'static str) {
    let Some(node) = world.node(slot) else { return };
    let life = life(world, &id);
    node.clone().spawn(async move {
        let world = &node.world;
        for _ in 0..MAX_ATTEMPTS {
            let request = Request { ask: Ask::Erase(alias(subject)), key: None };
            let outcome = node.deliver(&id, request).await;
            world.trace(|| format!("{} erases {subject} from {id}: {outcome:?}", node.me()));
            match outcome {
                Outcome::Done(seq) if self::life(world, &id) == life => {
                    world.store.count("persons erased");
                    world.erased.borrow_mut().push(Erased { id, life, seq, subject });
                    return;
                }
                Outcome::Done(_) | Outcome::Rejected(_) => return,
                Outcome::Untouched | Outcome::Lost | Outcome::Unavailable(_) => {
                    node.sleep(RETRY_DELAY).await;
                }
            }
        }
    });
}

/// The first event that names a person who was erased from it.
pub fn check(
    world: &World,
    journals: &BTreeMap<&Scoped<ConversationId>, Vec<Event>>,
) -> Option<String> {
    let erased = world.erased.borrow();
    let present = erased.iter().filter(|erased| life(world, &erased.id) == erased.life);
    for Erased { id, seq, subject, .. } in present {
        let events = journals.get(id).map_or(&[][..], Vec::as_slice);
        let is_named = |event: &&Event| alias(subject).apply(&mut event.data.clone());
        if let Some(event) = events.iter().filter(|event| event.seq <= *seq).find(is_named) {
            return Some(format!("{id}: event {} still names {subject}", event.seq));
        }
    }
    None
}

/// The events as they are after everybody was erased.
pub fn without_persons(mut events: Vec<Event>) -> Vec<Event> {
    for event in &mut events {
        for subject in SUBJECTS {
            alias(subject).apply(&mut event.data);
        }
    }
    events
}

fn life(world: &World, id: &Scoped<ConversationId>) -> usize {
    world.store.observer.borrow().deletions_of(id)
}
