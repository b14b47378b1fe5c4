//! The frames of an event stream (contract §5), drawn from events and signals.

use abide_actors::live::Signal;
use abide_actors::snapshot::Snapshot;
use abide_conversation::event::{
    Event, EventData, Executor, Intent, Suspension, SuspensionKind, Todo, ToolCall, ToolResult,
    ToolStarted, TurnEnded, TurnOutcome,
};
use abide_conversation::message::{Message, Outcome};
use abide_conversation::permission::PermissionPhase;
use abide_conversation::state::ConversationStatus;
use abide_conversation::{CallId, MessageId, Timestamp, TurnId};
use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// A frame; with an id when it is the last that mirrors its event.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Frame {
    pub(super) payload: Payload,
    pub(super) id: Option<u64>,
}

/// What a frame says: its `event` line and its `data`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
pub(super) enum Payload {
    /// The conversation as it is when the stream opens; always the first frame.
    Snapshot(Box<Snapshot>),
    /// What the conversation is doing has changed. Live only.
    StateChanged { state: ConversationStatus },
    /// A turn runs; exactly one of the four terminal frames follows.
    TurnStarted {
        #[schema(value_type = TurnId)]
        turn_id: Option<TurnId>,
    },
    /// A piece of the assistant's text. Live only; `delta_seq` counts from 1 within the message.
    TextDelta { message_id: MessageId, text: String, delta_seq: u64 },
    /// A piece of the model's thinking. Live only; shares the count of the text.
    ThinkingDelta { message_id: MessageId, text: String, delta_seq: u64 },
    /// The assistant's message, whole.
    MessageCompleted {
        #[schema(value_type = TurnId)]
        turn_id: Option<TurnId>,
        message: Message,
    },
    /// A call was handed to its executor; `attempt` counts from 1.
    ToolCallStarted {
        call_id: CallId,
        tool: String,
        executor: Executor,
        intent: Intent,
        args: Value,
        attempt: u32,
    },
    /// How far a streaming tool has come, in its own words. Live only.
    ToolProgress { call_id: CallId, payload: Value },
    /// A call has its result.
    ToolCallResolved { call_id: CallId, result: Outcome },
    /// A call ended in an error.
    ToolCallErrored { call_id: CallId, result: Outcome },
    /// What a tool shows to people; right after the frame of its result.
    ToolUi { call_id: CallId, kind: String, payload: Value },
    /// The list of what is to be done was replaced.
    TodosChanged { todos: Vec<Todo> },
    /// What the conversation may do by itself has changed.
    PhaseChanged { phase: PermissionPhase },
    /// A call waits for an answer from outside.
    Suspended {
        call_id: CallId,
        tool: String,
        executor: Executor,
        kind: SuspensionKind,
        intent: Intent,
        args: Value,
        message: String,
        suspension: u32,
        expires_at: Timestamp,
        /// What a tool asks for that had begun to run.
        #[serde(skip_serializing_if = "Option::is_none")]
        requests: Option<serde_json::Value>,
    },
    /// A hook refused what the model had streamed as this message; it is no part of the
    /// conversation, and another follows.
    MessageRefused {
        #[schema(value_type = TurnId)]
        turn_id: Option<TurnId>,
        message_id: MessageId,
        reason: String,
    },
    /// The model had nothing more to do.
    TurnCompleted {
        #[schema(value_type = TurnId)]
        turn_id: Option<TurnId>,
    },
    /// The turn was cancelled or interrupted.
    TurnCancelled {
        #[schema(value_type = TurnId)]
        turn_id: Option<TurnId>,
    },
    /// The turn was stopped: `max_steps`, or a tool's wish.
    TurnHalted {
        #[schema(value_type = TurnId)]
        turn_id: Option<TurnId>,
        #[schema(required)]
        reason: Option<String>,
    },
    /// The turn broke, such as `schema_violation` or a provider's failure.
    TurnFailed {
        #[schema(value_type = TurnId)]
        turn_id: Option<TurnId>,
        #[schema(required)]
        reason: Option<String>,
    },
}

impl Frame {
    pub(super) fn live(payload: Payload) -> Self {
        Self { payload, id: None }
    }

