//! What the call of an agent has come to: a fold of the items of its turn.

use std::collections::BTreeMap;

use abide_conversation::CallId;
use abide_conversation::event::{SuspensionKind, TurnEnded, TurnOutcome};
use abide_conversation::message::Outcome;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};

use crate::protocols::feed::{Item, MessageItem, SuspendedCall};

/// The longest text about progress.
const MAX_PROGRESS_CHARS: usize = 500;

/// How far the call of an agent is.
#[derive(Debug, Default)]
pub struct AgentTurn {
    /// The text of the model's newest message that has one.
    text: String,
    /// The value of a structured turn.
    object: Option<Value>,
    tools: BTreeMap<CallId, String>,
    /// Whether what happens now happens for the first time.
    is_live: bool,
    rest: Option<Vec<SuspendedCall>>,
    end: Option<TurnEnded>,
}

/// The ids of a turn.
#[derive(Clone, Copy, Debug)]
pub struct TurnIds<'a> {
    pub conversation: &'a str,
    pub turn: &'a str,
}

impl AgentTurn {
    /// Takes an item, and returns what a client that follows the call is told of it.
    pub fn take(&mut self, item: &Item) -> Option<String> {
        let progress = match item {
            Item::CaughtUp => {
                let was_live = std::mem::replace(&mut self.is_live, true);
                (!was_live).then(|| "the turn is open".to_owned())
            }
            Item::Message(message) => self.message(message),
            Item::CallStarted(start) => {
                self.tools.insert(start.call.clone(), start.tool.clone());
                Some(format!("{} runs", start.tool))
            }
            Item::Suspended(open) => {
                self.tools.insert(open.call.clone(), open.tool.clone());
                Some(format!("{} waits: {}", open.tool, open.message))
            }
            Item::Resolved(_) => {
                self.rest = None;
                None
            }
            Item::Progress { call, payload } => {
                Some(format!("{}: {}", self.tool(call), described(payload)))
            }
            Item::Result { call, outcome } => {
                self.rest = None;
                Some(format!("{} {}", self.tool(call), verdict(outcome)))
            }
            Item::Rest(open) => {
                self.rest = Some(open.clone());
                None
            }
            Item::End(end) => {
                self.rest = None;
                self.end = Some(end.clone());
                None
            }
            Item::Started { .. }
            | Item::Steered(_)
            | Item::Thinking(_)
            | Item::Text(_)
            | Item::Ui { .. }
            | Item::Todos(_)
            | Item::Refused { .. }
            | Item::Restarted { .. } => None,
        };
        progress
            .filter(|_| self.is_live)
            .map(|text| text.chars().take(MAX_PROGRESS_CHARS).collect())
    }

    /// The calls on which the turn rests.
    pub fn rest(&self) -> Option<&[SuspendedCall]> {
        self.rest.as_deref()
    }

    /// Whether the turn was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.outcome == TurnOutcome::Cancelled)
    }

    /// The result, once the turn has ended.
    pub fn result(&self, ids: TurnIds<'_>) -> Option<CallToolResult> {
        let end = self.end.as_ref()?;
        let (status, text) = match end.outcome {
            TurnOutcome::Completed => ("completed", self.text.clone()),
            TurnOutcome::Cancelled => ("cancelled", reason("cancelled", end)),
            TurnOutcome::Halted => ("halted", reason("halted", end)),
            TurnOutcome::Failed => ("failed", reason("failed", end)),
        };
        let mut structured = ids.structured(status);
        let content = vec![ContentBlock::text(text)];
        let is_completed = end.outcome == TurnOutcome::Completed;
        if let (Some(object), true) = (&self.object, is_completed) {
            structured["object"] = object.clone();
        }
        let result = if is_completed {
            CallToolResult::success(content)
        } else {
            CallToolResult::error(content)
        };
        Some(with_structured(result, structured))
    }

    fn message(&mut self, message: &MessageItem) -> Option<String> {
        let message = &message.assistant.message;
        let text = message.text();
        if !text.is_empty() {
            self.text = text;
        }
        self.object.clone_from(&message.object);
        let is_last = message.tool_calls.is_empty() || self.text.is_empty();
        (!is_last).then(|| self.text.clone())
    }

    fn tool(&self, call: &CallId) -> &str {
        self.tools.get(call).map_or("a call", String::as_str)
    }
}

impl TurnIds<'_> {
    /// The result of a call whose turn waits for people.
    pub fn waiting(self, open: &[SuspendedCall]) -> CallToolResult {
        let line = |open: &SuspendedCall| {
            let what = match open.kind {
                SuspensionKind::Approval => "an approval",
                SuspensionKind::Elicitation => "an answer",
                SuspensionKind::ClientExec => "a page",
                SuspensionKind::InDoubt => "word of whether a call ran",
            };
            format!("Waits for {what}: {}", open.message)
        };
        let pending = |open: &SuspendedCall| {
            json!({"call_id": open.call, "suspension": open.suspension, "kind": open.kind,
                "tool": open.tool, "message": open.message, "expires_at": open.expires_at,
                "may_answer": open.may_answer})
        };
        let mut text: String = open.iter().map(line).collect::<Vec<_>>().join("\n");
        text.push_str(
            "\nA person answers that elsewhere. To go on, call this tool again with the \
             conversation_id and an empty message.",
        );
        let mut structured = self.structured("waiting");
        structured["pending"] = open.iter().map(pending).collect();
        with_structured(CallToolResult::success(vec![ContentBlock::text(text)]), structured)
    }

    /// The result of a call whose turn goes on for longer than a request is held.
    pub fn running(self) -> CallToolResult {
        let text = "The agent still works. To go on, call this tool again with the conversation_id \
            and an empty message.";
        let content = vec![ContentBlock::text(text)];
        with_structured(CallToolResult::success(content), self.structured("running"))
    }

    fn structured(self, status: &str) -> Value {
        json!({"status": status, "conversation_id": self.conversation, "turn_id": self.turn})
    }
}

fn with_structured(mut result: CallToolResult, structured: Value) -> CallToolResult {
    result.structured_content = Some(structured);
    result
}

fn reason(outcome: &str, end: &TurnEnded) -> String {
    match &end.reason {
        Some(reason) => format!("{outcome}: {reason}"),
        None => outcome.to_owned(),
    }
}

fn verdict(outcome: &Outcome) -> &'static str {
    if outcome.is_ok() { "is done" } else { "has failed" }
}

/// What a tool says of its progress.
fn described(payload: &Value) -> String {
    let text = payload.as_str().or_else(|| payload["message"].as_str());
    text.map_or_else(|| payload.to_string(), str::to_owned)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
