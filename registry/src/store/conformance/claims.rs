//! Promises about claims: one holder at a time, and epochs that only grow.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use abide_actors::identity::{Epoch, Incarnation};
use abide_actors::journal::{
    Claim, ClaimedConversation, Commit, Holder, ResponseScope, StoreError,
};
use tokio::task::JoinSet;

use super::super::{Occupancy, Store};
use super::fixtures::*;

pub(in super::super) async fn one_of_many_claimants_wins_and_all_learn_which(
    store: Arc<dyn Store>,
) {
    let mut claimants = JoinSet::new();
    for node in 0..32 {
        let store = Arc::clone(&store);
        let claim = async move { store.claim(&id("a"), &holder(&node.to_string()), None).await };
        claimants.spawn(claim);
    }
    let holding = store.claim(&id("a"), &holder("late"), None).await.unwrap();
    for seen in claimants.join_all().await {
        assert_eq!(seen.unwrap(), holding);
    }
    assert_eq!(store.current_claim(&id("a")).await, Ok(Some(holding)));
}

pub(in super::super) async fn a_claim_of_the_present_holder_changes_nothing(store: Arc<dyn Store>) {
    let held = claim_conversation(&*store, "a").await;
    assert_eq!(held.holder, holder("n"));
    assert_eq!(claim_conversation(&*store, "a").await, held);
    let other = store.claim(&id("a"), &holder("m"), Some(&holder("l"))).await;
    assert_eq!(other, Ok(held));
}

pub(in super::super) async fn a_node_fences_its_own_former_actor(store: Arc<dyn Store>) {
    let former = create_conversation(&*store, "a").await;
    let me = former.holder.clone();
    let next = store.claim(&id("a"), &me, Some(&me)).await.unwrap();
    assert!(next.holder == me && next.epoch > former.epoch);
    let late = store.append(&id("a"), &former, commit(2, 2)).await;
    assert_eq!(late, Err(StoreError::Fenced));
}

pub(in super::super) async fn a_claim_over_a_dead_holder_raises_the_epoch(store: Arc<dyn Store>) {
    let old = create_conversation(&*store, "a").await;
    let mut claimants = JoinSet::new();
    for node in 0..16 {
        let (store, dead) = (Arc::clone(&store), old.holder.clone());
        claimants.spawn(async move {
            store.claim(&id("a"), &holder(&node.to_string()), Some(&dead)).await.unwrap()
        });
    }
    let seen = claimants.join_all().await;
    assert!(seen[0].epoch > old.epoch);
    assert!(seen.iter().all(|holding| *holding == seen[0]), "{seen:?}");
    assert_eq!(store.current_claim(&id("a")).await, Ok(Some(seen[0].clone())));
}

pub(in super::super) async fn a_claim_over_the_wrong_holder_changes_nothing(store: Arc<dyn Store>) {
    let held = claim_conversation(&*store, "a").await;
    let earlier = Holder { incarnation: Incarnation::new("0"), ..holder("n") };
    assert_eq!(store.claim(&id("a"), &holder("m"), Some(&earlier)).await, Ok(held.clone()));
    assert_eq!(store.claim(&id("a"), &earlier, None).await, Ok(held));
}

pub(in super::super) async fn claim_and_load_returns_the_journal_only_to_the_holder(
    store: Arc<dyn Store>,
) {
    let (me, other) = (holder("n"), holder("m"));
    let claimed = store.claim_and_load(&id("a"), &me, None).await.unwrap();
    let held = claimed.claim;
    assert_eq!((&held.holder, claimed.stored), (&me, None));
    store.append(&id("a"), &held, commit(1, 3)).await.unwrap();
    let lost = store.claim_and_load(&id("a"), &other, Some(&other)).await;
    let lost_claim =
        ClaimedConversation { claim: held.clone(), deaths: 0, alarm: None, stored: None };
    assert_eq!(lost, Ok(lost_claim));
    let next = store.claim_and_load(&id("a"), &other, Some(&me)).await.unwrap();
    assert!(next.claim.holder == other && next.claim.epoch > held.epoch, "{next:?}");
    assert_eq!(next.stored.unwrap().events, *commit(1, 3).events);
    assert_eq!(store.append(&id("a"), &held, commit(4, 4)).await, Err(StoreError::Fenced));
    let again = store.claim_and_load(&id("a"), &other, None).await.unwrap();
    assert_eq!((again.alarm, again.stored), (None, store.load(&id("a")).await.unwrap()));
    let mut woken = commit(4, 4);
    woken.summary.alarm = Some(at(60));
    store.append(&id("a"), &again.claim, woken).await.unwrap();
    let again = store.claim_and_load(&id("a"), &other, None).await.unwrap();
    assert_eq!(again.alarm, Some(at(60)));
}

