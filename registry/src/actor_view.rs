//! A live conversation as operators see it.

use abide_actors::request::Inspection;
use abide_conversation::state::ConversationStatus;
use abide_conversation::{ConversationId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::host::{ActorHandle, Quarantined};

/// One line of a listing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActorSummary {
    pub conversation_id: ConversationId,
    pub node: String,
    pub epoch: u64,
    pub state: ConversationStatus,
    pub seq: u64,
    pub since: Timestamp,
    /// Deliveries that it has not taken up.
    pub mailbox_depth: usize,
    pub open_calls: usize,
    /// After a crash, by this process.
    pub restarts: u32,
    pub bytes_held: usize,
}

/// All that its node knows of a conversation, live or given up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ActorDetails {
    pub live: Option<(ActorSummary, Box<Inspection>)>,
    pub quarantined: Option<Quarantined>,
}

impl ActorSummary {
    /// The line of a conversation that lives under `handle`.
    pub fn new(id: &ConversationId, handle: &ActorHandle, live: &Inspection) -> Self {
        let streaming = live.streaming.as_ref().map(|said| said.text.len() + said.thinking.len());
        let folded = serde_json::to_string(&live.state).map(|text| text.len()).unwrap_or_default();
        Self {
            conversation_id: id.clone(),
            node: live.claim.holder.node.clone(),
            epoch: live.claim.epoch,
            state: live.state.status().with_streaming(live.streaming.is_some()),
            seq: live.state.seq,
            since: handle.since,
            mailbox_depth: handle.depth(),
            open_calls: live.state.open_calls(),
            restarts: handle.restarts,
            bytes_held: folded + streaming.unwrap_or_default(),
        }
    }
}
