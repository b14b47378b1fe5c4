//! What the client of a live inbox was told, and the frames that follow from what changes.

use std::collections::{BTreeMap, BTreeSet};

use abide_actors::access::Answerer;
use abide_actors::child_calls::ChildCalls;
use abide_actors::journal::{InboxEntry, InboxFilter};
use abide_conversation::state::PendingVote;
use abide_conversation::{CallId, ConversationId, Principal, Seq, Timestamp};
use bytes::Bytes;
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::calls::PendingEntry;

/// The entries that a client is told of at a time; further ones come with a snapshot when there is room.
const MAX_KNOWN_ENTRIES: usize = 2_000;
/// Conversations that wait for nothing are forgotten when more than this many are known.
const MAX_KNOWN_CONVERSATIONS: usize = 4_000;

/// The `event` line of a frame and its `data`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
pub(in crate::http) enum InboxFrame {
    /// The open suspensions, the earliest deadline first; `more` says that there are others.
    Snapshot { pending: Vec<PendingEntry>, more: bool },
    /// A suspension that is new to the client, or has changed: it waits longer, or others may answer.
    Opened(Box<PendingEntry>),
    /// Somebody voted, and further approvers are needed.
    Voted(Box<PendingEntry>),
    /// A suspension will expire soon.
    Expiring {
        conversation_id: ConversationId,
        call_id: CallId,
        suspension: u32,
        expires_at: Timestamp,
    },
    /// A suspension is open no more, or not to be seen by the caller any more.
    Closed {
        conversation_id: ConversationId,
        call_id: CallId,
        suspension: u32,
        /// Who answered; absent if nobody did.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<Principal>,
    },
    /// The credential of the request has ended, and with it the stream: reconnect with another.
    CredentialEnded {},
}

impl InboxFrame {
    /// The bytes of the frame.
    pub(super) fn encode(&self) -> Bytes {
        // The JSON is `{"event":"…","data":…}`, and compact JSON has no line breaks.
        let json = serde_json::to_value(self).unwrap_or_default();
        let name = json["event"].as_str().unwrap_or_default();
        format!("event: {name}\ndata: {}\n\n", json["data"]).into()
    }
}

/// What the client knows of a suspension.
#[derive(Clone, Debug, PartialEq)]
struct KnownEntry {
    expires_at: Timestamp,
    votes: Vec<PendingVote>,
    /// How many escalations it had.
    escalations: usize,
}

type Place = (CallId, u32);

/// The suspensions of a conversation that the client knows, as of this event.
#[derive(Debug, Default)]
struct KnownConversation {
    seq: Seq,
    entries: BTreeMap<Place, KnownEntry>,
}

/// What the client knows.
#[derive(Debug, Default)]
pub(super) struct KnownInbox {
    conversations: BTreeMap<ConversationId, KnownConversation>,
    count: usize,
}

impl KnownInbox {
    /// What a snapshot told. Of each conversation, signals that are older than the snapshot may follow:
    /// they are told, and those after them put it right.
    pub(super) fn replace(&mut self, entries: &[InboxEntry], _more: bool) {
        let mut conversations: BTreeMap<ConversationId, KnownConversation> = BTreeMap::new();
        for entry in entries {
            let known = conversations.entry(entry.conversation_id.clone()).or_default();
            known.entries.insert(place(entry), KnownEntry::from(entry));
        }
        for (id, known) in &mut conversations {
            known.seq = self.conversations.get(id).map(|before| before.seq).unwrap_or_default();
        }
        (self.conversations, self.count) = (conversations, entries.len());
    }

    /// Whether the inbox, as it was read, is as the client knows it. Where it has more entries than were
    /// read, only those that were are compared.
    pub(super) fn agrees(&self, entries: &[InboxEntry], more: bool) -> bool {
        let are_known = entries.iter().all(|entry| {
            let known = self.conversations.get(&entry.conversation_id);
            known.and_then(|known| known.entries.get(&place(entry)))
                == Some(&KnownEntry::from(entry))
        });
        let last = entries.last().map(|entry| entry.pending.expires_at);
        let was_read = |known: &KnownEntry| !more || last.is_some_and(|at| known.expires_at < at);
        let read: BTreeSet<(&ConversationId, Place)> =
            entries.iter().map(|entry| (&entry.conversation_id, place(entry))).collect();
        let are_open = self.conversations.iter().all(|(id, conversation)| {
            let mut known = conversation.entries.iter();
            known.all(|(place, known)| !was_read(known) || read.contains(&(id, place.clone())))
        });
        are_known && are_open
    }

    /// The frames with what has changed in a conversation.
    pub(super) fn update(
        &mut self,
        calls: &ChildCalls,
        filter: &InboxFilter,
        caller: &Answerer,
    ) -> Vec<InboxFrame> {
        let id = &calls.conversation_id;
        let known = self.conversations.entry(id.clone()).or_default();
        if known.seq >= calls.seq {
            return Vec::new();
        }
        known.seq = calls.seq;
        let mut before = std::mem::take(&mut known.entries);
        let mut frames = Vec::new();
        for entry in calls.entries().filter(|entry| filter.admits(entry)) {
            let (place, now) = (place(&entry), KnownEntry::from(&entry));
            let was = before.remove(&place);
            if was.is_none() && self.count >= MAX_KNOWN_ENTRIES {
                continue;
            }
            self.count += usize::from(was.is_none());
            if calls.expiring.contains(&place) {
                frames.push(InboxFrame::Expiring {
                    conversation_id: id.clone(),
                    call_id: place.0.clone(),
                    suspension: place.1,
                    expires_at: now.expires_at,
                });
            }
            let entry = Box::new(PendingEntry::new(entry, caller));
            match was {
                None => frames.push(InboxFrame::Opened(entry)),
                Some(was) if was.votes != now.votes => frames.push(InboxFrame::Voted(entry)),
                Some(was) if was != now => frames.push(InboxFrame::Opened(entry)),
                Some(_) => {}
            }
            known.entries.insert(place, now);
        }
        self.count = self.count.saturating_sub(before.len());
        for (call_id, suspension) in before.into_keys() {
            let closed = calls.closed.iter();
            let mut closed =
                closed.filter(|it| (&it.call_id, it.suspension) == (&call_id, suspension));
            let by = closed.next().and_then(|it| it.by.clone());
            let conversation_id = id.clone();
            frames.push(InboxFrame::Closed { conversation_id, call_id, suspension, by });
        }
        if self.conversations.len() > MAX_KNOWN_CONVERSATIONS {
            self.conversations.retain(|_, known| !known.entries.is_empty());
        }
        frames
    }
}

fn place(entry: &InboxEntry) -> Place {
    (entry.pending.call_id.clone(), entry.pending.suspension)
}

impl From<&InboxEntry> for KnownEntry {
    fn from(entry: &InboxEntry) -> Self {
        let pending = &entry.pending;
        Self {
            expires_at: pending.expires_at,
            votes: pending.votes.clone().unwrap_or_default(),
            escalations: pending.policy.as_ref().map_or(0, |policy| policy.escalated.len()),
        }
    }
}

#[cfg(test)]
mod tests;
