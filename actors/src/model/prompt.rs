//! Builds the messages that the model reads from the journal: every call is followed by its one
//! result.

mod provider_tools;
mod result;
pub mod retention;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use abide_conversation::context::Context;
use abide_conversation::event::{
    AddedContext, AssistantMsg, ContextAdded, Event, EventData, MessageRefused, RepairRequested,
    Summarized, Visible,
};
use abide_conversation::message::{
    CallRef, ErrorType, Message, MessageRole, MessageStatus, Outcome, ProviderMessage, text_block,
};
use abide_conversation::{CallId, MessageId, Seq, TurnId};
use serde_json::Value;

use self::result::ResultMedia;
use self::retention::Retention;

/// The longest reason given to the model for a rejected answer.
const MAX_REASON_BYTES: usize = 4 * 1024;

/// The prefixes of the ids of generated messages: repair requests, the media of results, and notes
/// about turns that are not shown. A user's message never has such an id.
const REPAIR_ID: &str = "repair_";
const MEDIA_ID: &str = "media_";
const EARLIER_ID: &str = "earlier_";
/// The prefix of the ids of messages that hooks have added.
pub(crate) const CONTEXT_ID: &str = "context_";

/// The beginning of an error that a built-in tool reported itself.
pub(crate) const BUILTIN_ERROR: &str = "error: ";

/// The mark at the end of a truncated text.
const TRUNCATED: &str = "[...truncated...]";

/// The text of a result that has expired.
pub(crate) const EXPIRED_RESULT: &str = "[result expired]";

/// What the model reads instead of turns that were dropped and that no summary covers.
const DROPPED_TURNS: &str = "[Earlier turns of this conversation are not shown.]";

/// The properties of a tool that matter for the prompt.
#[derive(Clone, Copy, Debug, Default)]
pub struct ToolRule {
    pub is_builtin: bool,
    pub retention: Retention,
}

/// Looks up a tool's rule by its name.
pub type ToolRules<'a> = dyn Fn(&str) -> ToolRule + Sync + 'a;

/// Everything that a prompt is built from: the same input results in the same prompt on every node.
#[derive(Clone, Copy)]
pub struct PromptInput<'a> {
    /// The events from `marks.from` on, and the one that holds the summary.
    pub events: &'a [&'a Event],
    pub turn: &'a TurnId,
    pub context: &'a Context,
    pub rules: &'a ToolRules<'a>,
}

/// One message as the model reads it.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptMessage<'a> {
    pub message: Message,
    /// The event that added it to the context; 0 for notes about earlier turns.
    pub seq: Seq,
    /// `None` for notes about earlier turns.
    pub turn: Option<&'a TurnId>,
    /// The message as its provider wrote it, if it is complete.
    pub verbatim: Option<&'a ProviderMessage>,
}

impl PromptInput<'_> {
    /// The messages, oldest first.
    ///
    /// Turns are ordered by their start, from the marks on and up to `turn`; a message whose turn
    /// has not started is absent. A message that steers a turn comes before the first message of the
    /// model that was written with it. An assistant message is directly followed by the results of its
    /// calls, in call order. A call whose result is not among the events counts as interrupted, and
    /// a result without its call is left out, so that no provider ever sees an orphan, whatever the
    /// events and the marks are. Runs of the provider's own tools are not calls here: a text
    /// describes them.
    ///
    /// A result is its envelope as JSON, but a built-in tool's own error is the text `error:
    /// <code>…` (reference/results.md). Media in results are only named there; one message of role
    /// user contains them, right after the results of all the message's calls.
    pub fn messages(&self) -> Vec<PromptMessage<'_>> {
        let PromptInput { events, context, rules, .. } = *self;
        let mut builder = PromptBuilder {
            results: results_by_call(events),
            expired_calls: retention::expired_calls(events, &context.marks, rules),
            provider_calls: provider_tools::provider_calls(events),
            seen_calls: HashSet::new(),
            messages: Vec::new(),
            unread: Vec::new(),
            turn: None,
            rules,
        };
        builder.push_earlier_turns(events, context);
        let mut by_turn: HashMap<&TurnId, Vec<&Event>> = HashMap::new();
        for event in events {
            if let Some(of) = &event.turn_id {
                by_turn.entry(of).or_default().push(event);
            }
        }
        for (seq, started) in self.started_turns() {
            let events = by_turn.remove(started).unwrap_or_default();
            let message = events.iter().find_map(|event| {
                if let EventData::UserMsg(user) = &event.data { Some(&user.message) } else { None }
            });
            builder.turn = Some(started);
            builder.push(seq, message.cloned());
            for (at, event) in events.iter().enumerate() {
                builder.push_event(event, &events[at + 1..]);
            }
        }
        builder.messages
    }

    /// The turns that have started and are shown, up to the requested one.
    fn started_turns(&self) -> Vec<(Seq, &TurnId)> {
        let mut turns = Vec::new();
        let mut seen = HashSet::new();
        let starts = |event: &&&Event| matches!(event.data, EventData::TurnStarted(_));
        for event in self.events.iter().filter(starts) {
            let Some(id) = &event.turn_id else { continue };
            let is_shown = event.seq >= self.context.marks.shown_from || id == self.turn;
            if seen.insert(id) && is_shown {
                turns.push((event.seq, id));
            }
            if id == self.turn {
                break;
            }
        }
        turns
    }
}

