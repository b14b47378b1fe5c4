//! The frames of an event stream, made of journalled events and live signals: `reference/events.md`.

mod payloads;

use std::borrow::Cow;
use std::fmt::Display;
use std::io::Write;

use abide_actors::journal::InboxEntry;
use abide_actors::live::Signal;
use abide_actors::snapshot::Snapshot;
use abide_conversation::approval::ApproverGroup;
use abide_conversation::event::{Doubt, Event, EventData, Executor, Intent, SuspensionKind, Todo};
use abide_conversation::message::{Message, MessageStatus, Outcome};
use abide_conversation::permission::PermissionPhase;
use abide_conversation::state::ConversationStatus;
use abide_conversation::usage::Usage;
use abide_conversation::{
    AnswerSchema, Attempt, CallArgs, CallId, ConversationId, MessageId, Principal, Seq, Timestamp,
    TurnId,
};
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use payloads::{
    answered, attempt_started, call_ended, call_started, message_completed, rewound, suspended,
    turn_ended, user_message,
};

/// Room for the names of a frame's lines, and for its id.
const FRAME_LINES_BYTES: usize = 48;
/// Room for the JSON of a usual frame: text that grows is copied for each doubling.
const USUAL_JSON_BYTES: usize = 512;

/// A frame. Only the last of those that mirror an event has an id.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Frame<'a> {
    pub(super) payload: Payload<'a>,
    pub(super) id: Option<Seq>,
}