pub(in super::super) async fn the_first_commit_of_what_is_new_claims_it(store: Arc<dyn Store>) {
    let (me, other) = (holder("n"), holder("m"));
    assert_eq!(store.occupancy(&id("a")).await, Ok(Occupancy::New));
    let held = store.claim_and_append(&id("a"), &me, working_commit(1)).await.unwrap();
    assert!(held.holder == me && held.epoch > Epoch::ZERO, "{held:?}");
    assert_eq!(store.occupancy(&id("a")).await, Ok(Occupancy::Held(held.clone())));
    store.append(&id("a"), &held, commit(2, 3)).await.unwrap();
    let stored = store.load(&id("a")).await.unwrap().unwrap();
    assert_eq!(stored.events.len(), 3);
    // The end of that holder is a death, as of any other.
    let next = store.claim_and_load(&id("a"), &other, Some(&me)).await.unwrap();
    assert!(next.claim.epoch > held.epoch, "{next:?}");
}

pub(in super::super) async fn a_first_commit_claims_nothing_that_is_held_or_exists(
    store: Arc<dyn Store>,
) {
    let (me, other) = (holder("n"), holder("m"));
    let claim_by = async |me: &Holder| store.claim_and_append(&id("a"), me, commit(1, 2)).await;
    let held = claim_conversation(&*store, "a").await;
    assert_eq!(held.holder, me);
    assert_eq!(claim_by(&other).await, Err(StoreError::Conflict));
    assert_eq!(claim_by(&me).await, Err(StoreError::Conflict), "another actor of the same node");
    assert_eq!(store.load(&id("a")).await, Ok(None));
    store.append(&id("a"), &held, commit(1, 3)).await.unwrap();
    assert_eq!(claim_by(&me).await, Err(StoreError::Conflict));
    store.release(&id("a"), &held).await.unwrap();
    assert_eq!(store.occupancy(&id("a")).await, Ok(Occupancy::Unheld));
    assert_eq!(claim_by(&me).await, Err(StoreError::Conflict));
    assert_eq!(store.current_claim(&id("a")).await, Ok(None));
    assert_eq!(store.load(&id("a")).await.unwrap().unwrap().events, *commit(1, 3).events);
    let late = store.claim_and_append(&id("b"), &me, commit(2, 3)).await;
    assert_eq!(late, Err(StoreError::Conflict), "it is no first commit");
    assert_eq!(store.occupancy(&id("b")).await, Ok(Occupancy::New));
}

pub(in super::super) async fn a_first_commit_after_a_deletion_has_a_later_epoch(
    store: Arc<dyn Store>,
) {
    let me = holder("n");
    let first = store.claim_and_append(&id("a"), &me, commit(1, 2)).await.unwrap();
    store.delete(&id("a"), &first, None, Vec::new()).await.unwrap();
    let second = store.claim_and_append(&id("a"), &me, commit(1, 1)).await.unwrap();
    assert!(second.epoch > first.epoch, "{first:?} {second:?}");
    assert_eq!(store.append(&id("a"), &first, commit(2, 2)).await, Err(StoreError::Fenced));
    assert_eq!(store.load(&id("a")).await.unwrap().unwrap().events.len(), 1);
}

pub(in super::super) async fn a_first_commit_keeps_its_responses(store: Arc<dyn Store>) {
    let first = Commit { responses: vec![response("key:1", "one", 60)], ..commit(1, 2) };
    store.claim_and_append(&id("a"), &holder("n"), first).await.unwrap();
    let scope = ResponseScope::Conversation(id("a"));
    let stored = store.stored_response(&scope, "key:1", at(0)).await;
    assert_eq!(stored, Ok(Some(response("key:1", "one", 60))));
}

/// A commit of one event, after which the conversation is at work.
fn working_commit(seq: u64) -> Commit {
    let mut commit = commit(seq, seq);
    commit.summary.active = true;
    commit
}

/// The deaths that a claim of `me` over the dead holder finds.
async fn deaths_over(store: &dyn Store, me: &Holder, dead: Option<&Holder>) -> (Claim, u32) {
    let claimed = store.claim_and_load(&id("a"), me, dead).await.unwrap();
    assert_eq!(claimed.claim.holder, *me);
    (claimed.claim, claimed.deaths)
}

