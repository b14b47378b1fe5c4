//! Tells other nodes what their listeners want to know, and what this one listens to.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use abide_actors::live::Signal;
use abide_conversation::ConversationId;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use super::Hub;
use crate::cluster_client::ClusterClient;
use crate::member::LinkState;
use crate::protocol::LiveUpdate;

/// How much may wait to be told to one node. Past that its listeners lose deltas, and read what was
/// journalled from the store.
const WAITING: usize = 4_096;
/// How many pieces of news travel at once: little is under way then, and much when much happens.
const AT_ONCE: usize = 256;
/// Events do not travel past so many bytes of them in one call: listeners read them from the store.
const EVENTS_BYTES: usize = 512 << 10;
/// How many conversations are named at once as listened to.
const LISTENS: usize = 5_000;
/// How long to wait before telling everything anew.
const BREATH: Duration = Duration::from_millis(100);

/// Something to tell another node.
#[derive(Debug)]
pub(super) enum News {
    Listen(ConversationId),
    Unlisten(ConversationId),
    Signal(ConversationId, Signal),
    /// It has forgotten what it was told.
    Anew,
    /// Answered when all before it was heard.
    Barrier(oneshot::Sender<()>),
}

/// What waits to be told to one node.
#[derive(Debug)]
pub(super) struct Outbox {
    news: mpsc::Sender<News>,
    /// Something did not fit: everything is to be told anew.
    overflown: Arc<AtomicBool>,
}

impl Outbox {
    pub(super) fn put(&self, news: News) {
        if self.news.try_send(news).is_err() {
            metrics::counter!("abide_deltas_dropped_total").increment(1);
            self.overflown.store(true, Ordering::Relaxed);
        }
    }
}

/// Runs until it is dropped: one teller for each node that is connected.
pub async fn relay(hub: Hub, cluster: ClusterClient) {
    let mut tellers: HashMap<String, AbortOnDropHandle<()>> = HashMap::new();
    let mut seen = cluster.watch();
    loop {
        let links = seen.borrow_and_update().links.clone();
        let connected = |process: &String| links.get(process) == Some(&LinkState::Connected);
        let gone: Vec<String> = tellers.keys().filter(|known| !connected(known)).cloned().collect();
        for process in gone {
            tellers.remove(&process);
            let mut plane = hub.plane();
            plane.outboxes.remove(&process);
            plane.forget(&process);
            // What its conversations did meanwhile was not heard.
            plane.miss();
        }
        for process in links.keys().filter(|process| connected(process)) {
            if tellers.contains_key(process) {
                continue;
            }
            let (news, told) = mpsc::channel(WAITING);
            let overflown = Arc::new(AtomicBool::new(false));
            let outbox = Outbox { news, overflown: overflown.clone() };
            hub.plane().outboxes.insert(process.clone(), outbox);
            let teller = tell(hub.clone(), cluster.clone(), process.clone(), told, overflown);
            tellers.insert(process.clone(), AbortOnDropHandle::new(tokio::spawn(teller)));
        }
        if seen.changed().await.is_err() {
            return;
        }
    }
}

/// Tells one node, batch after batch; after a loss, everything anew.
async fn tell(
    hub: Hub,
    cluster: ClusterClient,
    process: String,
    mut news: mpsc::Receiver<News>,
    overflown: Arc<AtomicBool>,
) {
    // What it told this node before went with its former connection, too.
    let (mut anew, mut missed, mut forgot) = (true, false, true);
    // What is listened to, as far as it does not fit into one call.
    let mut listened = Vec::new();
    loop {
        let mut batch = Vec::new();
        if !anew && listened.is_empty() && news.recv_many(&mut batch, AT_ONCE).await == 0 {
            return;
        }
        let forgotten = batch.iter().any(|news| matches!(news, News::Anew));
        if overflown.swap(false, Ordering::Relaxed) || anew || forgotten {
            (anew, missed) = (true, true);
        }
        let mut told = LiveUpdate { anew, missed, forgot, ..LiveUpdate::default() };
        if anew {
            // What waits is older than this, or is in it.
            while news.try_recv().map(|one| batch.push(one)).is_ok() {}
            listened = hub.plane().listened();
        }
        told.listen = listened.split_off(listened.len().saturating_sub(LISTENS));
        let heard = pack(batch, &mut told);
        match cluster.call_process(&process, told).await {
            Ok(()) => {
                (anew, missed, forgot) = (false, false, false);
                for barrier in heard {
                    // Who waited may have gone.
                    let _ = barrier.send(());
                }
            }
            Err(_) => {
                (anew, missed) = (true, true);
                metrics::counter!("abide_relays_lost_total").increment(1);
                tokio::time::sleep(BREATH).await;
            }
        }
    }
}

/// Sorts a batch. Returns who waits for it to be heard.
fn pack(batch: Vec<News>, told: &mut LiveUpdate) -> Vec<oneshot::Sender<()>> {
    let (mut barriers, mut bytes) = (Vec::new(), 0);
    for news in batch {
        match news {
            News::Barrier(reply) => barriers.push(reply),
            // Its listeners look at the journal.
            News::Signal(..) if told.anew => {}
            News::Signal(id, signal) => told.signals.push((id, light(signal, &mut bytes))),
            // It was counted when everything was told anew.
            News::Listen(_) | News::Unlisten(_) if told.anew => {}
            News::Anew => {}
            News::Listen(id) => {
                told.unlisten.retain(|other| *other != id);
                told.listen.push(id);
            }
            News::Unlisten(id) => {
                told.listen.retain(|other| *other != id);
                told.unlisten.push(id);
            }
        }
    }
    barriers
}

/// A signal that is not too large to travel with others that have so many `bytes`.
fn light(signal: Signal, bytes: &mut usize) -> Signal {
    let Signal::Committed(events) = &signal else { return signal };
    *bytes += serde_json::to_vec(events).map_or(0, |json| json.len());
    if *bytes > EVENTS_BYTES { Signal::Revived } else { signal }
}
