//! The messages of a conversation in the order in which people read them.
//!
//! A user's message is journalled when it is sent. One that was queued belongs where its turn began: read
//! in the order of the journal, all questions would come before the first answer.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

use abide_conversation::event::{Event, EventData, Visible};
use abide_conversation::message::{Message, MessageRole};
use abide_conversation::{MessageId, Seq, Timestamp, TurnId};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

/// A message in a list.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(super) struct ListedMessage {
    #[serde(flatten)]
    message: Message,
    /// The `message_id` that the client gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    client_id: Option<String>,
    /// The turn that the message began, or that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    turn_id: Option<TurnId>,
    /// The seq of the event that journalled the message.
    #[schema(value_type = u64)]
    seq: Seq,
    /// When it was journalled.
    at: Timestamp,
}

/// Where a page of older messages begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cursor {
    /// After the newest N of the messages that are queued.
    Queued(usize),
    /// Before this seq of the journal.
    Before(Seq),
}

impl FromStr for Cursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.strip_prefix('q') {
            Some(shown) => shown.parse().map(Self::Queued).map_err(|_| ()),
            None => text.parse().map(Seq::new).map(Self::Before).map_err(|_| ()),
        }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queued(shown) => write!(f, "q{shown}"),
            Self::Before(seq) => write!(f, "{seq}"),
        }
    }
}

/// Messages from the newest to older ones, made of events that are read in this order.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    slots: VecDeque<Slot>,
}

/// The place of one message.
#[derive(Debug)]
struct Slot {
    /// Where the page begins that follows this message.
    cursor: Cursor,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Message(Box<ListedMessage>),
    /// The turn whose user's message is journalled further back.
    Of(TurnId),
}

impl Transcript {
    /// Begins with the messages of queued turns, which come last; the newest `shown` of them were on
    /// earlier pages.
    pub(super) fn after_queue(turns: Vec<TurnId>, shown: usize) -> Self {
        let queued = turns.into_iter().rev().enumerate().skip(shown);
        let slots = queued.map(|(at, turn)| Slot {
            cursor: Cursor::Queued(at.saturating_add(1)),
            content: Content::Of(turn),
        });
        Self { slots: slots.collect() }
    }

    /// Whether the newest `count` messages are known.
    pub(super) fn has(&self, count: usize) -> bool {
        let is_known = |slot: &Slot| matches!(slot.content, Content::Message(_));
        self.slots.len() >= count && self.slots.iter().take(count).all(is_known)
    }

    /// Takes the event before the one that was taken last. No more than `count` messages are wanted.
    pub(super) fn take(&mut self, event: &Event, count: usize) {
        let is_full = self.slots.len() >= count;
        match (&event.data, &event.turn_id) {
            (EventData::TurnStarted(_), Some(turn)) if !is_full => {
                self.push(event.seq, Content::Of(turn.clone()));
            }
            (EventData::UserMsg(_), Some(turn)) => {
                // Without a place, the turn began on a newer page, or is queued and was shown there.
                let is_of =
                    |slot: &&mut Slot| matches!(&slot.content, Content::Of(of) if of == turn);
                if let (Some(slot), Some(message)) =
                    (self.slots.iter_mut().find(is_of), listed(event))
                {
                    slot.content = Content::Message(Box::new(message));
                }
            }
            _ if !is_full => {
                if let Some(message) = listed(event) {
                    self.push(event.seq, Content::Message(Box::new(message)));
                }
            }
            _ => {}
        }
    }

    fn push(&mut self, seq: Seq, content: Content) {
        self.slots.push_back(Slot { cursor: Cursor::Before(seq), content });
    }

    /// The newest messages, oldest first, and where the next page begins, if there is one.
    pub(super) fn page(self, limit: usize) -> (Vec<ListedMessage>, Option<Cursor>) {
        let more = self.slots.len() > limit;
        let cursor = limit.checked_sub(1).and_then(|last| self.slots.get(last));
        let cursor = cursor.map(|slot| slot.cursor).filter(|_| more);
        let messages = self.slots.into_iter().take(limit).filter_map(|slot| match slot.content {
            Content::Message(message) => Some(*message),
            Content::Of(_) => None,
        });
        let mut messages: Vec<ListedMessage> = messages.collect();
        messages.reverse();
        (messages, cursor)
    }
}

