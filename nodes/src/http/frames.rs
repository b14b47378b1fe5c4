//! The frames of an event stream (contract §5), drawn from events and signals.

use abide_actors::live::Signal;
use abide_conversation::event::{
    Data, Ending, Event, Suspension, ToolCall, ToolResult, ToolStarted,
};
use abide_conversation::message::Message;
use axum::response::sse;
use serde_json::{Value, json};

/// A frame; with an id when it is the last that mirrors its event.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Frame {
    pub(super) name: &'static str,
    pub(super) data: Value,
    pub(super) id: Option<u64>,
}

impl Frame {
    pub(super) fn live(name: &'static str, data: Value) -> Self {
        Self { name, data, id: None }
    }
}

impl From<Frame> for sse::Event {
    fn from(frame: Frame) -> Self {
        let event = sse::Event::default().event(frame.name).data(frame.data.to_string());
        match frame.id {
            Some(id) => event.id(id.to_string()),
            None => event,
        }
    }
}

/// The frames that mirror a journalled event; many events have none.
pub(super) fn of_event(event: &Event) -> Vec<Frame> {
    let mut frames = mirrors(event);
    if let Some(last) = frames.last_mut() {
        last.id = Some(event.seq);
    }
    frames
}

fn mirrors(event: &Event) -> Vec<Frame> {
    let turn_id = &event.turn_id;
    match &event.data {
        Data::TurnStarted(_) => vec![Frame::live("turn_started", json!({"turn_id": turn_id}))],
        Data::AssistantMsg(spoken) => {
            let message = Message { status: Some(spoken.status), ..spoken.message.clone() };
            let data = json!({"turn_id": turn_id, "message": message});
            vec![Frame::live("message_completed", data)]
        }
        Data::ToolCall(call) if call.started => vec![handed_over(call)],
        Data::ToolStarted(started) => vec![started_again(started)],
        Data::Suspension(suspension) => vec![suspended(suspension)],
        Data::ToolResult(result) => resolved(result),
        Data::TurnEnded(ended) => {
            let (name, data) = match ended.outcome {
                Ending::Completed => ("turn_completed", json!({"turn_id": turn_id})),
                Ending::Cancelled => ("turn_cancelled", json!({"turn_id": turn_id})),
                Ending::Halted => {
                    ("turn_halted", json!({"turn_id": turn_id, "reason": ended.reason}))
                }
                Ending::Failed => {
                    ("turn_failed", json!({"turn_id": turn_id, "reason": ended.reason}))
                }
            };
            vec![Frame::live(name, data)]
        }
        Data::Created(_)
        | Data::UserMsg(_)
        | Data::ToolCall(_)
        | Data::Resolution(_)
        | Data::RepairRequested(_)
        | Data::DispatchStarted(_)
        | Data::Dispatch(_) => Vec::new(),
    }
}

fn handed_over(call: &ToolCall) -> Frame {
    Frame::live(
        "tool_call_started",
        json!({
            "call_id": call.call_id, "tool": call.tool, "executor": call.executor,
            "intent": call.intent, "args": call.args, "attempt": 1,
        }),
    )
}

fn started_again(started: &ToolStarted) -> Frame {
    Frame::live(
        "tool_call_started",
        json!({
            "call_id": started.call_id, "tool": started.tool, "executor": started.executor,
            "intent": started.intent, "args": started.args, "attempt": started.attempt,
        }),
    )
}

fn suspended(suspension: &Suspension) -> Frame {
    Frame::live(
        "suspended",
        json!({
            "call_id": suspension.call_id, "tool": suspension.tool,
            "executor": suspension.executor, "kind": suspension.kind,
            "intent": suspension.intent, "args": suspension.args, "message": suspension.message,
            "suspension": suspension.suspension, "expires_at": suspension.expires_at,
        }),
    )
}

fn resolved(result: &ToolResult) -> Vec<Frame> {
    let name = if result.outcome.is_ok() { "tool_call_resolved" } else { "tool_call_errored" };
    let done = json!({"call_id": result.call_id, "result": result.outcome});
    let shown = result.ui.as_ref().map(|ui| {
        let data = json!({"call_id": result.call_id, "kind": ui.kind, "payload": ui.payload});
        Frame::live("tool_ui", data)
    });
    [Frame::live(name, done)].into_iter().chain(shown).collect()
}

/// The frame of a live signal; `None` for those that mirror the journal.
pub(super) fn of_signal(signal: &Signal) -> Option<Frame> {
    Some(match signal {
        Signal::State(state) => Frame::live("state_changed", json!({"state": state})),
        Signal::Text { message, text, delta_seq } => Frame::live(
            "text_delta",
            json!({"message_id": message, "text": text, "delta_seq": delta_seq}),
        ),
        Signal::Thinking { message, text, delta_seq } => Frame::live(
            "thinking_delta",
            json!({"message_id": message, "text": text, "delta_seq": delta_seq}),
        ),
        Signal::Progress { call, payload } => {
            Frame::live("tool_progress", json!({"call_id": call, "payload": payload}))
        }
        Signal::Committed(_) | Signal::Deleted => return None,
    })
}
