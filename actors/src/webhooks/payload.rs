//! What a notice says: made at the commit, of a bounded size.

use std::sync::Arc;

use abide_conversation::event::{
    AssistantMsg, Created, Event, EventData, Resolution, Suspension, ToolResult, TurnEnded, Voted,
};
use abide_conversation::{ConversationId, Scoped, State, Timestamp, evolve};
use serde_json::{Map, Value, json};

use crate::limits::{cut, encoded_len};
use crate::notices::{NoticeKind, OwedNotice, Webhook};

/// A text of a notice is cut to this: enough to be read, and what is longer can be fetched.
const MAX_TEXT_BYTES: usize = 16 * 1024;
/// JSON of a notice that is larger is left out.
const MAX_JSON_BYTES: usize = 16 * 1024;

/// A conversation that is being deleted.
pub(crate) struct Deleted<'a> {
    pub(crate) id: &'a Scoped<ConversationId>,
    pub(crate) state: &'a State,
    pub(crate) at: Timestamp,
    pub(crate) reason: &'a str,
}

/// What these events owe to these webhooks, in the order of the events; `before` is the state without
/// the events.
pub(crate) fn owed_for(
    webhooks: &[Arc<Webhook>],
    id: &Scoped<ConversationId>,
    before: &State,
    events: &[Event],
) -> Vec<OwedNotice> {
    let mut owed = Vec::new();
    if !events.iter().any(|event| NoticeKind::of(&event.data, before).is_some()) {
        return owed;
    }
    let mut state = before.clone();
    for event in events {
        let kind = NoticeKind::of(&event.data, &state);
        let call_before = kind.and_then(|_| state_of_call(&state, &event.data));
        evolve(&mut state, event);
        let Some(kind) = kind else { continue };
        let wanting = wanting(webhooks, kind, &state);
        if wanting.is_empty() {
            continue;
        }
        let mut data = Data::new(id, &state);
        data.put("seq", json!(event.seq));
        if let Some(turn) = &event.turn_id {
            data.put("turn_id", json!(turn));
        }
        data.describe(event, &state, events, call_before);
        let body = data.into_body(kind, event.at);
        owed.extend(wanting.into_iter().map(|webhook| OwedNotice {
            webhook: webhook.key(),
            seq: event.seq,
            kind,
            at: event.at,
            body: body.clone(),
        }));
    }
    owed
}

/// What a deletion owes to these webhooks. Its number is the one that the next event would have had.
pub(crate) fn owed_for_deletion(
    webhooks: &[Arc<Webhook>],
    deleted: &Deleted<'_>,
) -> Vec<OwedNotice> {
    let Deleted { id, state, at, reason } = deleted;
    let kind = NoticeKind::ConversationDeleted;
    let wanting = wanting(webhooks, kind, state);
    if wanting.is_empty() {
        return Vec::new();
    }
    let seq = state.seq.next();
    let mut data = Data::new(id, state);
    data.put("seq", json!(seq));
    data.put("reason", json!(reason));
    let body = data.into_body(kind, *at);
    let owed = |webhook: &Webhook| OwedNotice {
        webhook: webhook.key(),
        seq,
        kind,
        at: *at,
        body: body.clone(),
    };
    wanting.into_iter().map(owed).collect()
}

fn wanting<'a>(webhooks: &'a [Arc<Webhook>], kind: NoticeKind, state: &State) -> Vec<&'a Webhook> {
    let wants = |webhook: &&Webhook| webhook.wants(kind, state.agent.as_ref(), &state.metadata);
    webhooks.iter().map(|webhook| &**webhook).filter(wants).collect()
}

/// The tool of the call that an event is about, and the number of its open suspension.
fn state_of_call(state: &State, data: &EventData) -> Option<(String, Option<u32>)> {
    let id = match data {
        EventData::Voted(voted) => &voted.call_id,
        EventData::Resolution(resolution) => &resolution.call_id,
        EventData::ToolResult(done) => &done.call_id,
        EventData::SuspensionExpiring(expiring) => &expiring.call_id,
        EventData::SuspensionEscalated(escalated) => &escalated.call_id,
        _ => return None,
    };
    let call = state.call(id)?;
    Some((call.tool.clone(), call.open_suspension().map(|open| open.suspension)))
}

/// The member `data` of a notice.
struct Data {
    members: Map<String, Value>,
    /// The members that are too large, and so not whole.
    cut: Vec<&'static str>,
}

impl Data {
    fn new(id: &Scoped<ConversationId>, state: &State) -> Self {
        let mut data = Self { members: Map::new(), cut: Vec::new() };
        data.put("conversation_id", json!(id.local()));
        if let Some(agent) = &state.agent {
            data.put("agent", json!(agent));
        }
        if let Some(parent) = &state.parent {
            data.put("parent", json!(parent.conversation_id));
        }
        if !state.metadata.is_empty() {
            data.put_bounded("metadata", json!(state.metadata));
        }
        data
    }

