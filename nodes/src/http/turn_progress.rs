//! What one turn has come to, folded from its events in the order of the journal.

use std::collections::BTreeMap;

use abide_conversation::event::{Event, EventData, TurnEnded, TurnOutcome};
use abide_conversation::message::Message;
use abide_conversation::usage::Usage;
use abide_conversation::{CallId, ConversationId, TurnId};

/// A turn as far as its events were read. The first of them has its message or one of the model's.
#[derive(Debug)]
pub(super) struct TurnProgress {
    pub(super) turn_id: TurnId,
    /// The newest message of the model.
    pub(super) message: Option<Message>,
    /// Usage of the model calls that were read.
    pub(super) usage: Usage,
    /// How the turn ended, if it has.
    pub(super) ended: Option<TurnEnded>,
    /// The calls of the current step.
    calls: BTreeMap<CallId, CallProgress>,
}

/// What a call waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CallProgress {
    /// The system itself.
    Running,
    /// Somebody outside.
    Pending,
    /// A child conversation.
    Delegated(ConversationId),
    Done,
}

impl TurnProgress {
    pub(super) fn new(turn_id: TurnId) -> Self {
        let usage = Usage::default();
        Self { turn_id, message: None, usage, ended: None, calls: BTreeMap::new() }
    }

    /// Takes the next event of the journal, of whatever turn.
    pub(super) fn take(&mut self, event: &Event) {
        if event.turn_id.as_ref() != Some(&self.turn_id) {
            return;
        }
        match &event.data {
            EventData::AssistantMsg(assistant) => {
                self.usage += assistant.usage.unwrap_or_default();
                let running = |id: &CallId| (id.clone(), CallProgress::Running);
                let calls = assistant.message.tool_calls.iter().map(|call| running(&call.id));
                self.calls = calls.collect();
                let status = Some(assistant.status);
                self.message = Some(Message { status, ..assistant.message.clone() });
            }
            EventData::Suspension(suspension) => {
                self.set(&suspension.call_id, CallProgress::Pending);
            }
            EventData::Resolution(resolution) => {
                self.set(&resolution.call_id, CallProgress::Running);
            }
            EventData::ChildStarted(started) => {
                let child = started.conversation_id.clone();
                self.set(&started.call_id, CallProgress::Delegated(child));
            }
            EventData::ToolResult(result) => self.set(&result.call_id, CallProgress::Done),
            EventData::TurnWithdrawn(_) => {
                let reason = Some("withdrawn".to_owned());
                let outcome = TurnOutcome::Cancelled;
                self.ended = Some(TurnEnded { outcome, reason, usage: None });
            }
            EventData::TurnEnded(ended) => self.ended = Some(ended.clone()),
            _ => {}
        }
    }

    fn set(&mut self, call: &CallId, progress: CallProgress) {
        if let Some(known) = self.calls.get_mut(call) {
            *known = progress;
        }
    }

    /// Whether nothing goes on in the turn itself: each call of its step waits for somebody outside or
    /// for a child, or is done, and not all are done.
    pub(super) fn waits(&self) -> bool {
        let waits = |call: &CallProgress| {
            matches!(call, CallProgress::Pending | CallProgress::Delegated(_))
        };
        let is_done = |call: &CallProgress| *call == CallProgress::Done;
        self.ended.is_none()
            && self.calls.values().any(waits)
            && self.calls.values().all(|call| waits(call) || is_done(call))
    }

