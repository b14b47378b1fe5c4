//! Encodes the items of a turn as the events and the output of one response: a pure fold.
//!
//! Every event has a `sequence_number` that follows from the journal alone, so that a stream can be cut
//! anywhere and be continued from the journal, on any node. See [`numbers`].

mod calls;
mod event;
mod message;
mod numbers;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::collections::BTreeMap;

use abide_conversation::event::{TurnEnded, TurnOutcome};
use abide_conversation::usage::Usage;
use abide_conversation::{MessageId, Seq};
use serde_json::{Value, json};

use super::response::{ResponseHead, ResponseStatus, response};
use crate::protocols::feed::{Item, MessageItem, SuspendedCall};
use calls::Calls;
pub use event::ResponseEvent;
use message::OpenMessage;
use numbers::Numbers;

/// Why a response ends whose turn waits for answers that its caller may not give.
const WAITS_FOR_OTHERS: &str = "waiting_for_others";

/// The events and the output of one response.
#[derive(Debug)]
pub struct ResponseEncoder {
    head: ResponseHead,
    /// Whether items are told: those before the event that began the response are not.
    has_begun: bool,
    numbers: Numbers,
    /// The number of the last event that the client has; 0 if it has none.
    after: u64,
    output: Vec<OutputItem>,
    message: Option<OpenMessage>,
    calls: Calls,
    usage: Option<Usage>,
    status: ResponseStatus,
    is_over: bool,
    events: Vec<ResponseEvent>,
}

/// An item of the output, at its index.
#[derive(Debug)]
struct OutputItem {
    item: Value,
    /// Whether it was taken back: it is no part of the response.
    is_void: bool,
}

impl ResponseEncoder {
    /// The encoder of a response. The feed's items begin earlier than the response if `is_primed`.
    pub fn new(head: ResponseHead, is_primed: bool) -> Self {
        let numbers = Numbers::new(head.id.from);
        Self {
            head,
            has_begun: !is_primed,
            numbers,
            after: 0,
            output: Vec::new(),
            message: None,
            calls: Calls::default(),
            usage: None,
            status: ResponseStatus::InProgress,
            is_over: false,
            events: Vec::new(),
        }
    }

    /// The encoder for a client that has all events up to this number.
    pub fn after(self, number: u64) -> Self {
        Self { after: number, ..self }
    }

    /// Whether the response is complete.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The response, as far as it is.
    pub fn response(&self) -> Value {
        let mut growing: BTreeMap<usize, Value> =
            self.message.iter().flat_map(OpenMessage::growing).collect();
        let items = self.output.iter().enumerate().filter(|(_, known)| !known.is_void);
        let now = |(index, known): (usize, &OutputItem)| {
            growing.remove(&index).unwrap_or_else(|| known.item.clone())
        };
        let output = items.map(now).collect();
        response(&self.head, &self.status, output, self.usage.as_ref())
    }

    /// The first events.
    pub fn begin(&mut self) -> Vec<ResponseEvent> {
        for kind in ["response.created", "response.in_progress"] {
            let response = self.response();
            self.push(json!({"type": kind, "response": response}));
        }
        std::mem::take(&mut self.events)
    }

    /// The events of an item, which was made of the event of this seq, or of none.
    pub fn item(&mut self, seq: Option<Seq>, item: &Item) -> Vec<ResponseEvent> {
        if !self.has_begun {
            self.prime(seq, item);
        }
        if self.has_begun && !self.is_over {
            self.encode(seq, item);
        }
        std::mem::take(&mut self.events)
    }

    /// Takes an item from before the response, and notices the first that is not.
    fn prime(&mut self, seq: Option<Seq>, item: &Item) {
        let is_own = seq.is_some_and(|seq| seq >= self.head.id.from);
        self.has_begun = is_own || matches!(item, Item::CaughtUp);
        if is_own {
            return;
        }
        match item {
            Item::Message(message) => self.calls.begin(&message.assistant.message.tool_calls),
            Item::CallStarted(start) => self.calls.started(start),
            Item::Suspended(call) => self.calls.suspended(call),
            _ => {}
        }
    }

    /// Ends a response that cannot go on, for this reason, or that waits for answers of others.
    pub fn finish(&mut self, broken: Option<&str>) -> Vec<ResponseEvent> {
        if !self.is_over {
            match broken {
                // The response itself goes on, and the client may, too.
                Some(why) => {
                    // Numbered as the event before it, it is a place to go on from.
                    let number = self.numbers.last().max(self.after);
                    let error = json!({"type": "error", "code": "server_error", "message": why,
                        "param": null, "sequence_number": number});
                    self.events.push(ResponseEvent::Other(error));
                    self.is_over = true;
                }
                None => self.end_as(ResponseStatus::Incomplete(WAITS_FOR_OTHERS.to_owned())),
            }
        }
        std::mem::take(&mut self.events)
    }

