//! A conversation in memory, or quarantined, as operators see it.

use abide_actors::identity::{Epoch, NodeName};
use abide_actors::journal::{Claim, ConversationSummary};
use abide_actors::request::Inspection;
use abide_conversation::state::ConversationStatus;
use abide_conversation::{ConversationId, Scoped, Seq, Timestamp};
use serde::{Deserialize, Serialize};

use crate::host::{ActorHandle, Quarantined};

/// A live or quarantined conversation in a listing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActorSummary {
    pub conversation_id: Scoped<ConversationId>,
    pub node: NodeName,
    pub epoch: Epoch,
    pub state: ConversationStatus,
    pub seq: Seq,
    pub since: Timestamp,
    /// Deliveries that the actor has not taken up.
    pub mailbox_depth: usize,
    pub open_calls: usize,
    /// Restarts after a crash, by this process.
    pub restarts: u32,
    pub bytes_held: usize,
    /// Whether it is quarantined, and has no actor.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_quarantined: bool,
}

/// All that its node knows of a conversation's actor, live or quarantined.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ActorDetails {
    pub live: Option<(ActorSummary, Box<Inspection>)>,
    pub quarantined: Option<Quarantined>,
}

impl ActorSummary {
    /// The summary of a conversation whose live actor is `handle`.
    pub fn new(id: &Scoped<ConversationId>, handle: &ActorHandle, live: &Inspection) -> Self {
        let streaming_bytes =
            live.streaming.as_ref().map(|partial| partial.text.len() + partial.thinking.len());
        let state_bytes =
            serde_json::to_string(&live.state).map(|text| text.len()).unwrap_or_default();
        Self {
            conversation_id: id.clone(),
            node: live.claim.holder.node.clone(),
            epoch: live.claim.epoch,
            state: live.state.status().with_streaming(live.streaming.is_some()),
            seq: live.state.seq,
            since: handle.since,
            mailbox_depth: handle.mailbox_depth(),
            open_calls: live.state.open_calls(),
            restarts: handle.restarts,
            bytes_held: state_bytes + streaming_bytes.unwrap_or_default(),
            is_quarantined: false,
        }
    }

    /// The summary of a conversation that its holder has quarantined, as the store has it.
    pub fn of_quarantined(
        id: &Scoped<ConversationId>,
        claim: Claim,
        stored: &ConversationSummary,
        quarantined: &Quarantined,
    ) -> Self {
        Self {
            conversation_id: id.clone(),
            node: claim.holder.node,
            epoch: claim.epoch,
            state: stored.status,
            seq: stored.last_seq,
            since: quarantined.since,
            mailbox_depth: 0,
            open_calls: 0,
            restarts: 0,
            bytes_held: 0,
            is_quarantined: true,
        }
    }
}