    /// The children that open calls wait for.
    pub(super) fn children(&self) -> impl Iterator<Item = &ConversationId> {
        self.calls.values().filter_map(|call| match call {
            CallProgress::Delegated(child) => Some(child),
            CallProgress::Running | CallProgress::Pending | CallProgress::Done => None,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event(turn: &str, kind: &str, data: Value) -> Event {
        let event = json!({"seq": 1, "at": "2026-01-01T00:00:00.000Z", "turn_id": turn,
            "type": kind, "data": data});
        serde_json::from_value(event).unwrap()
    }

    fn message(turn: &str, id: &str, calls: &[&str]) -> Event {
        let call = |id: &&str| json!({"id": id, "name": "t", "args": {}});
        let calls: Vec<Value> = calls.iter().map(call).collect();
        let message = json!({"id": id, "role": "assistant", "content": [], "tool_calls": calls});
        let usage = json!({"input_tokens": 10, "output_tokens": 1});
        let data = json!({"message": message, "status": "complete", "step": 1, "usage": usage});
        event(turn, "assistant_msg", data)
    }

    fn suspended(call: &str) -> Event {
        let data = json!({"call_id": call, "kind": "approval", "suspension": 1,
            "expires_at": "2026-01-02T00:00:00Z", "tool": "t", "executor": "server", "args": {},
            "message": ""});
        event("t1", "suspension", data)
    }

    fn answered(call: &str) -> Event {
        let data = json!({"call_id": call, "kind": "approval", "suspension": 1, "by": "ada",
            "approved": true});
        event("t1", "resolution", data)
    }

    fn done(call: &str) -> Event {
        event("t1", "tool_result", json!({"call_id": call, "ok": true, "result": 1}))
    }

    fn delegated(call: &str) -> Event {
        let data = json!({"call_id": call, "conversation_id": "kid", "attempt": 1,
            "expires_at": "2026-01-02T00:00:00Z"});
        event("t1", "child_started", data)
    }

    fn waits(events: &[Event]) -> bool {
        let mut progress = TurnProgress::new(TurnId::new("t1"));
        events.iter().for_each(|event| progress.take(event));
        progress.waits()
    }

    #[test]
    fn a_turn_rests_while_all_open_calls_of_its_step_are_pending() {
        let said = || message("t1", "m", &["a", "b"]);
        for (events, rests) in [
            (vec![], false),
            (vec![said()], false),
            (vec![said(), suspended("a")], false),
            (vec![said(), suspended("a"), suspended("b")], true),
            (vec![said(), suspended("a"), done("b")], true),
            (vec![said(), suspended("a"), suspended("b"), answered("a")], false),
            (vec![said(), suspended("a"), suspended("b"), answered("a"), done("a")], true),
            (vec![said(), suspended("a"), delegated("b")], true),
            (vec![said(), done("a"), done("b")], false),
            (vec![said(), suspended("a"), done("b"), done("a"), message("t1", "n", &[])], false),
        ] {
            assert_eq!(waits(&events), rests, "{events:#?}");
        }
    }

    #[test]
    fn a_turn_that_is_withdrawn_ends_as_cancelled() {
        let mut progress = TurnProgress::new(TurnId::new("t1"));
        progress.take(&event("t1", "turn_withdrawn", json!({"by": "ada"})));
        let ended = progress.ended.unwrap();
        assert_eq!(ended.outcome, TurnOutcome::Cancelled);
        assert_eq!(ended.reason.as_deref(), Some("withdrawn"));
    }

    #[test]
    fn events_of_other_turns_change_nothing() {
        let mut progress = TurnProgress::new(TurnId::new("t2"));
        let ended = json!({"outcome": "completed"});
        for event in [message("t1", "m", &["a"]), suspended("a"), event("t1", "turn_ended", ended)]
        {
            progress.take(&event);
        }
        assert!(!progress.waits() && progress.ended.is_none() && progress.message.is_none());
    }

    #[test]
    fn the_newest_message_and_the_usage_of_all_are_known() {
        let mut progress = TurnProgress::new(TurnId::new("t1"));
        for id in ["m", "n"] {
            progress.take(&message("t1", id, &[]));
        }
        assert_eq!(progress.message.as_ref().unwrap().id.as_str(), "n");
        assert_eq!((progress.usage.input_tokens, progress.usage.output_tokens), (20, 2));
        let ended = json!({"outcome": "halted", "reason": "max_steps"});
        progress.take(&event("t1", "turn_ended", ended));
        assert_eq!(progress.ended.unwrap().reason.as_deref(), Some("max_steps"));
    }
}
