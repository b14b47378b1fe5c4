//! Load for fail-over tests: conversations that append all the time and remember what was
//! acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use abide_actors::journal::StoreError;
use abide_conversation::{Event, Seq};
use tokio::task::JoinSet;

use super::super::super::Store;
use super::super::super::conformance::*;
use super::servers::wait_until;

const CONVERSATIONS: usize = 8;

/// Conversations that append until `end_and_check`.
pub(super) struct Load {
    acknowledged: Arc<Vec<AtomicUsize>>,
    stop: Arc<AtomicBool>,
    running: JoinSet<(String, Vec<Event>)>,
}

impl Load {
    pub(super) fn start(store: Arc<dyn Store>) -> Self {
        let acknowledged = (0..CONVERSATIONS).map(|_| AtomicUsize::new(0)).collect();
        let acknowledged: Arc<Vec<AtomicUsize>> = Arc::new(acknowledged);
        let stop = Arc::new(AtomicBool::new(false));
        let mut running = JoinSet::new();
        for lane in 0..CONVERSATIONS {
            let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
            let counts = Arc::clone(&acknowledged);
            running.spawn(async move {
                let name = format!("lane-{lane}");
                let acknowledged_events = append(&*store, &name, &counts[lane], &stop).await;
                (name, acknowledged_events)
            });
        }
        Self { acknowledged, stop, running }
    }

    /// Waits until each conversation has had this many more commits acknowledged.
    pub(super) async fn wait_for_commits(&self, more: usize) {
        let counts = || self.acknowledged.iter().map(|count| count.load(Ordering::SeqCst));
        let before: Vec<_> = counts().collect();
        wait_until("every conversation goes on", async || {
            before.iter().zip(counts()).all(|(before, now)| now >= before + more)
        })
        .await;
    }

    pub(super) async fn end_and_check(self, store: &dyn Store) {
        self.stop.store(true, Ordering::SeqCst);
        for (name, acknowledged_events) in self.running.join_all().await {
            let events = store.events(&id(&name), Seq::ZERO, usize::MAX).await.unwrap();
            for (seq, event) in (1..).zip(&events) {
                assert_eq!(event.seq.get(), seq, "{name} has a gap");
            }
            for event in acknowledged_events {
                assert!(events.contains(&event), "{name} lost {event:?}");
            }
        }
    }
}

/// Appends and, after each refusal, continues from the state of the store. Returns what was
/// acknowledged.
async fn append(
    store: &dyn Store,
    name: &str,
    count: &AtomicUsize,
    stop: &AtomicBool,
) -> Vec<Event> {
    let mut acknowledged_events = Vec::new();
    let mut tries = 0;
    let mut held = None;
    let mut last = 0;
    while !stop.load(Ordering::SeqCst) {
        let Some(holding) = &held else {
            held = store.claim(&id(name), &holder("n"), None).await.ok();
            match store.summary(&id(name)).await {
                Ok(summary) => last = summary.map_or(0, |summary| summary.last_seq.get()),
                Err(_) => held = None,
            }
            if held.is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            continue;
        };
        tries += 1;
        let mut next = commit(last + 1, last + 1);
        if last > 0 {
            Arc::make_mut(&mut next.events)[0] = event_of(last + 1, &format!("try {tries}"));
        }
        let event = next.events[0].clone();
        match store.append(&id(name), holding, next).await {
            Ok(()) => {
                last += 1;
                acknowledged_events.push(event);
                count.fetch_add(1, Ordering::SeqCst);
            }
            Err(
                StoreError::Unavailable(_)
                | StoreError::Unreadable(_)
                | StoreError::Conflict
                | StoreError::Fenced,
            ) => held = None,
        }
    }
    acknowledged_events
}
