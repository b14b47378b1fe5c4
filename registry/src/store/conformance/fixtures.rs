//! The commits, claims and entries that the suite uses.
#![allow(clippy::unwrap_used)]

use abide_actors::blobs::Blob;
use abide_actors::identity::{Incarnation, NodeName};
use abide_actors::journal::{
    Claim, ClosedSuspension, Commit, ConversationSummary, Holder, ResponseScope,
    StoredConversation, StoredResponse,
};
use abide_conversation::event::{
    Created, EventData, Executor, Intent, Operated, RepairRequested, SuspensionKind,
};
use abide_conversation::state::{ConversationStatus, PendingCall};
use abide_conversation::{
    AgentName, BlobId, CallId, ConversationId, Event, Principal, Scoped, Seq, State, Tenant,
    Timestamp,
};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, json};

use super::super::{KeyRing, Store};

/// The keys of a key file that has these in this order: key 7 is named `k7`.
pub(crate) fn key_ring(numbers: &[u8]) -> KeyRing {
    KeyRing::parse(&key_file(numbers)).unwrap()
}

/// The text of [`key_ring`].
pub(crate) fn key_file(numbers: &[u8]) -> String {
    let lines = numbers.iter().map(|number| {
        let key = BASE64_STANDARD.encode([*number; 32]);
        format!("k{number}:{key}\n")
    });
    lines.collect()
}

/// The time N seconds after the suite's first moment.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// A conversation's id: `a`, or `acme/a`.
pub(crate) fn id(id: &str) -> Scoped<ConversationId> {
    scoped(id)
}

/// An id or name of any kind: `a`, or `acme/a`.
pub(in super::super) fn scoped<N>(id: &str) -> Scoped<N> {
    Scoped::parse(id).unwrap()
}

pub(in super::super) fn tenant(name: &str) -> Tenant {
    Tenant::parse(name).unwrap()
}

/// The tenant of what the tests name without one.
pub(in super::super) fn own() -> Tenant {
    Tenant::default()
}

/// The id of a blob of the tenant of [`own`].
pub(in super::super) fn blob_id(blob: &Blob) -> Scoped<BlobId> {
    Scoped::new(&own(), &blob.id())
}

/// The scope of a conversation's responses.
pub(in super::super) fn scope_of(name: &str) -> ResponseScope {
    ResponseScope::Conversation(id(name))
}

/// The scope of an agent's responses.
pub(in super::super) fn scope_of_agent(name: &str) -> ResponseScope {
    ResponseScope::Agent(scoped(name))
}

pub(crate) fn holder(node: &str) -> Holder {
    Holder { node: NodeName::new(node), incarnation: Incarnation::new("1") }
}

pub(crate) async fn claim_conversation(store: &dyn Store, name: &str) -> Claim {
    store.claim(&id(name), &holder("n"), None).await.unwrap()
}

pub(in super::super) fn event(seq: u64) -> Event {
    event_of(seq, "again")
}

pub(in super::super) fn event_of(seq: u64, reason: &str) -> Event {
    let data = match seq {
        1 => {
            let agent = AgentName::new("demo");
            let assigns = Map::new();
            EventData::Created(Created {
                agent,
                assigns,
                metadata: Map::new(),
                tools: Vec::new(),
                parent: None,
                fork: None,
                title: None,
                expires_at: None,
                owner: None,
                members: Vec::new(),
            })
        }
        _ => EventData::RepairRequested(RepairRequested { reason: reason.to_owned() }),
    };
    Event { seq: Seq::new(seq), at: at(0), turn_id: None, data }
}

/// An event of this subject.
pub(in super::super) fn event_by(seq: u64, subject: &str, reason: &str) -> Event {
    let data = EventData::Operated(Operated {
        by: Principal::new(subject),
        identity: None,
        verb: "retry".to_owned(),
        reason: Some(reason.to_owned()),
    });
    Event { data, ..event(seq) }
}

/// A conversation of which no state is cached.
pub(in super::super) fn uncached(events: Vec<Event>) -> StoredConversation {
    StoredConversation { state: State::default(), events, cached_seq: Seq::ZERO }
}

/// A commit of the events `first..=last` and nothing else.
pub(crate) fn commit(first: u64, last: u64) -> Commit {
    let summary = ConversationSummary {
        agent: AgentName::new("demo"),
        status: ConversationStatus::Idle,
        last_seq: Seq::new(last),
        created_at: at(0),
        metadata: Map::from_iter([("plan".to_owned(), json!("gold"))]),
        participants: Default::default(),
        alarm: None,
        active: false,
        listing: Default::default(),
    };
    let events = (first..=last).map(event).collect();
    Commit::new(events, summary)
}

/// Claims a conversation and writes its first event.
pub(in super::super) async fn create_conversation(store: &dyn Store, name: &str) -> Claim {
    let held = claim_conversation(store, name).await;
    store.append(&id(name), &held, commit(1, 1)).await.unwrap();
    held
}

pub(in super::super) fn pending_call(call: &str, suspension: u32, expires_in: i64) -> PendingCall {
    PendingCall {
        requests: None,
        call_id: CallId::new(call),
        tool: "send_email".to_owned(),
        executor: Executor::Server,
        kind: SuspensionKind::Approval,
        args: json!({"to": "a@b.c"}).into(),
        message: "Send?".to_owned(),
        intent: Intent::Action,
        suspension,
        suspended_at: at(0),
        expires_at: at(expires_in),
        root_conversation_id: None,
        policy: None,
        requesters: Default::default(),
        votes: None,
        needed: None,
        original_args: None,
        answer_schema: None,
        doubt: None,
    }
}

pub(in super::super) fn closed_suspension(pending: &PendingCall) -> ClosedSuspension {
    let (suspension, expires_at) = (pending.suspension, pending.expires_at);
    ClosedSuspension { call_id: pending.call_id.clone(), suspension, expires_at }
}

pub(in super::super) fn response(key: &str, body: &str, expires_in: i64) -> StoredResponse {
    StoredResponse {
        key: key.to_owned(),
        fingerprint: "f".to_owned(),
        body: json!(body),
        expires_at: at(expires_in),
    }
}
