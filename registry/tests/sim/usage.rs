//! The usage that the store has counted, compared with what the journals say: faults, repeats and
//! take-overs lose nothing and count nothing twice.

use std::collections::BTreeMap;

use abide_actors::usage_counts::{UsageCounts, day_of};
use abide_conversation::event::{Event, EventData};
use abide_conversation::{ConversationId, Scoped, Tenant};
use abide_registry::store::{UsageBy, UsageQuery};

use crate::imports;
use crate::world::World;

/// Reports a tenant whose usage is not what its journals have. What was deleted stays counted.
pub fn check(world: &World, journals: &BTreeMap<&Scoped<ConversationId>, Vec<Event>>) {
    let mut expected: BTreeMap<Tenant, UsageCounts> = BTreeMap::new();
    for (id, events) in journals {
        *expected.entry(id.tenant()).or_default() += counts(own_events(world, id, events));
    }
    let days = journals.values().flatten().map(|event| day_of(event.at));
    let Some((first, last)) = days.clone().min().zip(days.max()) else { return };
    let mut deleted = world.store.observer.borrow().deletions.clone();
    deleted.retain(|(id, _)| expected.contains_key(&id.tenant()));
    for (tenant, expected) in expected {
        let (by, after) = (UsageBy::Owner, None);
        let query = UsageQuery { tenant: tenant.clone(), first, last, by, after, limit: 10 };
        let counted = world.store.usage(&query).total;
        let is_deleted = deleted.iter().any(|(id, _)| id.tenant() == tenant);
        let holds = if is_deleted {
            counted.numbers().iter().zip(expected.numbers()).all(|(is, least)| *is >= least)
        } else {
            counted == expected
        };
        if !holds {
            world.store.report_violation(format!(
                "{tenant}: the usage differs from the journals: {counted:?}, not {expected:?}"
            ));
        }
    }
}

fn counts(events: &[Event]) -> UsageCounts {
    UsageCounts::of(events).unwrap_or_default()
}

/// What happened in a conversation itself: a fork's prefix happened in the original, and what was
/// imported at another place.
pub fn own_events<'e>(
    world: &World,
    id: &Scoped<ConversationId>,
    events: &'e [Event],
) -> &'e [Event] {
    if let Some(imported) = imports::events_of(world, id) {
        return events.get(imported..).unwrap_or_default();
    }
    let is_fork = match events.first().map(|event| &event.data) {
        Some(EventData::Created(created)) => created.fork.is_some(),
        _ => false,
    };
    let forked = events.iter().position(|event| matches!(event.data, EventData::Forked(_)));
    match (is_fork, forked) {
        (true, Some(at)) => &events[at..],
        (true, None) => &[],
        (false, _) => events,
    }
}
