//! The feed of one turn: a pure projection of a conversation's events and live signals, in order, into
//! the items that clients of other protocols are told of.
//!
//! What is told from the journal and what is told live is the same, once the pieces of each message are
//! joined; only progress, and where the turn rested in between, is lost with the moment.

mod item;
mod message_text;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(in crate::protocols) mod sample_events;
mod step_calls;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(in crate::protocols) mod tests;

use std::collections::BTreeSet;

use abide_actors::live::{Delta, Signal};
use abide_actors::streaming::StreamingMessage;
use abide_conversation::event::{
    AssistantMsg, Event, EventData, MessageRefused, Suspension, SuspensionKind, ToolCall,
    ToolResult, ToolStarted, TurnEnded, TurnOutcome,
};
use abide_conversation::{Attempt, CallId, MessageId, Seq, Step, TurnId};

pub use item::{
    CallStart, Item, MessageItem, Piece, ResolvedCall, SteeringMessage, SuspendedCall,
    parse_suspension_id, suspension_id,
};
use message_text::{Channel, MessageText};
use step_calls::StepCalls;

/// The items of one turn.
#[derive(Debug)]
pub struct Feed {
    turn: TurnId,
    /// The last event that was taken, of whatever turn.
    seq: Seq,
    /// The number of model calls that are done.
    step: Step,
    /// The message that the model is writing.
    message: Option<MessageText>,
    /// The last message that pieces are no longer taken of: it is journalled, or was given up.
    closed_message: Option<MessageId>,
    calls: StepCalls,
    /// The suspensions on which the turn rests, as items have it.
    rests_on: Vec<(CallId, u32)>,
    has_ended: bool,
}

/// The suspensions that the caller may answer now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answerable {
    /// The node authenticates nobody.
    All,
    Only(BTreeSet<(CallId, u32)>),
}

impl Answerable {
    fn includes(&self, suspension: &Suspension) -> bool {
        match self {
            Self::All => true,
            Self::Only(calls) => {
                calls.contains(&(suspension.call_id.clone(), suspension.suspension))
            }
        }
    }
}

impl Feed {
    /// The feed of this turn, which takes the events after this one.
    pub fn new(turn: TurnId, after: Seq) -> Self {
        Self {
            turn,
            seq: after,
            step: Step::ZERO,
            message: None,
            closed_message: None,
            calls: StepCalls::default(),
            rests_on: Vec::new(),
            has_ended: false,
        }
    }

    /// The turn.
    pub fn turn(&self) -> &TurnId {
        &self.turn
    }

    /// The seq of the last event that was taken.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// Whether the turn has ended: there are no further items.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether nothing goes on until somebody answers, as far as events were taken.
    pub fn rests(&self) -> bool {
        !self.calls.rest().is_empty()
    }

