//! From the journal to what the model reads: every call followed by its one result.

mod result;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use abide_conversation::event::{
    Added, AssistantMsg, ContextAdded, Data, Event, MessageRefused, RepairRequested,
};
use abide_conversation::message::{CallRef, ErrorType, Message, Outcome, Role, Status, text_block};
use abide_conversation::{CallId, MessageId, TurnId};
use serde_json::Value;

use self::result::Beside;

/// How much is told of what was wrong with a structured answer.
const REASON: usize = 4 * 1024;

/// How the ids begin of a request for a repair, and of what shows the media of results; a person's
/// message never has such an id.
const REPAIR: &str = "repair_";
const MEDIA: &str = "media_";
/// How the id of what a hook put in begins.
pub(crate) const CONTEXT: &str = "context_";

/// How a built-in tool's own error begins.
pub(crate) const OWN_ERROR: &str = "error: ";

/// What stands in place of what was cut off.
const TRUNCATED: &str = "[...truncated...]";

/// The messages for a step of `turn`, oldest first.
///
/// Turns stand in the order in which they started, up to `turn`; a message whose turn has not
/// started is absent. Right after an assistant message stand the results of its calls, in call
/// order; a call whose result the events lack is told as interrupted, and a result without its
/// call is left out, so that no provider ever sees an orphan, whatever the events are.
///
/// A result is its envelope as JSON; but of a tool that `is_builtin`, its own error is the text
/// `error: <code>…` (contract §7). Media in results are only named there: one message of role user
/// shows them, right after the results of all the message's calls.
pub fn messages(
    events: &[Event],
    turn: &TurnId,
    is_builtin: &dyn Fn(&str) -> bool,
) -> Vec<Message> {
    let mut read =
        Read { results: results(events), told: HashSet::new(), messages: Vec::new(), is_builtin };
    let mut by_turn: HashMap<&TurnId, Vec<&Event>> = HashMap::new();
    for event in events {
        if let Some(of) = &event.turn_id {
            by_turn.entry(of).or_default().push(event);
        }
    }
    for started in started(events, turn) {
        let events = by_turn.remove(started).unwrap_or_default();
        let said = events.iter().find_map(|event| {
            if let Data::UserMsg(said) = &event.data { Some(&said.message) } else { None }
        });
        read.messages.extend(said.cloned());
        for event in events {
            read.take(event);
        }
    }
    read.messages
}

/// The turns that have started, up to the one that is asked for.
fn started<'a>(events: &'a [Event], turn: &TurnId) -> Vec<&'a TurnId> {
    let mut turns = Vec::new();
    let mut known = HashSet::new();
    for event in events.iter().filter(|event| matches!(event.data, Data::TurnStarted(_))) {
        let Some(id) = &event.turn_id else { continue };
        if known.insert(id) {
            turns.push(id);
        }
        if id == turn {
            break;
        }
    }
    turns
}

fn results(events: &[Event]) -> HashMap<&CallId, &Outcome> {
    let mut results = HashMap::new();
    for event in events {
        if let Data::ToolResult(result) = &event.data {
            results.entry(&result.call_id).or_insert(&result.outcome);
        }
    }
    results
}

struct Read<'a> {
    results: HashMap<&'a CallId, &'a Outcome>,
    /// Calls that were told; an id is told once.
    told: HashSet<CallId>,
    messages: Vec<Message>,
    is_builtin: &'a dyn Fn(&str) -> bool,
}

