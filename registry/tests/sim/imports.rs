//! Imports: the journal of another place is kept aside until it is whole, and is a conversation then.
//! An import that fails leaves nothing, and one whose node dies leaves nothing that anybody sees.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use abide_actors::conversation::imported;
use abide_actors::journal::{Claim, Journal as _, StoreError};
use abide_conversation::command::IfBusy;
use abide_conversation::event::Event;
use abide_conversation::{ConversationId, Scoped, Seq, State, evolve, replay, wanted};
use abide_registry::partition::Partition;
use abide_registry::store::{StagedJournal, Staging as _};

use crate::activities;
use crate::actor::Request;
use crate::erasures::without_persons;
use crate::node::{Node, store_unavailable};
use crate::schedule::send;
use crate::store::Written;
use crate::tasks::READ;
use crate::world::World;

/// The events that are written aside at once.
const PAGE_EVENTS: usize = 4;
/// How long a page of a slow client takes at most.
const PAGE_MS: u64 = 60;

/// What became of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// It goes on, its node died, or nobody knows.
    Open,
    Published,
    Undone,
}

/// A journal that was imported, or not.
pub struct Import {
    id: Scoped<ConversationId>,
    events: Vec<Event>,
    progress: Progress,
}

/// Imports the journal of a conversation as another one, and goes on with that.
pub fn begin(world: &Rc<World>, slot: usize, from: &Scoped<ConversationId>) {
    let Some(node) = world.node(slot) else { return };
    let events = whole_journal(&world.store.events(from));
    if events.len() <= PAGE_EVENTS {
        return;
    }
    let number = world.number();
    let id = from.sibling(&ConversationId::new(format!("i{number}")));
    world.store.use_partition(Partition::from(&id));
    let index = world.imports.borrow().len();
    let import = Import { id: id.clone(), events: events.clone(), progress: Progress::Open };
    world.imports.borrow_mut().push(import);
    node.clone().spawn(async move {
        let world = &node.world;
        let name = format!("{}-{number}", node.process);
        let staged = StagedJournal {
            id: id.clone(),
            import: name,
            last_seq: Seq::ZERO,
            blobs: BTreeSet::new(),
        };
        let mut shell = Shell { node: &node, staged, claim: None, may_be_written: false };
        let outcome = shell.carry_out(&events).await;
        world.trace(|| format!("{} imports {id}: {outcome:?}", node.me()));
        let progress = match outcome {
            Ok(()) => Progress::Published,
            Err(_) => shell.undo().await.map_or(Progress::Open, |()| Progress::Undone),
        };
        world.imports.borrow_mut()[index].progress = progress;
        match progress {
            Progress::Published => world.store.count("imports"),
            Progress::Undone => world.store.count("imports undone"),
            Progress::Open => {}
        }
        if progress == Progress::Published {
            let text = format!("m{} to {}", world.number(), id.tenant());
            let message = activities::send(world.number(), &text, IfBusy::Queue);
            send(world, slot, id, Some(text), Request::from(message));
        }
    });
}

/// The events up to the last at which the conversation rests, and wants nothing from others.
fn whole_journal(events: &[Event]) -> Vec<Event> {
    let (mut state, mut end) = (State::default(), 0);
    for (index, event) in events.iter().enumerate() {
        evolve(&mut state, event);
        if rests(&state) {
            end = index + 1;
        }
    }
    events[..end].to_vec()
}

fn rests(state: &State) -> bool {
    let is_alone = state.parent.is_none() && state.awaited_children().next().is_none();
    let is_quiet = state.turn.is_none() && state.queue.is_empty() && state.alarm().is_none();
    is_alone && is_quiet && state.forking.is_none() && wanted(state).is_empty()
}

/// The shell of an import, as in the product.
struct Shell<'a> {
    node: &'a Node,
    staged: StagedJournal,
    claim: Option<Claim>,
    may_be_written: bool,
}

impl Shell<'_> {
    async fn carry_out(&mut self, events: &[Event]) -> Result<(), StoreError> {
        let pages: Vec<&[Event]> = events.chunks(PAGE_EVENTS).collect();
        let Some((end, pages)) = pages.split_last() else { return Ok(()) };
        let (node, redis) = (self.node, self.node.store.redis());
        let world = &node.world;
        for page in pages {
            node.ask(READ, redis.stage(&self.staged, Arc::from(*page))).await?;
            self.staged.last_seq = page.last().map_or(Seq::ZERO, |event| event.seq);
            node.sleep(Duration::from_millis(node.below(PAGE_MS))).await;
        }
        let id = &self.staged.id;
        if !node.ask(READ, redis.events(id, Seq::ZERO, 1)).await?.is_empty() {
            world.store.report_violation(format!("{id} is seen before it is whole"));
        }
        let me = node.me();
        let claim = node.ask(READ, redis.claim(id, &me, Some(&me))).await?;
        if claim.holder != me {
            return Err(store_unavailable());
        }
        self.claim = Some(claim.clone());
        let state = Arc::new(replay(State::default(), events));
        let commit = imported(&state, Arc::from(*end), Arc::from([]));
        self.may_be_written = true;
        node.ask(READ, redis.publish(&self.staged, &claim, commit)).await?;
        let written = Written::Event(state.seq);
        let durable = world.store.is_durable(id, written, world.exec.now());
        world.store.check_acknowledged(id, "the import", durable);
        // A claim that stays is the next holder's to replace.
        let _ = node.ask(READ, redis.release(id, &claim)).await;
        Ok(())
    }

    async fn undo(&mut self) -> Result<(), StoreError> {
        let (node, redis) = (self.node, self.node.store.redis());
        let id = &self.staged.id;
        node.ask(READ, redis.unstage(&self.staged)).await?;
        let Some(claim) = self.claim.take() else { return Ok(()) };
        if self.may_be_written {
            node.ask(READ, redis.delete(id, &claim, None, Vec::new())).await?;
        }
        node.ask(READ, redis.release(id, &claim)).await
    }
}

/// How many events a conversation was imported with; `None` if it was not.
pub fn events_of(world: &World, id: &Scoped<ConversationId>) -> Option<usize> {
    let imports = world.imports.borrow();
    imports.iter().find(|import| import.id == *id).map(|import| import.events.len())
}

/// The first import of which a part is there, or that is not there although it was acknowledged, or
/// is there although it was undone.
pub fn check(
    world: &World,
    journals: &BTreeMap<&Scoped<ConversationId>, Vec<Event>>,
) -> Option<String> {
    for Import { id, events, progress } in world.imports.borrow().iter() {
        let there = without_persons(journals.get(id).cloned().unwrap_or_default());
        let is_whole = there.starts_with(&without_persons(events.clone()));
        let wrong = match progress {
            Progress::Published if !is_whole => "was imported and is lost",
            Progress::Undone if !there.is_empty() => "is there, and its import has failed",
            Progress::Open if !there.is_empty() && !is_whole => "is there in part",
            Progress::Open | Progress::Published | Progress::Undone => continue,
        };
        return Some(format!("{id} {wrong}: {} of {} events", there.len(), events.len()));
    }
    None
}
