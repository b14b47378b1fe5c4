//! What a hook receives: the same for code of the program, and as JSON for a server.

use std::sync::Arc;

use abide_conversation::event::{Event, Executor};
use abide_conversation::message::Message;
use abide_conversation::{CallId, ConversationId, Principal, Step, TurnId};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::limits::MAX_VALUE_BYTES;

/// One call of a hook.
#[derive(Clone, Debug, Serialize)]
pub struct HookEvent {
    /// The name under which the hook was declared.
    pub hook: String,
    pub on: crate::definition::HookPoint,
    #[serde(flatten)]
    pub context: HookContext,
    #[serde(flatten)]
    pub payload: HookPayload,
}

/// The conversation and the principal that a hook is called for.
#[derive(Clone, Debug, Serialize)]
pub struct HookContext {
    pub conversation_id: ConversationId,
    /// `None` outside of turns.
    pub turn_id: Option<TurnId>,
    pub principal: Option<Principal>,
    pub assigns: Map<String, Value>,
}

/// What happens, by hook point.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum HookPayload {
    /// On `pre`: the model is about to read these messages, followed by what hooks add.
    Pre {
        step: Step,
        /// The newest messages, up to 1 MB of JSON; always the last one.
        messages: Arc<[Message]>,
    },
    /// On `post`: the message that the model wrote.
    Post {
        step: Step,
        content: Vec<Value>,
        /// Each is `{id, name, args}` as the model gave it.
        tool_calls: Vec<Value>,
    },
    /// On `stream`: text of the message that the model is writing.
    Stream {
        step: Step,
        kind: Kind,
        /// All text that came while the hooks were busy, or what the previous hook let through.
        text: String,
        /// Whether no more text of this kind follows. The text may then be empty.
        r#final: bool,
    },
    /// On `PreToolUse`: a call that the gate allows, or that a person will be asked about.
    Call {
        /// The id that the model gave; the journal may change a repeated one. `None` for a user's
        /// own call.
        call_id: Option<CallId>,
        tool: String,
        executor: Executor,
        args: Value,
    },
    /// At the other hook points, after the commit.
    Notification {
        #[serde(skip_serializing_if = "Option::is_none")]
        tool: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        args: Option<Value>,
        /// The journalled event; `None` on `SessionEnd` and `PreCompact`.
        event: Option<Arc<Event>>,
    },
}

/// The kind of text that streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Text,
    Thinking,
}

/// The newest messages, together at most 1 MB of JSON; always the last one, whatever its size.
pub(crate) fn newest_messages(messages: &[Message]) -> Arc<[Message]> {
    let size = |message: &Message| serde_json::to_vec(message).map_or(usize::MAX, |it| it.len());
    let mut left = MAX_VALUE_BYTES;
    let fits = |message: &&Message| {
        let size = size(message);
        let fits = size <= left;
        left = left.saturating_sub(size);
        fits
    };
    let newest = messages.iter().rev().take_while(fits).count().max(1).min(messages.len());
    messages[messages.len() - newest..].into()
}