fn results_by_call<'a>(events: &[&'a Event]) -> HashMap<&'a CallId, &'a Outcome> {
    let mut results = HashMap::new();
    for event in events {
        if let EventData::ToolResult(result) = &event.data {
            results.entry(&result.call_id).or_insert(&result.outcome);
        }
    }
    results
}

struct PromptBuilder<'a> {
    results: HashMap<&'a CallId, &'a Outcome>,
    /// Calls whose results have expired.
    expired_calls: HashSet<&'a CallId>,
    /// Calls that the provider ran.
    provider_calls: HashSet<&'a CallId>,
    /// Calls that are in the prompt already; each id occurs once.
    seen_calls: HashSet<CallId>,
    messages: Vec<PromptMessage<'a>>,
    /// Messages that steer the turn and came while the model wrote its next message.
    unread: Vec<Message>,
    /// The turn whose events are being read.
    turn: Option<&'a TurnId>,
    rules: &'a ToolRules<'a>,
}

impl<'a> PromptBuilder<'a> {
    fn push(&mut self, seq: Seq, messages: impl IntoIterator<Item = Message>) {
        let turn = self.turn;
        let prompt_messages = messages.into_iter().map(|message| PromptMessage {
            message,
            seq,
            turn,
            verbatim: None,
        });
        self.messages.extend(prompt_messages);
    }

    /// Adds the summary and the note about dropped turns.
    fn push_earlier_turns(&mut self, events: &[&Event], context: &Context) {
        let summary = context.summary.and_then(|summary| {
            let event = events.iter().find(|event| event.seq == summary.seq)?;
            if let EventData::Summarized(summarized) = &event.data {
                Some(summarized)
            } else {
                None
            }
        });
        let mut content: Vec<Value> = summary.map(summary_block).into_iter().collect();
        if context.has_uncovered_drop() {
            content.push(text_block(DROPPED_TURNS));
        }
        if !content.is_empty() {
            self.push(
                Seq::ZERO,
                [generated_message(format!("{EARLIER_ID}{}", context.marks.shown_from), content)],
            );
        }
    }

