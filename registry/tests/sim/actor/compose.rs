//! Everything that one decision of a simulated conversation writes.

use std::sync::Arc;

use abide_actors::journal::{
    ClosedSuspension, Commit, ConversationSummary, ListEntry, Relisting, StoredResponse,
};
use abide_actors::usage_counts::UsageCounts;
use abide_conversation::event::Event;
use abide_conversation::state::{Call, PendingCall, QueueEntry};
use abide_conversation::{AgentName, Seq, State, Timestamp, wanted};
use serde_json::json;

/// How many events may follow the stored state.
const CACHE_EVERY: u64 = 16;

pub(super) fn stored_response(key: String, seq: Seq) -> StoredResponse {
    StoredResponse { key, fingerprint: String::new(), body: json!(seq), expires_at: Timestamp::MAX }
}

/// Everything that one decision writes.
pub fn compose(
    before: &State,
    next: &State,
    events: Vec<Event>,
    response: Option<StoredResponse>,
    cached_seq: Seq,
) -> Commit {
    let usage = UsageCounts::of(&events).filter(|_| before.forking.is_none());
    let entries = |state: &State| -> Vec<QueueEntry> {
        let calls = state.turn.iter().flat_map(|turn| &turn.calls);
        calls.filter_map(Call::queue_entry).collect()
    };
    let queued = Some(entries(next)).filter(|now| *now != entries(before));
    let (was_pending, after) = (before.pending_calls(), next.pending_calls());
    let among = |all: &[PendingCall], one: &PendingCall| {
        all.iter().any(|it| (&it.call_id, it.suspension) == (&one.call_id, one.suspension))
    };
    let closed = |it: &PendingCall| ClosedSuspension {
        call_id: it.call_id.clone(),
        suspension: it.suspension,
        expires_at: it.expires_at,
    };
    let relisting = match (before.exists(), before.active_at == next.active_at) {
        (false, _) => Relisting::whole(),
        (true, true) => Relisting::Unchanged,
        (true, false) => Relisting::Touched,
    };
    let cache = next.seq.since(cached_seq) >= CACHE_EVERY;
    Commit {
        usage,
        events: events.into(),
        summary: summary(next),
        opened: after.iter().filter(|it| !among(&was_pending, it)).cloned().collect(),
        closed: was_pending.iter().filter(|it| !among(&after, it)).map(closed).collect(),
        state: cache.then(|| Arc::new(next.clone())),
        responses: response.into_iter().collect(),
        resets_deaths: false,
        json: None,
        owed: Vec::new(),
        queued,
        relisting,
    }
}

pub(super) fn summary(next: &State) -> ConversationSummary {
    ConversationSummary {
        agent: next.agent.clone().unwrap_or_else(|| AgentName::new("")),
        status: next.status(),
        last_seq: next.seq,
        created_at: next.created_at.unwrap_or(Timestamp::UNIX_EPOCH),
        metadata: next.metadata.clone(),
        participants: Default::default(),
        alarm: next.alarm(),
        active: !wanted(next).is_empty(),
        listing: ListEntry::of(next),
    }
}
