//! Turns that wait are withdrawn, and conversations go on from earlier events.

use std::rc::Rc;

use abide_conversation::branch::RewindPoint;
use abide_conversation::command::{Cancel, Rewind, Withdraw};
use abide_conversation::{Action, ConversationId, Principal, Scoped, Seq, State, replay};

use crate::actor::Request;
use crate::schedule::{send, stored_state};
use crate::world::World;

/// Withdraws the next turn of a conversation that waits, if there is one. By the time that this arrives,
/// the turn may run, or be over.
pub fn withdraw(world: &Rc<World>, node: usize, id: Scoped<ConversationId>, cancels: bool) {
    let state = stored_state(world, &id);
    let Some(turn) = state.queue.front().map(|queued| queued.id.clone()) else { return };
    let cancel = cancels.then_some(Cancel { partial: None });
    let by = Principal::new("user");
    let withdraw = Action::Withdraw(Withdraw { turn, cancel, by, identity: None });
    send(world, node, id, None, Request::from(withdraw));
}

/// Goes back to the last place before this part of the journal.
pub fn rewind(world: &Rc<World>, node: usize, id: Scoped<ConversationId>, percent: u64) {
    let events = world.store.events(&id);
    let most = usize::try_from(events.len() as u64 * percent / 100).unwrap_or(usize::MAX);
    let points = (0..=most).rev().find_map(|count| {
        let prefix = events.get(..count)?;
        let point = RewindPoint::at(&replay(State::default(), prefix)).ok()?;
        Some((prefix.last().map_or(Seq::ZERO, |last| last.seq), point))
    });
    let Some((to_seq, point)) = points else { return };
    let rewind = Rewind { to_seq, point, by: Principal::new("user"), identity: None };
    send(world, node, id, None, Request::from(Action::Rewind(rewind)));
}
