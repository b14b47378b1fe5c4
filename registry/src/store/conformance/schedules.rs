//! Schedules, and suspensions that wait longer.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use abide_conversation::command::IfBusy;
use abide_conversation::state::PendingCall;
use abide_conversation::{AgentName, Principal, ScheduleName, Scoped, Timestamp};
use serde_json::json;

use super::super::schedules::partition_of;
use super::super::{ListError, Store};
use super::fixtures::*;
use crate::partition::{Partition, PartitionSet};
use crate::schedules::{Missed, Rhythm, Schedule};

pub(in super::super) fn schedule(
    name: &Scoped<ScheduleName>,
    version: u64,
    next_at: Option<Timestamp>,
) -> Schedule {
    Schedule {
        name: name.local(),
        version,
        agent: AgentName::new("demo"),
        conversation: None,
        rhythm: Rhythm::EveryMs(1_000),
        content: vec![json!({"type": "text", "text": "hi"})],
        if_busy: IfBusy::Queue,
        missed: Missed::Last,
        start: None,
        until: None,
        paused: false,
        assigns: Default::default(),
        principal: Principal::new("ada"),
        identity: None,
        created_at: at(0),
        put_at: at(0),
        next_at,
        last: None,
        triggers: 0,
        put_id: None,
    }
}

async fn put(store: &dyn Store, name: &str, next_at: Option<Timestamp>) {
    let name = scoped(name);
    let put = schedule(&name, 1, next_at);
    assert!(store.replace_schedule(&name, None, Some(&put)).await.unwrap());
}

/// The names of the schedules of these partitions that are due.
async fn due(
    store: &dyn Store,
    partitions: &PartitionSet,
    until: Timestamp,
    limit: usize,
) -> Vec<String> {
    let due = store.due_schedules(partitions, until, limit).await.unwrap();
    assert!(due.is_sorted_by_key(|(name, at)| (*at, name.to_string())));
    due.into_iter().map(|(name, _)| name.to_string()).collect()
}

pub(in super::super) async fn a_schedule_is_replaced_only_over_the_version_that_is_known(
    store: Arc<dyn Store>,
) {
    let name = scoped("daily");
    let [first, second] = [1, 2].map(|version| schedule(&name, version, Some(at(5))));
    assert_eq!(store.schedule(&name).await.unwrap(), None);
    assert!(!store.replace_schedule(&name, Some(1), Some(&first)).await.unwrap());
    assert!(store.replace_schedule(&name, None, Some(&first)).await.unwrap());
    assert!(!store.replace_schedule(&name, None, Some(&second)).await.unwrap());
    assert!(!store.replace_schedule(&name, Some(7), Some(&second)).await.unwrap());
    assert_eq!(store.schedule(&name).await.unwrap(), Some(first));
    assert!(store.replace_schedule(&name, Some(1), Some(&second)).await.unwrap());
    assert!(!store.replace_schedule(&name, Some(1), None).await.unwrap());
    assert_eq!(store.schedule(&name).await.unwrap(), Some(second));
    assert!(store.replace_schedule(&name, Some(2), None).await.unwrap());
    assert_eq!(store.schedule(&name).await.unwrap(), None);
    assert_eq!(due(&*store, &PartitionSet::all(), at(9), 9).await, [""; 0]);
    assert_eq!(store.schedule_count(&own()).await.unwrap(), 0);
}

pub(in super::super) async fn due_schedules_are_found_by_partition_earliest_first(
    store: Arc<dyn Store>,
) {
    for (name, next_at) in [
        ("c", Some(at(1))),
        ("a", Some(at(3))),
        ("acme/b", Some(at(2))),
        ("d", Some(at(9))),
        ("e", None),
    ] {
        put(&*store, name, next_at).await;
    }
    let paused = scoped("p");
    let mut sleeping = schedule(&paused, 1, Some(at(1)));
    sleeping.paused = true;
    assert!(store.replace_schedule(&paused, None, Some(&sleeping)).await.unwrap());
    let all = PartitionSet::all();
    assert_eq!(due(&*store, &all, at(3), 9).await, ["c", "acme/b", "a"]);
    assert_eq!(due(&*store, &all, at(0), 9).await, [""; 0]);
    assert_eq!(due(&*store, &all, at(3), 1).await[0], "c");
    let mine = partition_of(&scoped("a"));
    let others: PartitionSet = Partition::all().filter(|partition| *partition != mine).collect();
    assert_eq!(due(&*store, &others, at(3), 9).await, ["c", "acme/b"]);
    let name = scoped("a");
    let moved = schedule(&name, 2, Some(at(8)));
    assert!(store.replace_schedule(&name, Some(1), Some(&moved)).await.unwrap());
    assert_eq!(due(&*store, &all, at(3), 9).await, ["c", "acme/b"]);
    assert_eq!(due(&*store, &all, at(8), 9).await, ["c", "acme/b", "a"]);
}

pub(in super::super) async fn schedules_are_listed_by_name_and_tenant(store: Arc<dyn Store>) {
    for name in ["b", "a", "c", "acme/x", "acme/a"] {
        put(&*store, name, None).await;
    }
    let names = |tenant_name: &'static str, cursor: Option<String>, limit| {
        let store = store.clone();
        async move {
            let page =
                store.schedules(&tenant(tenant_name), cursor.as_deref(), limit).await.unwrap();
            let names: Vec<String> = page.items.iter().map(|it| it.name.to_string()).collect();
            (names, page.cursor)
        }
    };
    let (first, cursor) = names("default", None, 2).await;
    assert_eq!(first, ["a", "b"]);
    assert_eq!(names("default", cursor.clone(), 2).await, (vec!["c".to_owned()], None));
    assert_eq!(names("acme", None, 9).await.0, ["a", "x"]);
    let elsewhere = store.schedules(&tenant("acme"), cursor.as_deref(), 9).await;
    assert_eq!(elsewhere, Err(ListError::Cursor));
    for (name, count) in [("default", 3), ("acme", 2), ("nobody", 0)] {
        assert_eq!(store.schedule_count(&tenant(name)).await.unwrap(), count, "{name}");
    }
}

pub(in super::super) async fn an_extended_suspension_has_one_entry_at_its_new_place(
    store: Arc<dyn Store>,
) {
    let held = claim_conversation(&*store, "a").await;
    let mut first = commit(1, 1);
    first.opened = vec![pending_call("call_1", 1, 60), pending_call("call_2", 1, 90)];
    store.append(&id("a"), &held, first.clone()).await.unwrap();
    let before = first.opened[0].clone();
    let extended = PendingCall { expires_at: at(120), ..before.clone() };
    let mut second = commit(2, 2);
    second.closed = vec![closed_suspension(&before)];
    second.opened = vec![extended.clone()];
    store.append(&id("a"), &held, second).await.unwrap();
    let page = store.inbox(&own(), &Default::default(), None, 9).await.unwrap();
    let pending: Vec<_> = page.items.into_iter().map(|entry| entry.pending).collect();
    assert_eq!(pending, [first.opened[1].clone(), extended.clone()]);
    let mut third = commit(3, 3);
    third.closed = vec![closed_suspension(&extended), closed_suspension(&first.opened[1])];
    store.append(&id("a"), &held, third).await.unwrap();
    assert_eq!(store.inbox(&own(), &Default::default(), None, 9).await.unwrap().items, []);
}