    /// Adds an event of the turn, which these follow.
    fn push_event(&mut self, event: &'a Event, later: &[&'a Event]) {
        let seq = event.seq;
        match event.data.visible() {
            Some(Visible::Steered(steered)) if is_unread(seq, later) => {
                self.unread.push(steered.message.clone());
            }
            Some(Visible::Steered(steered)) => self.push(seq, [steered.message.clone()]),
            Some(Visible::Assistant(assistant)) => self.push_assistant(seq, assistant),
            Some(Visible::Repair(request)) => self.push(seq, [repair_message(seq, request)]),
            Some(Visible::Added(added)) => self.push(seq, added_messages(seq, added)),
            Some(Visible::Refused(refused)) => self.push(seq, [refusal_message(seq, refused)]),
            // The user's message opens the turn, and results follow the message with their calls.
            Some(Visible::User(_) | Visible::Result(_)) | None => {}
        }
    }

    fn push_assistant(&mut self, seq: Seq, assistant: &'a AssistantMsg) {
        let mut message = assistant.message.clone();
        let verbatim =
            assistant.verbatim.as_ref().filter(|_| assistant.status == MessageStatus::Complete);
        message.status = match assistant.status {
            MessageStatus::Complete => None,
            interrupted @ (MessageStatus::Cancelled | MessageStatus::Error) => Some(interrupted),
        };
        message.tool_calls.retain(|call| self.seen_calls.insert(call.id.clone()));
        let (hosted, calls): (Vec<_>, _) =
            message.tool_calls.into_iter().partition(|call| self.provider_calls.contains(&call.id));
        message.tool_calls = calls;
        message
            .content
            .extend(hosted.iter().map(|it| provider_tools::run_as_text(it, self.outcome(it))));
        let mut media = ResultMedia::default();
        let result = |call| self.result_message(call, &mut media);
        let results: Vec<Message> = message.tool_calls.iter().map(result).collect();
        let media = media.into_message(&message.id);
        self.messages.push(PromptMessage { message, seq, turn: self.turn, verbatim });
        // The results were journalled after the message, one by one; the step that reads them is
        // the same.
        let unread = std::mem::take(&mut self.unread);
        self.push(seq.next(), results.into_iter().chain(media).chain(unread));
    }

    fn outcome(&self, call: &CallRef) -> Option<&'a Outcome> {
        self.results.get(&call.id).copied()
    }

    fn result_message(&self, call: &CallRef, media: &mut ResultMedia) -> Message {
        let interrupted = Outcome::Err("tool call interrupted".to_owned(), ErrorType::Interrupted);
        let text = match self.outcome(call).unwrap_or(&interrupted) {
            _ if self.expired_calls.contains(&call.id) => EXPIRED_RESULT.to_owned(),
            Outcome::Err(error, ErrorType::ToolError) if (self.rules)(&call.name).is_builtin => {
                truncate(format!("{BUILTIN_ERROR}{error}"), result::MAX_RESULT_BYTES)
            }
            outcome => media.envelope(call, outcome),
        };
        let id = MessageId::new(format!("result_{}", call.id));
        let tool_call_id = Some(call.id.clone());
        Message { tool_call_id, ..Message::new(id, MessageRole::Tool, vec![text_block(text)]) }
    }
}

/// Whether the model's next message was written without having read the event.
fn is_unread(seq: Seq, later: &[&Event]) -> bool {
    let next = later.iter().find_map(|event| match &event.data {
        EventData::AssistantMsg(assistant) => Some(assistant),
        _ => None,
    });
    next.and_then(|assistant| assistant.read_upto).is_some_and(|read| seq > read)
}

/// Whether a person wrote the message, rather than this program.
pub(crate) fn is_from_person(message: &Message) -> bool {
    let is_generated = |prefix| message.id.as_str().starts_with(prefix);
    message.role == MessageRole::User
        && ![REPAIR_ID, MEDIA_ID, EARLIER_ID, CONTEXT_ID].into_iter().any(is_generated)
}

fn summary_block(summarized: &Summarized) -> Value {
    text_block(format!("Summary of the conversation before this:\n{}", summarized.text))
}

fn repair_message(seq: Seq, request: &RepairRequested) -> Message {
    let reason = truncate(request.reason.clone(), MAX_REASON_BYTES);
    let text = format!(
        "Your last answer does not satisfy the JSON schema that was asked for: {reason}\n\
         Answer again, with nothing but JSON that satisfies the schema."
    );
    generated_message(format!("{REPAIR_ID}{seq}"), vec![text_block(text)])
}

/// The messages that durable hooks added, at the place where they were added.
fn added_messages(seq: Seq, added: &ContextAdded) -> impl Iterator<Item = Message> {
    let message = move |(at, added): (usize, &AddedContext)| {
        generated_message(format!("{CONTEXT_ID}{seq}_{at}"), added.content.clone())
    };
    added.added.iter().enumerate().map(message)
}

fn refusal_message(seq: Seq, refused: &MessageRefused) -> Message {
    let reason = truncate(refused.reason.clone(), MAX_REASON_BYTES);
    let text = format!("Your last answer was not accepted: {reason}\nAnswer again.");
    generated_message(format!("{CONTEXT_ID}{seq}"), vec![text_block(text)])
}

/// A message that the program generated.
pub(crate) fn generated_message(id: String, content: Vec<Value>) -> Message {
    Message::new(MessageId::new(id), MessageRole::User, content)
}

fn truncate(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit));
        text.push_str(TRUNCATED);
    }
    text
}
