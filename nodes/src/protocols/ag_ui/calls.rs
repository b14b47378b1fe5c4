//! The calls of a step as far as clients are told of them.
//!
//! Clients execute a call that they have the tool of as soon as they know of it. So one that needs an
//! approval, and that a client might execute, is told once it was approved and not before. A call is
//! told with the first that happens to it: only then it is known whether it needs an approval.

use std::collections::BTreeMap;

use abide_conversation::event::SuspensionKind;
use abide_conversation::message::{CallRef, Outcome};
use abide_conversation::{CallArgs, CallId, MessageId};
use serde_json::{Value, json};

use super::types::{Dialect, RunTools};
use crate::protocols::feed::{CallStart, SuspendedCall};

/// What has happened to a call, as far as it decides whether clients may know of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CallProgress {
    /// Whether anything has.
    is_known: bool,
    /// Whether it needs an approval, and a client might execute it before that.
    is_hideable: bool,
    /// Whether it was handed to its executor.
    is_started: bool,
    is_done: bool,
}

impl CallProgress {
    /// Notes that the call waits.
    pub fn suspend(&mut self, call: &SuspendedCall, tools: &RunTools) {
        self.is_known = true;
        match call.kind {
            SuspensionKind::Approval => {
                self.is_hideable = tools.might_execute(&call.tool, call.executor);
            }
            SuspensionKind::Elicitation | SuspensionKind::ClientExec | SuspensionKind::InDoubt => {
                self.is_started = true
            }
        }
    }

    /// Notes that the call begins to run.
    pub fn start(&mut self) {
        self.is_known = true;
        self.is_started = true;
    }

    /// Notes that the call has its result.
    pub fn end(&mut self) {
        self.is_known = true;
        self.is_done = true;
    }

    /// Whether a snapshot has the call. One that was approved and has no result is told after it, in a
    /// message of its own: clients execute only calls of new messages.
    pub fn is_in_snapshot(self) -> bool {
        self.is_known && (!self.is_hideable || self.is_done)
    }

    /// Whether an event may tell the call. One that was denied is told by snapshots alone.
    fn may_be_told(self) -> bool {
        self.is_known && (!self.is_hideable || self.is_started)
    }
}

/// The calls of the latest step.
#[derive(Debug, Default)]
pub struct ToolCalls(BTreeMap<CallId, ToolCall>);

#[derive(Debug)]
struct ToolCall {
    name: String,
    args: CallArgs,
    message: MessageId,
    progress: CallProgress,
    is_told: bool,
}

impl ToolCalls {
    /// Begins a step with these calls of this message.
    pub fn begin(&mut self, message: &MessageId, calls: &[CallRef]) {
        let call = |call: &CallRef| {
            let state = ToolCall {
                name: call.name.clone(),
                args: call.args.clone(),
                message: message.clone(),
                progress: CallProgress::default(),
                is_told: false,
            };
            (call.id.clone(), state)
        };
        self.0 = calls.iter().map(call).collect();
    }

    /// The events of a call that begins to run.
    pub fn start(&mut self, start: &CallStart) -> Vec<Value> {
        let Some(call) = self.0.get_mut(&start.call) else { return Vec::new() };
        call.progress.start();
        call.args = start.args.clone();
        call.tell(&start.call)
    }

    /// The events of a call that waits.
    pub fn suspend(&mut self, suspended: &SuspendedCall, tools: &RunTools) -> Vec<Value> {
        let Some(call) = self.0.get_mut(&suspended.call) else { return Vec::new() };
        call.progress.suspend(suspended, tools);
        call.tell(&suspended.call)
    }

    /// The events of a call that has its result; `None` if only a snapshot may tell it.
    pub fn end(&mut self, id: &CallId, outcome: &Outcome, dialect: Dialect) -> Option<Vec<Value>> {
        let Some(call) = self.0.get_mut(id) else { return Some(Vec::new()) };
        call.progress.end();
        let mut events = call.tell(id);
        if !call.is_told {
            return None;
        }
        events.push(result(id, outcome, dialect));
        Some(events)
    }

    /// The events of calls that a snapshot of what happened so far does not have, and that clients are to
    /// execute.
    pub fn continue_snapshot(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        for (id, call) in &mut self.0 {
            call.is_told = call.progress.is_in_snapshot();
            events.extend(call.tell(id));
        }
        events
    }
}

impl ToolCall {
    /// Tells the call, unless it is told or must not be.
    fn tell(&mut self, id: &CallId) -> Vec<Value> {
        if self.is_told || !self.progress.may_be_told() {
            return Vec::new();
        }
        self.is_told = true;
        let mut start =
            json!({"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": self.name});
        if !self.progress.is_hideable {
            start["parentMessageId"] = json!(self.message);
        }
        let args = self.args.to_string();
        vec![
            start,
            json!({"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": args}),
            json!({"type": "TOOL_CALL_END", "toolCallId": id}),
        ]
    }
}

/// The id of the message with the result of a call.
pub fn result_id(call: &CallId) -> String {
    format!("result_{call}")
}

/// The content of the message with a result: a text as it is, any other value as JSON, or the error.
pub fn result_content(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Ok(Value::String(text)) => text.clone(),
        Outcome::Ok(value) => value.to_string(),
        Outcome::Err(error, _) => error.clone(),
    }
}

/// What becomes of a call, beside the content.
pub fn result_metadata(outcome: &Outcome) -> Value {
    match outcome {
        Outcome::Ok(_) => json!({"abide": {"ok": true}}),
        Outcome::Err(_, error_type) => json!({"abide": {"ok": false, "error_type": error_type}}),
    }
}

fn result(call: &CallId, outcome: &Outcome, dialect: Dialect) -> Value {
    let mut event = json!({"type": "TOOL_CALL_RESULT", "messageId": result_id(call),
        "toolCallId": call, "content": result_content(outcome), "role": "tool"});
    if dialect == Dialect::V1 {
        event["metadata"] = result_metadata(outcome);
    }
    event
}