/// The message of an event, as clients see it.
fn listed(event: &Event) -> Option<ListedMessage> {
    let mut client_id = None;
    let message = match event.data.visible()? {
        Visible::User(user) => {
            client_id = user.message_id.clone();
            user.message.clone()
        }
        Visible::Steered(steered) => {
            client_id = steered.message_id.clone();
            steered.message.clone()
        }
        Visible::Assistant(assistant) => {
            Message { status: Some(assistant.status), ..assistant.message.clone() }
        }
        Visible::Result(result) => {
            let envelope = json!(result.outcome);
            let text = envelope.to_string();
            let id = MessageId::new(format!("result_{}", result.call_id));
            let content = vec![json!({"type": "json", "data": envelope, "text": text})];
            let tool_call_id = Some(result.call_id.clone());
            Message { tool_call_id, ..Message::new(id, MessageRole::Tool, content) }
        }
        // Only the model reads these.
        Visible::Repair(_) | Visible::Added(_) | Visible::Refused(_) => return None,
    };
    let Event { seq, at, turn_id, .. } = event;
    Some(ListedMessage { message, client_id, turn_id: turn_id.clone(), seq: *seq, at: *at })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn event(seq: u64, turn: &str, kind: &str, data: Value) -> Event {
        let event = json!({"seq": seq, "at": "2026-01-01T00:00:00.000Z", "turn_id": turn,
            "type": kind, "data": data});
        serde_json::from_value(event).unwrap()
    }

    fn question(seq: u64, turn: &str) -> Event {
        let message = json!({"id": format!("q_{turn}"), "role": "user", "content": []});
        let message_id = format!("own_{turn}");
        let data = json!({"message": message, "principal": "ada", "message_id": message_id});
        event(seq, turn, "user_msg", data)
    }

    fn start(seq: u64, turn: &str) -> Event {
        let data = json!({"agent": "a", "revision": "00112233aabbccdd", "max_steps": 5});
        event(seq, turn, "turn_started", data)
    }

    fn answer(seq: u64, turn: &str) -> Event {
        let message = json!({"id": format!("a_{turn}"), "role": "assistant", "content": []});
        event(
            seq,
            turn,
            "assistant_msg",
            json!({"message": message, "status": "complete", "step": 1}),
        )
    }

    /// Two turns, of which the second was queued during the first, and two that are still queued.
    fn journal() -> Vec<Event> {
        vec![
            question(1, "t1"),
            start(2, "t1"),
            question(3, "t2"),
            answer(4, "t1"),
            start(5, "t2"),
            question(6, "t3"),
            answer(7, "t2"),
            question(8, "t4"),
        ]
    }

    fn page(cursor: Cursor, limit: usize) -> (Vec<String>, Option<Cursor>) {
        let queued = ["t3", "t4"].map(TurnId::new).to_vec();
        let (before, mut transcript) = match cursor {
            Cursor::Queued(shown) => (Seq::MAX, Transcript::after_queue(queued, shown)),
            Cursor::Before(seq) => (seq, Transcript::default()),
        };
        for event in journal().iter().rev().filter(|event| event.seq < before) {
            transcript.take(event, limit + 1);
        }
        let (messages, cursor) = transcript.page(limit);
        (messages.into_iter().map(|listed| listed.message.id.to_string()).collect(), cursor)
    }

    #[test]
    fn a_queued_message_stands_where_its_turn_began_or_at_the_end() {
        let all = ["q_t1", "a_t1", "q_t2", "a_t2", "q_t3", "q_t4"];
        assert_eq!(page(Cursor::Queued(0), 50), (all.map(str::to_owned).to_vec(), None));
    }

    #[test]
    fn pages_of_any_size_have_every_message_once_and_in_order() {
        let (all, _) = page(Cursor::Queued(0), 50);
        for limit in 1..=7 {
            let (mut found, mut cursor) = (Vec::new(), Some(Cursor::Queued(0)));
            while let Some(at) = cursor {
                assert_eq!(at.to_string().parse(), Ok(at));
                let (messages, next) = page(at, limit);
                found = [messages, found].concat();
                cursor = next;
            }
            assert_eq!(found, all, "{limit} on a page");
        }
    }

    #[test]
    fn a_listed_message_has_its_turn_its_seq_its_time_and_the_clients_id() {
        let listed = json!(listed(&question(3, "t2")).unwrap());
        assert_eq!(listed["client_id"], "own_t2");
        assert_eq!((&listed["id"], &listed["turn_id"]), (&json!("q_t2"), &json!("t2")));
        assert_eq!(
            (&listed["seq"], &listed["at"]),
            (&json!(3), &json!("2026-01-01T00:00:00.000Z"))
        );
    }

    #[test]
    fn a_cursor_that_no_page_has_is_refused() {
        for wrong in ["", "q", "qx", "-1", "x", "1.5"] {
            assert_eq!(wrong.parse::<Cursor>(), Err(()), "{wrong}");
        }
    }
}