    /// Takes the next event of the journal; one that was taken before has no items.
    pub fn event(&mut self, event: &Event, answerable: &Answerable) -> Vec<Item> {
        if event.seq <= self.seq {
            return Vec::new();
        }
        self.seq = event.seq;
        if self.has_ended || event.turn_id.as_ref() != Some(&self.turn) {
            return Vec::new();
        }
        match &event.data {
            EventData::TurnStarted(_) => {
                vec![Item::Started { turn: self.turn.clone(), seq: event.seq }]
            }
            EventData::AssistantMsg(assistant) => self.message_ended(assistant, event.seq),
            EventData::MessageRefused(refused) => self.message_refused(refused),
            EventData::ToolCall(call) if call.started => vec![call_started(call)],
            EventData::ToolStarted(started) => vec![attempt_started(started)],
            EventData::Suspension(suspension) => {
                self.calls.suspend(suspension);
                vec![suspended(suspension, answerable)]
            }
            EventData::Voted(voted) => {
                let edited = self.calls.edit(voted);
                edited.map(|open| suspended(open, answerable)).into_iter().collect()
            }
            EventData::Resolution(resolution) => {
                self.calls.resolve(resolution);
                vec![Item::Resolved(Box::new(resolution.into()))]
            }
            EventData::ToolResult(result) => {
                self.calls.end(&result.call_id);
                call_ended(result)
            }
            EventData::Steered(steered) => vec![Item::Steered(Box::new(steered.into()))],
            EventData::TodosChanged(changed) => vec![Item::Todos(changed.todos.clone())],
            EventData::TurnWithdrawn(_) => {
                self.has_ended = true;
                vec![Item::End(withdrawn())]
            }
            EventData::TurnEnded(ended) => {
                self.has_ended = true;
                self.give_up_message(None).into_iter().chain([Item::End(ended.clone())]).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Takes a live signal other than events.
    pub fn signal(&mut self, signal: &Signal) -> Vec<Item> {
        match signal {
            Signal::Text(delta) => self.piece(Channel::Text, delta),
            Signal::Thinking(delta) => self.piece(Channel::Thinking, delta),
            Signal::Progress { call, payload } if !self.has_ended => {
                let is_own = self.calls.contains(call);
                let progress = || Item::Progress { call: call.clone(), payload: payload.clone() };
                is_own.then(progress).into_iter().collect()
            }
            Signal::Progress { .. }
            | Signal::CallArgs(_)
            | Signal::Committed(_)
            | Signal::Status { .. }
            | Signal::Child(_)
            | Signal::Revived
            | Signal::Deleted => Vec::new(),
        }
    }

    /// Takes the message that the model is writing in this turn, as a snapshot has it. All events before
    /// the snapshot must have been taken.
    pub fn streaming_message(&mut self, now: &StreamingMessage) -> Vec<Item> {
        if self.has_ended || self.closed_message.as_ref() == Some(&now.id) {
            return Vec::new();
        }
        let mut items: Vec<Item> = self.give_up_message(Some(&now.id)).into_iter().collect();
        let message = self.message.get_or_insert_with(|| MessageText::new(now.id.clone()));
        // What does not continue is older than what items have.
        items.extend(message.continue_as(now).unwrap_or_default());
        items
    }

    /// Notes that all events of the journal were taken.
    pub fn catch_up(&mut self, answerable: &Answerable) -> Vec<Item> {
        if self.has_ended {
            return Vec::new();
        }
        [Item::CaughtUp].into_iter().chain(self.rest(answerable)).collect()
    }

    /// Notes that a commit was taken as a whole: whether the turn rests is judged between commits.
    pub fn rest(&mut self, answerable: &Answerable) -> Option<Item> {
        if self.has_ended {
            return None;
        }
        let rest: Vec<SuspendedCall> =
            self.calls.rest().into_iter().map(|open| suspended_call(open, answerable)).collect();
        let rests_on: Vec<(CallId, u32)> =
            rest.iter().map(|open| (open.call.clone(), open.suspension)).collect();
        let is_new = rests_on != self.rests_on;
        self.rests_on = rests_on;
        (is_new && !rest.is_empty()).then_some(Item::Rest(rest))
    }

    fn piece(&mut self, channel: Channel, delta: &Delta) -> Vec<Item> {
        let is_current = delta.turn == self.turn && delta.step == self.step.next();
        if self.has_ended || !is_current || self.closed_message.as_ref() == Some(&delta.message) {
            return Vec::new();
        }
        let mut items: Vec<Item> = self.give_up_message(Some(&delta.message)).into_iter().collect();
        let message = self.message.get_or_insert_with(|| MessageText::new(delta.message.clone()));
        items.extend(message.add(channel, delta));
        items
    }

    fn message_ended(&mut self, assistant: &AssistantMsg, seq: Seq) -> Vec<Item> {
        let message = &assistant.message;
        let mut items: Vec<Item> = self.give_up_message(Some(&message.id)).into_iter().collect();
        let new = || MessageText::new(message.id.clone());
        let pieces = self.message.take().unwrap_or_else(new).end_as(message);
        items.extend(pieces.unwrap_or_else(|| {
            // A hook has changed it.
            let mut all = vec![Item::Restarted { message: message.id.clone() }];
            all.extend(new().end_as(message).unwrap_or_default());
            all
        }));
        self.close_step(assistant.step, &message.id);
        self.calls.begin(&message.tool_calls);
        items.push(Item::Message(Box::new(MessageItem { assistant: assistant.clone(), seq })));
        items
    }

    fn message_refused(&mut self, refused: &MessageRefused) -> Vec<Item> {
        let id = &refused.message.id;
        let mut items: Vec<Item> = self.give_up_message(Some(id)).into_iter().collect();
        self.message = None;
        self.close_step(refused.step, id);
        items.push(Item::Refused { message: id.clone(), reason: refused.reason.clone() });
        items
    }

    fn close_step(&mut self, step: Step, message: &MessageId) {
        self.step = step;
        self.closed_message = Some(message.clone());
        self.rests_on.clear();
        self.calls = StepCalls::default();
    }

    /// Gives up the message that the model was writing, unless it is this one.
    fn give_up_message(&mut self, unless: Option<&MessageId>) -> Option<Item> {
        let other = self.message.take_if(|message| Some(&message.message) != unless)?;
        self.closed_message = Some(other.message.clone());
        (!other.is_empty()).then_some(Item::Restarted { message: other.message })
    }
}

/// How a turn that was withdrawn ended, for clients that followed it.
fn withdrawn() -> TurnEnded {
    let reason = Some("withdrawn".to_owned());
    TurnEnded { outcome: TurnOutcome::Cancelled, reason, usage: None }
}

fn call_started(call: &ToolCall) -> Item {
    Item::CallStarted(CallStart {
        call: call.call_id.clone(),
        tool: call.tool.clone(),
        executor: call.kind.executor(),
        intent: call.intent,
        args: call.args.clone(),
        attempt: Attempt::FIRST,
    })
}

fn attempt_started(started: &ToolStarted) -> Item {
    Item::CallStarted(CallStart {
        call: started.call_id.clone(),
        tool: started.tool.clone(),
        executor: started.executor,
        intent: started.intent,
        args: started.args.clone(),
        attempt: started.attempt,
    })
}

fn suspended(suspension: &Suspension, answerable: &Answerable) -> Item {
    Item::Suspended(Box::new(suspended_call(suspension, answerable)))
}

fn suspended_call(suspension: &Suspension, answerable: &Answerable) -> SuspendedCall {
    SuspendedCall {
        call: suspension.call_id.clone(),
        tool: suspension.tool.clone(),
        executor: suspension.executor,
        kind: suspension.kind,
        intent: suspension.intent,
        args: suspension.args.clone(),
        message: suspension.message.clone(),
        suspension: suspension.suspension,
        expires_at: suspension.expires_at,
        answer_schema: suspension.answer_schema.clone(),
        // No protocol has a form for a call in doubt: its result could be given by a client that only
        // executes what it is shown.
        may_answer: suspension.kind != SuspensionKind::InDoubt && answerable.includes(suspension),
    }
}

fn call_ended(result: &ToolResult) -> Vec<Item> {
    let call = result.call_id.clone();
    let ui = result.ui.clone().map(|ui| Item::Ui { call: call.clone(), ui });
    [Item::Result { call, outcome: result.outcome.clone() }].into_iter().chain(ui).collect()
}