    fn put(&mut self, name: &'static str, value: Value) {
        self.members.insert(name.to_owned(), value);
    }

    /// Puts JSON of any size, if it is not too large.
    fn put_bounded(&mut self, name: &'static str, value: Value) {
        if encoded_len(&value) > MAX_JSON_BYTES {
            self.cut.push(name);
        } else {
            self.put(name, value);
        }
    }

    /// Puts the beginning of a text.
    fn put_text(&mut self, name: &'static str, text: &str) {
        if text.len() > MAX_TEXT_BYTES {
            self.cut.push(name);
        }
        self.put(name, Value::from(cut(text, MAX_TEXT_BYTES)));
    }

    fn describe(
        &mut self,
        event: &Event,
        state: &State,
        events: &[Event],
        call: Option<(String, Option<u32>)>,
    ) {
        if let Some((tool, suspension)) = call {
            self.put("tool", Value::from(tool));
            if let Some(suspension) = suspension {
                self.put("suspension", Value::from(suspension));
            }
        }
        match &event.data {
            EventData::Created(created) => self.created(created),
            EventData::TurnEnded(ended) => self.turn_ended(event, ended, events),
            EventData::Suspension(suspension) => self.suspended(suspension),
            EventData::Voted(voted) => self.voted(voted, state),
            EventData::Resolution(resolution) => self.resolved(resolution),
            EventData::ToolResult(ToolResult { call_id, .. }) => {
                self.put("call_id", json!(call_id))
            }
            EventData::SuspensionExpiring(expiring) => {
                self.put("call_id", json!(expiring.call_id));
                self.put("expires_at", json!(expiring.expires_at));
            }
            EventData::SuspensionEscalated(escalated) => {
                self.put("call_id", json!(escalated.call_id));
                self.put_bounded("by", json!(escalated.by));
            }
            _ => {}
        }
    }

    fn created(&mut self, created: &Created) {
        if let Some(owner) = &created.owner {
            self.put("owner", json!(owner));
        }
        if let Some(fork) = &created.fork {
            self.put("fork", json!(fork));
        }
    }

    fn turn_ended(&mut self, event: &Event, ended: &TurnEnded, events: &[Event]) {
        self.put("outcome", json!(ended.outcome));
        if let Some(reason) = &ended.reason {
            self.put_text("reason", reason);
        }
        if let Some(usage) = &ended.usage {
            self.put("usage", json!(usage));
        }
        let answers = events.iter().filter(|other| other.turn_id == event.turn_id);
        let answer = answers.rev().find_map(|other| match &other.data {
            EventData::AssistantMsg(answer) => Some(answer),
            _ => None,
        });
        if let Some(AssistantMsg { message, .. }) = answer {
            self.put("message_id", json!(message.id));
            self.put_text("text", &message.text());
            if let Some(object) = &message.object {
                self.put_bounded("object", object.clone());
            }
        }
    }

    fn suspended(&mut self, suspension: &Suspension) {
        self.put("call_id", json!(suspension.call_id));
        self.put("suspension", json!(suspension.suspension));
        self.put("kind", json!(suspension.kind));
        self.put("tool", json!(suspension.tool));
        self.put_bounded("args", Value::clone(&suspension.args));
        self.put_text("message", &suspension.message);
        if let Some(requests) = &suspension.requests {
            self.put_bounded("requests", requests.clone());
        }
        if let Some(policy) = &suspension.policy {
            self.put_bounded("policy", json!(policy));
        }
        self.put("expires_at", json!(suspension.expires_at));
    }

    fn voted(&mut self, voted: &Voted, state: &State) {
        self.put("call_id", json!(voted.call_id));
        self.put("by", json!(voted.vote.by.subject()));
        self.put("approved", json!(voted.vote.approved));
        if let Some(reason) = &voted.vote.reason {
            self.put_text("reason", reason);
        }
        let pending = state.call(&voted.call_id).and_then(|call| call.pending_call());
        if let Some(pending) = pending {
            self.put("votes", json!(pending.votes.map_or(0, |votes| votes.len())));
            self.put("needed", json!(pending.needed));
        }
    }

    fn resolved(&mut self, resolution: &Resolution) {
        self.put("call_id", json!(resolution.call_id));
        self.put("suspension", json!(resolution.suspension));
        self.put("kind", json!(resolution.kind));
        self.put("by", json!(resolution.by));
        if let Some(approved) = resolution.approved {
            self.put("approved", json!(approved));
        }
        if let Some(reason) = &resolution.reason {
            self.put_text("reason", reason);
        }
    }

    fn into_body(mut self, kind: NoticeKind, at: Timestamp) -> Arc<str> {
        if !self.cut.is_empty() {
            let cut = std::mem::take(&mut self.cut);
            self.put("cut", json!(cut));
        }
        let body = json!({"type": kind.as_str(), "timestamp": at, "data": self.members});
        Arc::from(body.to_string())
    }
}
