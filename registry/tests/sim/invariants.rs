//! The invariants: what must hold after every step, and what must hold once the faults are over.

use std::collections::BTreeMap;

use abide_actors::identity::NodeName;
use abide_conversation::event::{Event, EventData};
use abide_conversation::message::Outcome;
use abide_conversation::{ConversationId, Scoped, Seq, State, replay, wanted};
use abide_registry::cluster_view::ClusterView;
use abide_registry::membership::MemberState;
use abide_registry::partition::PartitionSet;
use serde_json::json;

use crate::erasures;
use crate::imports;
use crate::notices;
use crate::partition_cache::partitions_of;
use crate::reads;
use crate::rollouts;
use crate::schedule::stored_state;
use crate::ticks;
use crate::usage;
use crate::workers;
use crate::world::World;

/// Whether nothing is left to do: there is no turn, no alarm and no active conversation, and the
/// nodes agree on the owner of each partition.
pub fn is_settled(world: &World) -> bool {
    // This is seldom true, so the expensive check comes last.
    let idle = world.store.active().is_ok_and(|active| active.is_empty())
        && world.store.due().is_ok_and(|due| due.is_empty());
    idle && unsettled(world).is_none()
}

/// What is left to do; `None` if nothing is.
pub fn unsettled(world: &World) -> Option<String> {
    for id in world.store.all() {
        let state = stored_state(world, &id);
        if state.turn.is_some() || !state.queue.is_empty() || !wanted(&state).is_empty() {
            let holder = world.store.current_claim(&id).ok().flatten().map(|held| held.holder);
            let wants: Vec<_> = wanted(&state).iter().map(ToString::to_string).collect();
            return Some(format!("{id} never settles: held by {holder:?}, wants {wants:?}"));
        }
    }
    if let Ok(alarms) = world.store.due()
        && !alarms.is_empty()
    {
        return Some(format!("alarms remain: {alarms:?}"));
    }
    if world.store.active().is_ok_and(|active| !active.is_empty()) {
        return Some("settled conversations remain active".to_owned());
    }
    let left = [workers::left_in_queues, notices::left_owed, ticks::left_due];
    if let Some(left) = left.iter().find_map(|left| left(world)) {
        return Some(left);
    }
    let shares: Vec<_> =
        world.running().iter().map(|node| node.seen().partitions.clone()).collect();
    for partition in abide_registry::partition::Partition::all() {
        let sweepers = shares.iter().filter(|partitions| partitions.contains(partition)).count();
        if sweepers != 1 {
            return Some(format!("{partition} has {sweepers} owners"));
        }
    }
    None
}

/// The first violation of a promise to a client or of the form of a journal.
pub fn promises(world: &World) -> Option<String> {
    let journal = |id| (id, world.store.events(id));
    let (all, promises) = (world.store.all(), world.promises.borrow());
    let journals: BTreeMap<_, _> = all.iter().map(journal).collect();
    for promise in promises.iter() {
        let observer = world.store.observer.borrow();
        let is_deleted =
            observer.deletions.iter().any(|(id, at)| *id == promise.id && *at >= promise.sent_at);
        if promise.deleted && !is_deleted {
            return Some(format!("{}: the deletion is acknowledged and lost", promise.id));
        }
        if is_deleted {
            continue;
        }
        let events = journals.get(&promise.id).map_or(&[][..], Vec::as_slice);
        let holds = match &promise.text {
            None => promise.seq == Seq::ZERO || events.iter().any(|event| event.seq == promise.seq),
            Some(text) => {
                let is_message = |data: &EventData| match data {
                    EventData::UserMsg(user) => user.message.text() == *text,
                    EventData::Steered(user) => user.message.text() == *text,
                    EventData::ToolResult(done) => done.outcome == Outcome::Ok(json!(text)),
                    _ => false,
                };
                events.iter().any(|event| event.seq <= promise.seq && is_message(&event.data))
            }
        };
        if !holds {
            return Some(format!("{} {:?}: acknowledged and lost", promise.id, promise.text));
        }
    }
    let blobs = world.blobs.borrow();
    if let Some(blob) = world.store.missing_blob(&blobs) {
        return Some(format!("{blob}: acknowledged and lost"));
    }
    check_families(world, &journals);
    usage::check(world, &journals);
    reads::check(world);
    let mut checked = journals.iter();
    checked
        .find_map(|(id, events)| check_journal(world, id, events))
        .or_else(|| check_decisions(world, &journals))
        .or_else(|| notices::check(world, &journals))
        .or_else(|| ticks::check(world, &journals))
        .or_else(|| erasures::check(world, &journals))
        .or_else(|| imports::check(world, &journals))
        .or_else(|| rollouts::check(world))
}