    /// As it stands in a stream.
    pub(super) fn written(&self) -> Bytes {
        // It is `{"event":"…","data":…}`, and JSON has no line breaks of its own.
        let said = serde_json::to_string(&self.payload).unwrap_or_default();
        let said = said.strip_prefix(r#"{"event":""#).and_then(|said| said.strip_suffix('}'));
        let (name, data) =
            said.and_then(|said| said.split_once(r#"","data":"#)).unwrap_or_default();
        match self.id {
            Some(id) => format!("event: {name}\ndata: {data}\nid: {id}\n\n").into(),
            None => format!("event: {name}\ndata: {data}\n\n").into(),
        }
    }
}

/// The frames of a signal as they stand in a stream: of a commit one piece for each event, of
/// another at most one.
pub(super) fn write(signal: &Signal) -> Vec<Bytes> {
    match signal {
        Signal::Committed(events) => events.iter().map(written).collect(),
        signal => of_signal(signal).iter().map(Frame::written).collect(),
    }
}

/// The frames of an event as they stand in a stream; empty if it has none.
pub(super) fn written(event: &Event) -> Bytes {
    match of_event(event).as_slice() {
        [] => Bytes::new(),
        [frame] => frame.written(),
        frames => frames.iter().map(Frame::written).collect::<Vec<_>>().concat().into(),
    }
}

/// The frames that mirror a journalled event; many events have none.
pub(super) fn of_event(event: &Event) -> Vec<Frame> {
    let mut frames: Vec<Frame> = mirrors(event).into_iter().map(Frame::live).collect();
    if let Some(last) = frames.last_mut() {
        last.id = Some(event.seq);
    }
    frames
}

fn mirrors(event: &Event) -> Vec<Payload> {
    let turn_id = event.turn_id.clone();
    match &event.data {
        EventData::TurnStarted(_) => vec![Payload::TurnStarted { turn_id }],
        EventData::AssistantMsg(spoken) => {
            let message = Message { status: Some(spoken.status), ..spoken.message.clone() };
            vec![Payload::MessageCompleted { turn_id, message }]
        }
        EventData::ToolCall(call) if call.started => vec![handed_over(call)],
        EventData::ToolStarted(started) => vec![started_again(started)],
        EventData::Suspension(suspension) => vec![suspended(suspension)],
        EventData::ToolResult(result) => resolved(result),
        EventData::TurnEnded(ended) => vec![over(turn_id, ended)],
        EventData::TodosChanged(changed) => {
            vec![Payload::TodosChanged { todos: changed.todos.clone() }]
        }
        EventData::MessageRefused(refused) => vec![Payload::MessageRefused {
            turn_id,
            message_id: refused.message.id.clone(),
            reason: refused.reason.clone(),
        }],
        EventData::PhaseChanged(changed) => vec![Payload::PhaseChanged { phase: changed.phase }],
        EventData::Created(_)
        | EventData::UserMsg(_)
        | EventData::ToolCall(_)
        | EventData::Resolution(_)
        | EventData::InputRequired(_)
        | EventData::RepairRequested(_)
        | EventData::ContextAdded(_)
        | EventData::DispatchStarted(_)
        | EventData::DispatchFinished(_)
        | EventData::WorkspaceOpened(_)
        | EventData::ChildStarted(_)
        | EventData::ChildEnded(_)
        | EventData::ChildReleased(_)
        | EventData::ParentNotified(_)
        | EventData::Abandoned {}
        | EventData::DecisionRemembered(_)
        | EventData::DecisionPublished(_)
        | EventData::Forked(_)
        | EventData::ContextReduced(_)
        | EventData::Summarized(_)
        | EventData::SummaryFailed(_)
        | EventData::DecisionRevoked(_)
        | EventData::Unknown(_) => Vec::new(),
    }
}

fn over(turn_id: Option<TurnId>, ended: &TurnEnded) -> Payload {
    let reason = ended.reason.clone();
    match ended.outcome {
        TurnOutcome::Completed => Payload::TurnCompleted { turn_id },
        TurnOutcome::Cancelled => Payload::TurnCancelled { turn_id },
        TurnOutcome::Halted => Payload::TurnHalted { turn_id, reason },
        TurnOutcome::Failed => Payload::TurnFailed { turn_id, reason },
    }
}

fn handed_over(call: &ToolCall) -> Payload {
    Payload::ToolCallStarted {
        call_id: call.call_id.clone(),
        tool: call.tool.clone(),
        executor: call.executor,
        intent: call.intent,
        args: call.args.clone(),
        attempt: 1,
    }
}

fn started_again(started: &ToolStarted) -> Payload {
    Payload::ToolCallStarted {
        call_id: started.call_id.clone(),
        tool: started.tool.clone(),
        executor: started.executor,
        intent: started.intent,
        args: started.args.clone(),
        attempt: started.attempt,
    }
}

fn suspended(suspension: &Suspension) -> Payload {
    Payload::Suspended {
        call_id: suspension.call_id.clone(),
        tool: suspension.tool.clone(),
        executor: suspension.executor,
        kind: suspension.kind,
        intent: suspension.intent,
        args: suspension.args.clone(),
        message: suspension.message.clone(),
        suspension: suspension.suspension,
        expires_at: suspension.expires_at,
        requests: suspension.requests.clone(),
    }
}

fn resolved(done: &ToolResult) -> Vec<Payload> {
    let (call_id, result) = (done.call_id.clone(), done.outcome.clone());
    let resolved = match result.is_ok() {
        true => Payload::ToolCallResolved { call_id, result },
        false => Payload::ToolCallErrored { call_id, result },
    };
    let shown = done.ui.clone().map(|ui| Payload::ToolUi {
        call_id: done.call_id.clone(),
        kind: ui.kind,
        payload: ui.payload,
    });
    [resolved].into_iter().chain(shown).collect()
}

/// The frame of a live signal; `None` for those that mirror the journal.
pub(super) fn of_signal(signal: &Signal) -> Option<Frame> {
    let payload = match signal {
        Signal::State { state, .. } => Payload::StateChanged { state: *state },
        Signal::Text(delta) => Payload::TextDelta {
            message_id: delta.message.clone(),
            text: delta.text.clone(),
            delta_seq: delta.delta_seq,
        },
        Signal::Thinking(delta) => Payload::ThinkingDelta {
            message_id: delta.message.clone(),
            text: delta.text.clone(),
            delta_seq: delta.delta_seq,
        },
        Signal::Progress { call, payload } => {
            Payload::ToolProgress { call_id: call.clone(), payload: payload.clone() }
        }
        Signal::Committed(_) | Signal::Revived | Signal::Deleted => return None,
    };
    Some(Frame::live(payload))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use abide_conversation::message::Ui;
    use serde_json::json;

    use super::*;

    fn event(data: EventData) -> Event {
        Event { seq: 7, at: Timestamp::UNIX_EPOCH, turn_id: Some(TurnId::new("turn_1")), data }
    }

    #[test]
    fn of_several_mirrors_only_the_last_has_the_id() {
        let ui = Ui { kind: "card".to_owned(), payload: json!({"n": 1}) };
        let done = ToolResult {
            call_id: CallId::new("c"),
            outcome: Outcome::Ok(json!(1)),
            ui: Some(ui),
            effective_args: None,
        };
        let frames = of_event(&event(EventData::ToolResult(done)));
        let told: Vec<_> = frames.iter().map(|frame| (json!(frame.payload), frame.id)).collect();
        let resolved = json!({"event": "tool_call_resolved",
            "data": {"call_id": "c", "result": {"ok": true, "result": 1}}});
        let shown = json!({"event": "tool_ui",
            "data": {"call_id": "c", "kind": "card", "payload": {"n": 1}}});
        assert_eq!(told, [(resolved, None), (shown, Some(7))]);
    }

    #[test]
    fn a_turn_ends_with_the_frame_of_its_outcome() {
        for (outcome, name) in [
            (TurnOutcome::Completed, "turn_completed"),
            (TurnOutcome::Cancelled, "turn_cancelled"),
            (TurnOutcome::Halted, "turn_halted"),
            (TurnOutcome::Failed, "turn_failed"),
        ] {
            let ended = TurnEnded { outcome, reason: Some("so".to_owned()) };
            let frames = of_event(&event(EventData::TurnEnded(ended)));
            let said = json!(frames[0].payload);
            assert_eq!((frames.len(), &said["event"]), (1, &json!(name)));
            let reasoned = matches!(outcome, TurnOutcome::Halted | TurnOutcome::Failed);
            assert_eq!(said["data"].get("reason").is_some(), reasoned, "{name}");
        }
    }
}
