//! Finds what listeners were not told: the store knows how far each journal is.

use std::sync::Arc;
use std::time::Duration;

use abide_actors::live::Signal;
use abide_conversation::ConversationId;

use super::{Hub, StreamItem};
use crate::cluster_client::ClusterClient;
use crate::store::Store;

/// How late a listener hears at worst of what happened on a node that could not tell.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How many are asked for at once.
const AT_ONCE: usize = 1_000;

/// Runs until it is dropped.
pub async fn look_out(hub: Hub, store: Arc<dyn Store>, cluster: ClusterClient) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        // What happened here was told here.
        if cluster.view().others().next().is_none() {
            continue;
        }
        let listened = hub.plane().listened();
        for ids in listened.chunks(AT_ONCE) {
            // A store that is away has nothing new.
            let Ok(seqs) = store.last_seqs(ids).await else { break };
            for (id, seq) in ids.iter().zip(seqs) {
                hub.found(id, seq);
            }
        }
    }
}

impl Hub {
    /// Compares what listeners were told with how far the journal is.
    fn found(&self, id: &ConversationId, seq: Option<u64>) {
        let mut plane = self.plane();
        let Some(channel) = plane.channels.get_mut(id) else { return };
        match seq {
            Some(seq) if seq > channel.told => {
                channel.told = seq;
                channel.tell(StreamItem::Missed);
            }
            Some(_) => {}
            None => channel.tell_signal(Signal::Deleted),
        }
    }
}