impl Read<'_> {
    fn take(&mut self, event: &Event) {
        match &event.data {
            Data::AssistantMsg(spoken) => self.spoken(spoken),
            Data::RepairRequested(wrong) => self.messages.push(repair(event.seq, wrong)),
            Data::ContextAdded(added) => self.messages.extend(added_context(event.seq, added)),
            Data::MessageRefused(refused) => self.messages.push(refusal(event.seq, refused)),
            Data::Created(_)
            | Data::UserMsg(_)
            | Data::TurnStarted(_)
            | Data::ToolCall(_)
            | Data::Suspension(_)
            | Data::Resolution(_)
            | Data::ToolStarted(_)
            | Data::InputRequired(_)
            | Data::ToolResult(_)
            | Data::Forked(_)
            | Data::ContextReduced(_)
            | Data::Summarized(_)
            | Data::SummaryFailed(_)
            | Data::TurnEnded(_)
            | Data::DispatchStarted(_)
            | Data::Dispatch(_)
            | Data::PhaseChanged(_)
            | Data::TodosChanged(_)
            | Data::WorkspaceOpened(_)
            | Data::ChildStarted(_)
            | Data::ChildEnded(_)
            | Data::ChildReleased(_)
            | Data::Told(_)
            | Data::Abandoned {}
            | Data::DecisionRemembered(_)
            | Data::DecisionKept(_)
            | Data::DecisionRevoked(_) => {}
        }
    }

    fn spoken(&mut self, spoken: &AssistantMsg) {
        let mut message = spoken.message.clone();
        message.status = match spoken.status {
            Status::Complete => None,
            cut @ (Status::Cancelled | Status::Error) => Some(cut),
        };
        message.tool_calls.retain(|call| self.told.insert(call.id.clone()));
        let mut beside = Beside::default();
        let result = |call| self.result(call, &mut beside);
        let results: Vec<Message> = message.tool_calls.iter().map(result).collect();
        let media = beside.message(&message.id);
        self.messages.push(message);
        self.messages.extend(results);
        self.messages.extend(media);
    }

    fn result(&self, call: &CallRef, beside: &mut Beside) -> Message {
        let cut = Outcome::Err("tool call interrupted".to_owned(), ErrorType::Interrupted);
        let outcome = self.results.get(&call.id).copied().unwrap_or(&cut);
        let text = match outcome {
            Outcome::Err(error, ErrorType::ToolError) if (self.is_builtin)(&call.name) => {
                bounded(format!("{OWN_ERROR}{error}"), result::RESULT)
            }
            outcome => beside.envelope(call, outcome),
        };
        Message {
            id: MessageId::new(format!("result_{}", call.id)),
            role: Role::Tool,
            content: vec![text_block(text)],
            tool_calls: Vec::new(),
            tool_call_id: Some(call.id.clone()),
            status: None,
            object: None,
        }
    }
}

/// Whether a person said it, rather than that it was made here.
pub(crate) fn is_a_persons(message: &Message) -> bool {
    let made = |prefix| message.id.as_str().starts_with(prefix);
    message.role == Role::User && ![REPAIR, MEDIA, CONTEXT].into_iter().any(made)
}

fn repair(seq: u64, wrong: &RepairRequested) -> Message {
    let reason = bounded(wrong.reason.clone(), REASON);
    let text = format!(
        "Your last answer does not satisfy the JSON schema that was asked for: {reason}\n\
         Answer again, with nothing but JSON that satisfies the schema."
    );
    inserted(format!("{REPAIR}{seq}"), vec![text_block(text)])
}

/// What durable hooks added stands where it was added.
fn added_context(seq: u64, added: &ContextAdded) -> impl Iterator<Item = Message> {
    let message = move |(at, added): (usize, &Added)| {
        inserted(format!("{CONTEXT}{seq}_{at}"), added.content.clone())
    };
    added.added.iter().enumerate().map(message)
}

fn refusal(seq: u64, refused: &MessageRefused) -> Message {
    let reason = bounded(refused.reason.clone(), REASON);
    let text = format!("Your last answer was not accepted: {reason}\nAnswer again.");
    inserted(format!("{CONTEXT}{seq}"), vec![text_block(text)])
}

/// A message that nobody wrote.
pub(crate) fn inserted(id: String, content: Vec<Value>) -> Message {
    Message {
        id: MessageId::new(id),
        role: Role::User,
        content,
        tool_calls: Vec::new(),
        tool_call_id: None,
        status: None,
        object: None,
    }
}

fn bounded(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit));
        text.push_str(TRUNCATED);
    }
    text
}
