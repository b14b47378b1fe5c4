//! Finds events that listeners were not sent, by comparing with the journals in the store.

use std::sync::Arc;
use std::time::Duration;

use abide_actors::live::Signal;
use abide_conversation::{ConversationId, Scoped, Seq};

use super::{Hub, StreamItem};
use crate::cluster_client::ClusterClient;
use crate::store::Store;

/// How late, at worst, a listener learns of an event on a node that could not send it.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How many conversations are read at once.
const BATCH_SIZE: usize = 1_000;

/// Runs until it is dropped.
pub async fn detect_gaps(hub: Hub, store: Arc<dyn Store>, cluster: ClusterClient) {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        hub.plane().sweep_publications();
        // Listeners get all events of their own node.
        if cluster.view().others().next().is_none() {
            continue;
        }
        let view = cluster.view();
        if view.others().any(|member| !view.reaches(member)) {
            hub.report_missed_children();
        }
        let subscriptions = hub.plane().local_subscriptions();
        for ids in subscriptions.chunks(BATCH_SIZE) {
            // A store that is away shows nothing new.
            let Ok(seqs) = store.last_seqs(ids).await else { break };
            for (id, seq) in ids.iter().zip(seqs) {
                // Listeners are told of a deletion only when no fail-over can take it back.
                if seq.is_none() && !matches!(store.summary(id).await, Ok(None)) {
                    continue;
                }
                hub.compare(id, seq);
            }
        }
    }
}

impl Hub {
    /// Has listeners of roots read what their descendants wait for: one may be on a node that cannot
    /// send it.
    fn report_missed_children(&self) {
        let plane = self.plane();
        let roots = plane.channels.values().filter(|channel| channel.has_children);
        roots.for_each(|channel| channel.send(StreamItem::Missed));
    }

    /// Compares the last event that listeners were sent with the last one of the journal.
    fn compare(&self, id: &Scoped<ConversationId>, seq: Option<Seq>) {
        let mut plane = self.plane();
        let Some(channel) = plane.channels.get_mut(id) else { return };
        match seq {
            Some(seq) if seq > channel.last_seq => {
                channel.last_seq = seq;
                channel.send(StreamItem::Missed);
            }
            Some(_) => {}
            None => channel.send_signal(Signal::Deleted),
        }
    }
}
