//! What must hold: after every step, and when everything is calm again.

use std::collections::BTreeMap;

use abide_conversation::event::{Event, EventData};
use abide_conversation::{ConversationId, State, Timestamp, replay, wanted};
use abide_registry::membership::MemberState;
use abide_registry::partition::PartitionSet;
use abide_registry::view::ClusterView;

use crate::plan::stored;
use crate::shares::share;
use crate::world::World;

/// Whether nothing is left to be done: no turn, no alarm, nothing active, and the nodes agree on
/// who looks after what.
pub fn is_settled(world: &World) -> bool {
    // Seldom, and what costs most to see is seen last.
    let idle = world.store.active(&PartitionSet::all()).is_ok_and(|active| active.is_empty())
        && world.store.due(&PartitionSet::all(), Timestamp::MAX, 1).is_ok_and(|due| due.is_empty());
    idle && unsettled(world).is_none()
}

/// What is left to be done.
pub fn unsettled(world: &World) -> Option<String> {
    for id in world.store.all() {
        let state = stored(world, &id);
        if state.turn.is_some() || !state.queue.is_empty() || !wanted(&state).is_empty() {
            let holder = world.store.holding(&id).ok().flatten().map(|held| held.holder);
            let wants: Vec<_> = wanted(&state).iter().map(ToString::to_string).collect();
            return Some(format!("{id} never settles: held by {holder:?}, wants {wants:?}"));
        }
    }
    if let Ok(alarms) = world.store.due(&PartitionSet::all(), Timestamp::MAX, 1)
        && !alarms.is_empty()
    {
        return Some(format!("alarms stay: {alarms:?}"));
    }
    if world.store.active(&PartitionSet::all()).is_ok_and(|active| !active.is_empty()) {
        return Some("settled conversations stay active".to_owned());
    }
    let shares: Vec<_> = world.running().iter().map(|node| node.seen().share.clone()).collect();
    for partition in abide_registry::partition::Partition::all() {
        let sweepers = shares.iter().filter(|share| share.contains(partition)).count();
        if sweepers != 1 {
            return Some(format!("{partition} has {sweepers} sweepers"));
        }
    }
    None
}

/// What was promised to clients, and what the journals must look like.
pub fn promises(world: &World) -> Option<String> {
    let journal = |id| (id, world.store.events(id));
    let (all, promises) = (world.store.all(), world.promises.borrow());
    let journals: BTreeMap<_, _> = all.iter().map(journal).collect();
    for promise in promises.iter() {
        let events = journals.get(&promise.id).map_or(&[][..], Vec::as_slice);
        let kept = match &promise.text {
            None => promise.seq == 0 || events.iter().any(|event| event.seq == promise.seq),
            Some(text) => {
                let is = |data: &EventData| match data {
                    EventData::UserMsg(said) => said.message.text() == *text,
                    _ => false,
                };
                events.iter().any(|event| event.seq <= promise.seq && is(&event.data))
            }
        };
        if !kept {
            return Some(format!("{} {:?}: acknowledged and lost", promise.id, promise.text));
        }
    }
    journals.iter().find_map(|(id, events)| journalled(world, id, events))
}

/// What the journal of a conversation must look like.
fn journalled(world: &World, id: &ConversationId, events: &[Event]) -> Option<String> {
    let mut said = BTreeMap::new();
    for (place, event) in events.iter().enumerate() {
        if event.seq != place as u64 + 1 {
            return Some(format!("{id}: event {} comes at {place}", event.seq));
        }
        if let EventData::UserMsg(user) = &event.data {
            *said.entry(user.message.text()).or_insert(0) += 1;
        }
    }
    if let Some((text, _)) = said.iter().find(|(_, count)| **count > 1) {
        return Some(format!("{id}: {text} is there twice"));
    }
    if replay(State::default(), events) != stored(world, id) {
        return Some(format!("{id}: the stored state is no fold of its journal"));
    }
    let results = |call: &str| {
        let of = |data: &EventData| match data {
            EventData::ToolResult(done) => done.call_id.as_str() == call,
            _ => false,
        };
        events.iter().filter(|event| of(&event.data)).count()
    };
    for event in events {
        let EventData::ToolCall(call) = &event.data else { continue };
        if results(call.call_id.as_str()) != 1 {
            return Some(format!("{id}: {} has not one result", call.call_id));
        }
    }
    None
}

/// When members go, only what they looked after moves.
pub fn moves_little(world: &World, before: &ClusterView, now: &ClusterView) {
    let (was, is) = (sweepers(before), sweepers(now));
    if was == is || !is.iter().all(|name| was.contains(name)) || before.me.node != now.me.node {
        return;
    }
    let stays = |name: &&str| is.contains(name);
    let whole: Vec<PartitionSet> =
        was.iter().filter(|name| !stays(name)).map(|name| share(name, &was)).collect();
    let me = now.me.node.as_str();
    if !is.contains(&me) || !was.contains(&me) {
        return;
    }
    for partition in now.share.partitions() {
        let mine = before.share.contains(partition);
        if !mine && !whole.iter().any(|share| share.contains(partition)) {
            world.store.wrong(format!("{partition} moved to {me} from one that stays"));
        }
    }
    if let Some(lost) = before.share.partitions().find(|it| !now.share.contains(*it)) {
        world.store.wrong(format!("{lost} left {me} when another went"));
    }
}

/// Among whom a view parts what there is to look after.
fn sweepers(view: &ClusterView) -> Vec<&str> {
    let up = view.all().filter(|it| it.state == MemberState::Up && view.reaches(it));
    up.map(|member| member.holder.node.as_str()).collect()
}