/// The `event` line of a frame and its `data`, which is mostly that of the event that it mirrors.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
pub(super) enum Payload<'a> {
    /// The conversation as of the opening of the stream; always the first frame.
    Snapshot(Box<Snapshot>),
    /// The state of the conversation has changed. Live only.
    StateChanged { state: ConversationStatus },
    /// A turn has started; exactly one of the four terminal frames follows.
    TurnStarted {
        #[schema(value_type = TurnId)]
        turn_id: Option<TurnId>,
    },
    /// A user's message, when it was sent: that of a queued turn comes before the turn starts, and one
    /// that steers a turn while that runs.
    UserMessage {
        #[schema(value_type = TurnId)]
        turn_id: Option<TurnId>,
        message: UserMessage<'a>,
    },
    /// A queued turn was withdrawn: it will not start.
    TurnWithdrawn {
        #[schema(value_type = TurnId)]
        turn_id: Option<TurnId>,
        by: Principal,
    },
    /// The conversation goes on from the event `to_seq`: the messages of later events count no longer.
    Rewound {
        #[schema(value_type = u64)]
        to_seq: Seq,
        by: Principal,
        /// The todos from now on.
        todos: Vec<Todo>,
    },
    /// A part of the assistant's text. Live only; `delta_seq` counts from 1 within the message.
    TextDelta { message_id: MessageId, text: String, delta_seq: u64 },
    /// A part of the model's thinking. Live only; `delta_seq` counts text and thinking together.
    ThinkingDelta { message_id: MessageId, text: String, delta_seq: u64 },
    /// A part of the arguments of a call that the assistant's message makes. Live only, and only of
    /// calls that nobody may still change or hold back; the call is whole in `message_completed`, at
    /// `index` of its `tool_calls`, and may not be executed before it is handed over.
    ToolCallDelta {
        message_id: MessageId,
        index: usize,
        /// The tool, in the first part; what came before for the index is void.
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        args_text: String,
    },
    /// The complete message of the assistant.
    MessageCompleted {
        #[schema(value_type = TurnId)]
        turn_id: Option<TurnId>,
        #[schema(value_type = Message)]
        message: AssistantMessage<'a>,
        /// Usage of the model call; absent if the provider did not say.
        #[serde(skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// A call was handed to its executor; `attempt` counts from 1.
    ToolCallStarted {
        call_id: CallId,
        tool: String,
        executor: Executor,
        intent: Intent,
        args: Cow<'a, Value>,
        #[schema(value_type = u32)]
        attempt: Attempt,
    },
    /// The progress of a streaming tool, in a form of the tool's own. Live only.
    ToolProgress { call_id: CallId, payload: Cow<'a, Value> },
    /// A call has its result.
    ToolCallResolved { call_id: CallId, result: Cow<'a, Outcome> },
    /// A call ended in an error.
    ToolCallErrored { call_id: CallId, result: Cow<'a, Outcome> },
    /// What a tool shows to people; sent right after the frame of its result.
    ToolUi { call_id: CallId, kind: Cow<'a, str>, payload: Cow<'a, Value> },
    /// The list of todos was replaced.
    TodosChanged { todos: Vec<Todo> },
    /// The permission phase of the conversation has changed.
    PhaseChanged { phase: PermissionPhase },
    /// A call waits for a person or a client.
    Suspended {
        call_id: CallId,
        tool: String,
        executor: Executor,
        kind: SuspensionKind,
        intent: Intent,
        args: Cow<'a, Value>,
        message: Cow<'a, str>,
        suspension: u32,
        expires_at: Timestamp,
        /// The input that a running tool asked for.
        #[serde(skip_serializing_if = "Option::is_none")]
        requests: Option<serde_json::Value>,
        /// The JSON Schema of an answer: of the body of an approval, else of its `result`. Absent if
        /// any answer fits.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<Object>)]
        answer_schema: Option<AnswerSchema>,
        /// Calls in doubt only: what is known of the attempt that was cut off.
        #[serde(skip_serializing_if = "Option::is_none")]
        doubt: Option<Doubt>,
    },
    /// Somebody answered a call that waited, and it waits for this answer no longer.
    Answered {
        call_id: CallId,
        suspension: u32,
        kind: SuspensionKind,
        /// Who answered last.
        by: Principal,
        /// Approvals only.
        #[serde(skip_serializing_if = "Option::is_none")]
        approved: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Somebody voted on a call that further approvers must approve.
    Voted {
        call_id: CallId,
        suspension: u32,
        /// The voter's `sub`.
        by: String,
        approved: bool,
        /// The arguments from now on, if the voter edited them: then no earlier vote counts.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<Value>)]
        args: Option<CallArgs>,
    },
    /// A call that waits will expire soon.
    SuspensionExpiring { call_id: CallId, suspension: u32, expires_at: Timestamp },
    /// A call waits longer.
    SuspensionExtended { call_id: CallId, suspension: u32, expires_at: Timestamp, by: Principal },
    /// More people may approve a call that waits.
    SuspensionEscalated { call_id: CallId, suspension: u32, by: ApproverGroup },
    /// A call of a descendant waits for a person or a client; the members are those of the inbox. Live
    /// only.
    ChildSuspended(Box<InboxEntry>),
    /// A call of a descendant no longer waits as `child_suspended`, or the snapshot, said. Live only.
    ChildCallClosed { conversation_id: ConversationId, call_id: CallId, suspension: u32 },
    /// The credential of the request has ended, and with it the stream: reconnect with another. Live
    /// only.
    CredentialEnded {},
    /// What is written about the conversation was replaced; what stays is absent.
    ConversationUpdated {
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<Map<String, Value>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        members: Option<Vec<String>>,
        /// Null: there is none any more.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>)]
        title: Option<Option<String>>,
        /// When it is deleted. Null: at no time of its own any more.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<Timestamp>)]
        expires_at: Option<Option<Timestamp>>,
    },
    /// A hook refused the message that the model had streamed; it is not part of the conversation, and
    /// another follows.
    MessageRefused {
        #[schema(value_type = TurnId)]
        turn_id: Option<TurnId>,
        message_id: MessageId,
        reason: String,
    },
    /// The turn ended because the model had nothing more to do.
    TurnCompleted {
        #[schema(value_type = TurnId)]
        turn_id: Option<TurnId>,
        /// Usage of the turn, including that of its children.
        #[serde(skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// The turn was cancelled or interrupted.
    TurnCancelled {
        #[schema(value_type = TurnId)]
        turn_id: Option<TurnId>,
        /// Usage of the turn, including that of its children.
        #[serde(skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// The turn was stopped by `max_steps` or by a tool.
    TurnHalted {
        #[schema(value_type = TurnId)]
        turn_id: Option<TurnId>,
        #[schema(required)]
        reason: Option<String>,
        /// Usage of the turn, including that of its children.
        #[serde(skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// The turn failed, for example by a `schema_violation` or an error of the provider.
    TurnFailed {
        #[schema(value_type = TurnId)]
        turn_id: Option<TurnId>,
        #[schema(required)]
        reason: Option<String>,
        /// Usage of the turn, including that of its children.
        #[serde(skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
}

/// A user's message as clients see it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(super) struct UserMessage<'a> {
    #[serde(flatten)]
    message: Cow<'a, Message>,
    /// The `message_id` that the client gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    client_id: Option<Cow<'a, str>>,
}

/// The assistant's message as clients see it: its event has the status beside it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct AssistantMessage<'a> {
    #[serde(flatten)]
    message: Cow<'a, Message>,
    status: MessageStatus,
}

impl<'a> Frame<'a> {
    pub(super) fn live(payload: Payload<'a>) -> Self {
        Self { payload, id: None }
    }

    /// The bytes of the frame in a stream.
    pub(super) fn encode(&self) -> Bytes {
        self.payload.encode(self.id)
    }
}

impl Payload<'_> {
    /// The bytes of a frame with this id.
    pub(super) fn encode(&self, id: Option<impl Display>) -> Bytes {
        // The JSON is `{"event":"…","data":…}`, and compact JSON has no line breaks.
        let mut json = Vec::with_capacity(USUAL_JSON_BYTES);
        // What is written to memory fails for no payload.
        let _ = serde_json::to_writer(&mut json, self);
        let members = json.strip_prefix(br#"{"event":""#).and_then(|rest| rest.strip_suffix(b"}"));
        let members = members.unwrap_or_default();
        // No name has a quotation mark.
        let name_len = members.iter().position(|byte| *byte == b'"').unwrap_or_default();
        let (name, data) = members.split_at(name_len);
        let data = data.strip_prefix(br#"","data":"#).unwrap_or_default();
        let mut frame = Vec::with_capacity(json.len() + FRAME_LINES_BYTES);
        for part in [b"event: ", name, b"\ndata: ", data] {
            frame.extend_from_slice(part);
        }
        if let Some(id) = id {
            let _ = write!(frame, "\nid: {id}");
        }
        frame.extend_from_slice(b"\n\n");
        frame.into()
    }
}

/// The encoded frames of a signal: for a commit one item for each event, for any other signal at most
/// one.
pub(super) fn encode_signal(signal: &Signal) -> Vec<Bytes> {
    match signal {
        Signal::Committed(events) => events.iter().map(encode_event).collect(),
        signal => signal_frame(signal).iter().map(Frame::encode).collect(),
    }
}

/// The encoded frames of an event; empty if it has none.
pub(super) fn encode_event(event: &Event) -> Bytes {
    match event_frames(event).as_slice() {
        [] => Bytes::new(),
        [frame] => frame.encode(),
        frames => frames.iter().map(Frame::encode).collect::<Vec<_>>().concat().into(),
    }
}

/// The frames that mirror a journalled event; many events have none.
fn event_frames(event: &Event) -> Vec<Frame<'_>> {
    let mut frames: Vec<Frame<'_>> = payloads(event).into_iter().map(Frame::live).collect();
    if let Some(last) = frames.last_mut() {
        last.id = Some(event.seq);
    }
    frames
}

fn payloads(event: &Event) -> Vec<Payload<'_>> {
    let turn_id = event.turn_id.clone();
    match &event.data {
        EventData::TurnStarted(_) => vec![Payload::TurnStarted { turn_id }],
        EventData::AssistantMsg(assistant) => vec![message_completed(turn_id, assistant)],
        EventData::UserMsg(it) => vec![user_message(turn_id, &it.message, it.message_id.as_ref())],
        EventData::Steered(it) => vec![user_message(turn_id, &it.message, it.message_id.as_ref())],
        EventData::Rewound(it) => vec![rewound(it)],
        EventData::TurnWithdrawn(it) => vec![Payload::TurnWithdrawn { turn_id, by: it.by.clone() }],
        EventData::ToolCall(call) if call.started => vec![call_started(call)],
        EventData::ToolStarted(started) => vec![attempt_started(started)],
        EventData::Suspension(suspension) => vec![suspended(suspension)],
        EventData::Voted(voted) => vec![Payload::Voted {
            call_id: voted.call_id.clone(),
            suspension: voted.suspension,
            by: voted.vote.by.subject().sub,
            approved: voted.vote.approved,
            args: voted.args.clone(),
        }],
        EventData::SuspensionExpiring(expiring) => vec![Payload::SuspensionExpiring {
            call_id: expiring.call_id.clone(),
            suspension: expiring.suspension,
            expires_at: expiring.expires_at,
        }],
        EventData::SuspensionExtended(extended) => vec![Payload::SuspensionExtended {
            call_id: extended.call_id.clone(),
            suspension: extended.suspension,
            expires_at: extended.expires_at,
            by: extended.by.clone(),
        }],
        EventData::SuspensionEscalated(escalated) => vec![Payload::SuspensionEscalated {
            call_id: escalated.call_id.clone(),
            suspension: escalated.suspension,
            by: escalated.by.clone(),
        }],
        EventData::Resolution(resolution) => vec![answered(resolution)],
        EventData::ToolResult(result) => call_ended(result),
        EventData::TurnEnded(ended) => vec![turn_ended(turn_id, ended)],
        EventData::TodosChanged(changed) => {
            vec![Payload::TodosChanged { todos: changed.todos.clone() }]
        }
        EventData::MessageRefused(refused) => vec![Payload::MessageRefused {
            turn_id,
            message_id: refused.message.id.clone(),
            reason: refused.reason.clone(),
        }],
        EventData::Updated(updated) => vec![Payload::ConversationUpdated {
            metadata: updated.metadata.clone(),
            members: updated.members.clone(),
            title: updated.title.clone(),
            expires_at: updated.expires_at,
        }],
        EventData::PhaseChanged(changed) => vec![Payload::PhaseChanged { phase: changed.phase }],
        EventData::Created(_)
        | EventData::ToolAttemptFailed(_)
        | EventData::StateChanged(_)
        | EventData::Operated(_)
        | EventData::ToolQueued(_)
        | EventData::ToolLeased(_)
        | EventData::CallbackAwaited(_)
        | EventData::MessageScheduled(_)
        | EventData::ScheduleEnded(_)
        | EventData::ToolCall(_)
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

/// The frame of a live signal; `None` for signals that have no frame, or one that depends on what the
/// client knows.
fn signal_frame(signal: &Signal) -> Option<Frame<'_>> {
    let payload = match signal {
        Signal::Status { status, .. } => Payload::StateChanged { state: *status },
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
            Payload::ToolProgress { call_id: call.clone(), payload: Cow::Borrowed(payload) }
        }
        Signal::CallArgs(delta) => Payload::ToolCallDelta {
            message_id: delta.message.clone(),
            index: delta.index,
            name: delta.name.clone(),
            args_text: delta.args_text.clone(),
        },
        Signal::Committed(_) | Signal::Child(_) | Signal::Revived | Signal::Deleted => return None,
    };
    Some(Frame::live(payload))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