    fn encode(&mut self, seq: Option<Seq>, item: &Item) {
        let is_piece = matches!(item, Item::Text(_) | Item::Thinking(_) | Item::Restarted { .. });
        if let (Some(seq), false) = (seq, is_piece) {
            self.numbers.move_to(seq);
        }
        match item {
            Item::Thinking(piece) => self.thinking(piece),
            Item::Text(piece) => self.text(piece),
            Item::Message(message) => self.message_ended(message),
            Item::CallStarted(start) => self.calls.started(start),
            Item::Suspended(call) => {
                self.calls.suspended(call);
                self.ask(call);
            }
            Item::Result { call, outcome } => {
                if let Some(done) = self.calls.ended(call, outcome) {
                    self.server_call(done);
                }
            }
            Item::Refused { message, .. } => self.void(message),
            Item::Restarted { message } => self.begin_anew(message),
            Item::Rest(pending) => self.rest(pending),
            Item::End(ended) => self.end(ended),
            // It is no output.
            Item::Steered(_)
            | Item::Started { .. }
            | Item::Resolved(_)
            | Item::Progress { .. }
            | Item::Ui { .. }
            | Item::Todos(_)
            | Item::CaughtUp => {}
        }
    }

    fn message_ended(&mut self, message: &MessageItem) {
        if let Some(usage) = message.assistant.usage {
            *self.usage.get_or_insert_default() += usage;
        }
        let calls = &message.assistant.message.tool_calls;
        self.calls.begin(calls);
        let phase = if calls.is_empty() { "final_answer" } else { "commentary" };
        self.close_message(Some(phase));
    }

    /// Takes back what was told of a message.
    fn void(&mut self, message: &MessageId) {
        if self.writes(message) {
            self.close_message(None);
        }
    }

    /// Takes back what was told of a message, which is begun anew after the same event.
    fn begin_anew(&mut self, message: &MessageId) {
        if self.writes(message) {
            self.numbers.begin_anew();
            self.close_message(None);
        }
    }

    fn writes(&self, message: &MessageId) -> bool {
        self.message.as_ref().is_some_and(|open| open.id == *message)
    }

    /// Ends the response, if its caller may answer one of the calls.
    fn rest(&mut self, pending: &[SuspendedCall]) {
        if !pending.iter().any(|call| call.may_answer) {
            return;
        }
        // One that waited before this response began, too.
        pending.iter().for_each(|call| self.ask(call));
        self.end_as(ResponseStatus::Completed);
    }

    fn end(&mut self, ended: &TurnEnded) {
        self.close_message(None);
        let reason = || ended.reason.clone().unwrap_or_else(|| "the turn has failed".to_owned());
        self.end_as(match ended.outcome {
            TurnOutcome::Completed => ResponseStatus::Completed,
            TurnOutcome::Cancelled => ResponseStatus::Cancelled,
            TurnOutcome::Halted => ResponseStatus::Incomplete(reason()),
            TurnOutcome::Failed => ResponseStatus::Failed(reason()),
        });
    }

    fn end_as(&mut self, status: ResponseStatus) {
        self.close_message(None);
        let kind = status.last_event();
        self.status = status;
        self.is_over = true;
        let response = self.response();
        self.push(json!({"type": kind, "response": response}));
    }

    /// Adds an item to the output, and tells of it. Returns its index.
    fn add_item(&mut self, item: Value) -> usize {
        let index = self.output.len();
        self.push(json!({"type": "response.output_item.added", "output_index": index,
            "item": item}));
        self.output.push(OutputItem { item, is_void: false });
        index
    }

    /// Tells that the item at an index is done.
    fn end_item(&mut self, index: usize, item: Value) {
        self.push(json!({"type": "response.output_item.done", "output_index": index,
            "item": item}));
        if let Some(output) = self.output.get_mut(index) {
            output.item = item;
        }
    }

    /// Adds an event with a place that is fixed, unless the client has it.
    fn push(&mut self, mut event: Value) {
        let number = self.numbers.next();
        if number > self.after {
            event["sequence_number"] = json!(number);
            self.events.push(ResponseEvent::Other(event));
        }
    }
}