/// Checks that nothing is left of the children of deleted conversations.
fn check_families(world: &World, journals: &BTreeMap<&Scoped<ConversationId>, Vec<Event>>) {
    for id in journals.keys().copied() {
        let Some(parent) = stored_state(world, id).parent else { continue };
        let parent = &id.sibling(&parent.conversation_id);
        let events = journals.get(parent).map_or(&[][..], Vec::as_slice);
        if !events.iter().any(|event| event.data.planned_child() == Some(&id.local())) {
            world.store.report_violation(format!("{id} outlives its parent {parent}"));
        }
    }
}

/// The first decision that a conversation has published and the agent has not.
fn check_decisions(
    world: &World,
    journals: &BTreeMap<&Scoped<ConversationId>, Vec<Event>>,
) -> Option<String> {
    for (id, events) in journals {
        let decisions = world.store.decisions(&id.tenant());
        let lost = events.iter().find_map(|event| match &event.data {
            EventData::DecisionPublished(it) if !decisions.contains(&it.decision_id) => Some(it),
            _ => None,
        });
        if let Some(lost) = lost {
            return Some(format!("{id}: {}: published and lost", lost.decision_id));
        }
    }
    None
}

/// The first violation in the journal of one conversation.
fn check_journal(world: &World, id: &Scoped<ConversationId>, events: &[Event]) -> Option<String> {
    let mut counts = BTreeMap::new();
    for (index, event) in events.iter().enumerate() {
        if event.seq.get() != index as u64 + 1 {
            return Some(format!("{id}: event {} stands at index {index}", event.seq));
        }
        let message = match &event.data {
            EventData::UserMsg(user) => &user.message,
            EventData::Steered(user) => &user.message,
            _ => continue,
        };
        *counts.entry(message.text()).or_insert(0) += 1;
    }
    if let Some((text, _)) = counts.iter().find(|(_, count)| **count > 1) {
        return Some(format!("{id}: {text} is there twice"));
    }
    let is_foreign = |text: &&String| {
        text.rsplit_once(" to ").is_some_and(|(_, tenant)| tenant != id.tenant().as_str())
    };
    if let Some(text) = counts.keys().find(is_foreign) {
        return Some(format!("{id}: {text} is of another tenant"));
    }
    if replay(State::default(), events) != stored_state(world, id) {
        return Some(format!("{id}: the stored state differs from the fold of the journal"));
    }
    let results = |call: &str| {
        let is_result = |data: &EventData| match data {
            EventData::ToolResult(done) => done.call_id.as_str() == call,
            _ => false,
        };
        events.iter().filter(|event| is_result(&event.data)).count()
    };
    for event in events {
        let EventData::ToolCall(call) = &event.data else { continue };
        if results(call.call_id.as_str()) != 1 {
            return Some(format!("{id}: {} does not have exactly one result", call.call_id));
        }
    }
    workers::overlapping_leases(events).map(|overlap| format!("{id}: {overlap}"))
}

/// Checks that when members leave, only their partitions move.
pub fn check_partition_moves(world: &World, before: &ClusterView, now: &ClusterView) {
    let (before_members, now_members) = (sweepers(before), sweepers(now));
    if before_members == now_members
        || !now_members.iter().all(|name| before_members.contains(name))
        || before.me.node != now.me.node
    {
        return;
    }
    let remains = |name: &&NodeName| now_members.contains(name);
    let departed_partitions: Vec<PartitionSet> = before_members
        .iter()
        .filter(|name| !remains(name))
        .map(|name| partitions_of(name, &before_members))
        .collect();
    let me = &now.me.node;
    if !now_members.contains(&me) || !before_members.contains(&me) {
        return;
    }
    for partition in now.partitions.iter() {
        let mine = before.partitions.contains(partition);
        if !mine && !departed_partitions.iter().any(|partitions| partitions.contains(partition)) {
            world
                .store
                .report_violation(format!("{partition} moved to {me} from a member that remains"));
        }
    }
    if let Some(lost) = before.partitions.iter().find(|it| !now.partitions.contains(*it)) {
        world.store.report_violation(format!("{lost} left {me} when another member left"));
    }
}

/// The members among which a view divides the partitions.
fn sweepers(view: &ClusterView) -> Vec<&NodeName> {
    let up = view.all().filter(|it| it.state == MemberState::Up && view.reaches(it));
    up.map(|member| &member.holder.node).collect()
}
