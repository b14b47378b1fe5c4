//! Puts and deletions of one schedule at once, in every order of their steps.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};

use abide_actors::blobs::{Blob, BlobHold, BlobHolder, Blobs};
use abide_conversation::{BlobId, ScheduleName, Scoped, Timestamp};
use abide_registry::schedule_changes;
use abide_registry::schedules::Schedule;
use abide_registry::store::{BlobNames, Lists, Rebuild, Schedules};
use futures::FutureExt;
use serde_json::json;

use crate::flaky_store::FlakyStore;

/// The steps of which every order is tried; what comes after them is one after the other.
const ORDERED_STEPS: u32 = 12;
/// More attempts than two changes take from each other.
const MAX_ATTEMPTS: usize = 8;

fn name() -> Scoped<ScheduleName> {
    Scoped::parse("daily").unwrap()
}

fn blob(text: &str) -> (Scoped<BlobId>, Blob) {
    let blob = Blob::new("text/plain", text.to_owned());
    (name().sibling(&blob.id()), blob)
}

/// A schedule of the N-th put, whose message names the blob.
fn schedule(number: u64, blob: &Scoped<BlobId>) -> Schedule {
    let schedule = json!({
        "name": "daily", "version": 1_000 * number, "agent": "a", "if_busy": "Queue",
        "rhythm": {"every_ms": 3_600_000}, "missed": "last", "paused": false, "principal": "ada",
        "content": [{"type": "text", "text": format!("see {}", blob.local())}],
        "created_at": Timestamp::UNIX_EPOCH, "put_at": Timestamp::UNIX_EPOCH,
        "put_id": format!("put_{number}"),
    });
    serde_json::from_value(schedule).unwrap()
}

/// Puts as the HTTP API does: what is named is held first.
async fn put(store: &FlakyStore, wanted: Schedule) {
    let now = Timestamp::UNIX_EPOCH;
    let hold = BlobHold::new(wanted.blob_holder(), now);
    for blob in wanted.named_blobs() {
        if store.hold_blob(&name().sibling(&blob), &hold).await.unwrap().is_none() {
            // It is refused: the blob is not found.
            return;
        }
    }
    for _ in 0..MAX_ATTEMPTS {
        let before = store.schedule(&name()).await.unwrap();
        let next = match &before {
            Some(before) => wanted.clone().in_place_of(before),
            None => wanted.clone(),
        };
        let (before, next) = (before.as_ref(), Some(&next));
        if schedule_changes::replace(store, &name(), before, next, now).await.unwrap() {
            return;
        }
    }
    panic!("nothing was written");
}

async fn delete(store: &FlakyStore) {
    for _ in 0..MAX_ATTEMPTS {
        let Some(before) = store.schedule(&name()).await.unwrap() else { return };
        let now = Timestamp::UNIX_EPOCH;
        if schedule_changes::replace(store, &name(), Some(&before), None, now).await.unwrap() {
            return;
        }
    }
    panic!("nothing was removed");
}

/// Runs both, a step of either at a time, as the bits say.
fn run_in_order(order: u32, one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one.fuse()), pin!(other.fuse()));
    let mut context = Context::from_waker(Waker::noop());
    let mut done = [false; 2];
    for step in 0.. {
        let is_first = order & 1_u32.checked_shl(step).unwrap_or(0) == 0;
        if (is_first && !done[0]) || done[1] {
            done[0] |= one.as_mut().poll(&mut context).is_ready();
        } else {
            done[1] |= other.as_mut().poll(&mut context).is_ready();
        }
        if done == [true; 2] {
            return;
        }
    }
}