pub(in super::super) async fn deaths_are_counted_until_a_commit_resets_them(store: Arc<dyn Store>) {
    let mut last = holder("0");
    let (held, deaths) = deaths_over(&*store, &last, None).await;
    assert_eq!(deaths, 0);
    store.append(&id("a"), &held, working_commit(1)).await.unwrap();
    for n in 1..=6 {
        let next = holder(&n.to_string());
        let (held, deaths) = deaths_over(&*store, &next, Some(&last)).await;
        assert_eq!(deaths, n);
        // The former actor of the same holder, and a repeat of the claim, are no deaths.
        assert_eq!(deaths_over(&*store, &next, Some(&last)).await, (held, n));
        let (held, deaths) = deaths_over(&*store, &next, Some(&next)).await;
        assert_eq!(deaths, n);
        store.append(&id("a"), &held, working_commit(u64::from(n) + 1)).await.unwrap();
        last = next;
    }
    let (held, _) = deaths_over(&*store, &last, None).await;
    let completed = Commit { resets_deaths: true, ..working_commit(8) };
    store.append(&id("a"), &held, completed).await.unwrap();
    let next = Holder { incarnation: Incarnation::new("2"), ..last.clone() };
    let (_, deaths) = deaths_over(&*store, &next, Some(&last)).await;
    assert_eq!(deaths, 1, "a node that was started again did not count as another holder");
    store.reset_deaths(&id("a")).await.unwrap();
    let (held, deaths) = deaths_over(&*store, &next, None).await;
    assert_eq!(deaths, 0);
    let (_, deaths) = deaths_over(&*store, &last, Some(&next)).await;
    assert_eq!(deaths, 1);
    assert!(store.delete(&id("a"), &held, None, Vec::new()).await.is_err());
    let (held, _) = deaths_over(&*store, &last, None).await;
    store.delete(&id("a"), &held, None, Vec::new()).await.unwrap();
    assert_eq!(deaths_over(&*store, &last, None).await.1, 0, "a deletion left the count");
}

pub(in super::super) async fn deaths_under_which_nothing_ran_are_not_counted(
    store: Arc<dyn Store>,
) {
    let (held, _) = deaths_over(&*store, &holder("0"), None).await;
    // Parked: it waits for a person.
    store.append(&id("a"), &held, commit(1, 1)).await.unwrap();
    for n in 1..=6 {
        let (last, next) = (holder(&(n - 1).to_string()), holder(&n.to_string()));
        assert_eq!(deaths_over(&*store, &next, Some(&last)).await.1, 0);
    }
    // A holder that hands its claim over, or gives it up, is not dead.
    let (held, _) = deaths_over(&*store, &holder("6"), None).await;
    store.append(&id("a"), &held, working_commit(2)).await.unwrap();
    let (last, next) = (holder("6"), holder("7"));
    let handed_over = store.claim(&id("a"), &next, Some(&last)).await.unwrap();
    assert_eq!(deaths_over(&*store, &next, Some(&next)).await.1, 0);
    assert_eq!(handed_over.holder, next);
    let (held, _) = deaths_over(&*store, &next, None).await;
    store.release(&id("a"), &held).await.unwrap();
    assert_eq!(deaths_over(&*store, &last, Some(&next)).await.1, 0);
}

pub(in super::super) async fn no_epoch_is_given_twice(store: Arc<dyn Store>) {
    let mut last = Epoch::ZERO;
    for round in 0..6 {
        let held = claim_conversation(&*store, "a").await;
        assert!(held.epoch > last, "{} after {last}", held.epoch);
        last = held.epoch;
        match round {
            0 => store.append(&id("a"), &held, commit(1, 1)).await.unwrap(),
            3 => store.delete(&id("a"), &held, None, Vec::new()).await.unwrap(),
            _ => {}
        }
        store.release(&id("a"), &held).await.unwrap();
        assert_eq!(store.current_claim(&id("a")).await, Ok(None));
    }
}

pub(in super::super) async fn a_stale_release_changes_nothing(store: Arc<dyn Store>) {
    let old = create_conversation(&*store, "a").await;
    let new = store.claim(&id("a"), &holder("m"), Some(&old.holder)).await.unwrap();
    store.release(&id("a"), &old).await.unwrap();
    let same_epoch = Claim { holder: old.holder, epoch: new.epoch };
    store.release(&id("a"), &same_epoch).await.unwrap();
    assert_eq!(store.current_claim(&id("a")).await, Ok(Some(new)));
    store.release(&id("b"), &same_epoch).await.unwrap();
}