/// A store in which the schedule has been put, naming the first of these blobs.
fn store_of(blobs: &[(Scoped<BlobId>, Blob)]) -> FlakyStore {
    let store = FlakyStore::default();
    let prepared = async {
        let now = Timestamp::UNIX_EPOCH;
        let rebuild = Rebuild::after(None, now).ended(now);
        assert!(store.replace_rebuild(None, &rebuild).await.unwrap());
        for (id, blob) in blobs {
            store.put_blob(id, blob).await.unwrap();
        }
        put(&store, schedule(1, &blobs[0].0)).await;
    };
    prepared.now_or_never().unwrap();
    store.in_steps.store(true, Ordering::SeqCst);
    store
}

/// Panics unless exactly the blobs are there, and held, that the schedule names.
fn check(store: &FlakyStore, blobs: &[(Scoped<BlobId>, Blob)], order: u32) {
    store.in_steps.store(false, Ordering::SeqCst);
    let checked = async {
        let schedule = store.schedule(&name()).await.unwrap();
        for (id, _) in blobs {
            let is_named =
                schedule.as_ref().is_some_and(|it| it.named_blobs().contains(&id.local()));
            let is_there = store.blob_info(id).await.unwrap().is_some();
            assert_eq!(is_there, is_named, "{order:b} {schedule:?}");
            let holds = store.blob_holds(id).await.unwrap();
            let holders: Vec<BlobHolder> = holds.into_iter().map(|hold| hold.holder).collect();
            let expected = schedule.iter().filter(|_| is_named).map(Schedule::blob_holder);
            assert_eq!(holders, expected.collect::<Vec<_>>(), "{order:b}");
        }
    };
    checked.now_or_never().unwrap();
}

#[test]
fn a_put_and_a_deletion_at_once_keep_the_blobs_of_a_schedule_that_is_there_and_no_others() {
    let blobs = [blob("one"), blob("two")];
    for named in 0..blobs.len() {
        for order in 0..1 << ORDERED_STEPS {
            // The second blob goes unless it is named.
            let store = store_of(&blobs[..=named]);
            let put = put(&store, schedule(2, &blobs[named].0));
            run_in_order(order, put, delete(&store));
            check(&store, &blobs[..=named], order);
        }
    }
}

#[test]
fn of_two_puts_at_once_the_blobs_of_the_one_that_counts_are_kept() {
    let blobs = [blob("one"), blob("two"), blob("three")];
    for order in 0..1 << ORDERED_STEPS {
        let store = store_of(&blobs);
        let second = put(&store, schedule(2, &blobs[1].0));
        run_in_order(order, second, put(&store, schedule(3, &blobs[2].0)));
        check(&store, &blobs, order);
    }
}

/// Whoever puts or deletes may die after any of its steps. What it leaves held runs out by itself.
#[test]
fn a_change_that_ends_after_any_step_takes_no_blob_of_the_schedule_that_is_there() {
    let blobs = [blob("one"), blob("two")];
    for steps in 0..ORDERED_STEPS {
        for is_put in [false, true] {
            let store = store_of(&blobs);
            let change = async {
                if is_put {
                    put(&store, schedule(2, &blobs[1].0)).await;
                } else {
                    delete(&store).await;
                }
            };
            run_steps(change, steps);
            check_present(&store, (is_put, steps));
        }
    }
}

/// Runs this number of steps of the change, or fewer if it is done.
fn run_steps(change: impl Future<Output = ()>, steps: u32) {
    let mut change = pin!(change.fuse());
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..steps {
        if change.as_mut().poll(&mut context).is_ready() {
            return;
        }
    }
}

/// Panics unless the blobs are there, and held, that the schedule names.
fn check_present(store: &FlakyStore, which: (bool, u32)) {
    store.in_steps.store(false, Ordering::SeqCst);
    let checked = async {
        let Some(schedule) = store.schedule(&name()).await.unwrap() else { return };
        for blob in schedule.named_blobs() {
            let holds = store.blob_holds(&name().sibling(&blob)).await.unwrap();
            let is_held = holds.iter().any(|hold| hold.holder == schedule.blob_holder());
            assert!(is_held, "{which:?}: {schedule:?}");
        }
    };
    checked.now_or_never().unwrap();
}
