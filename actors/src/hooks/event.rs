//! What a hook is told of: the same for code of the program, and as JSON for a server.

use std::sync::Arc;

use abide_conversation::event::{Event, Executor};
use abide_conversation::message::Message;
use abide_conversation::{CallId, ConversationId, Principal, TurnId};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::limits::MAX_VALUE_BYTES;

/// One call of a hook.
#[derive(Clone, Debug, Serialize)]
pub struct HookEvent {
    /// The name under which it was declared.
    pub hook: String,
    pub on: crate::definition::HookPoint,
    #[serde(flatten)]
    pub occasion: HookContext,
    #[serde(flatten)]
    pub what: HookPayload,
}

/// Where it happens, and on whose behalf.
#[derive(Clone, Debug, Serialize)]
pub struct HookContext {
    pub conversation_id: ConversationId,
    /// `None` outside of turns.
    pub turn_id: Option<TurnId>,
    pub principal: Option<Principal>,
    pub assigns: Map<String, Value>,
}

/// What happens.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum HookPayload {
    /// On `pre`: the model is about to read these messages, and then what hooks add.
    Pre {
        step: u32,
        /// The newest, up to 1 MB of JSON; the last one in any case.
        messages: Arc<[Message]>,
    },
    /// On `post`: the model has said this.
    Post {
        step: u32,
        content: Vec<Value>,
        /// `{id, name, args}` each, as the model gave them.
        tool_calls: Vec<Value>,
    },
    /// On `stream`: the model says this.
    Stream {
        step: u32,
        kind: Kind,
        /// All that came while the hooks were busy, or what the hook before let through.
        text: String,
        /// Nothing follows of this kind; the text may be empty.
        r#final: bool,
    },
    /// On `PreToolUse`: a call that the gate lets through, or that a person is asked about.
    Call {
        /// As the model gave it; the journal may rename a repeated one. `None` for a user's own call.
        call_id: Option<CallId>,
        tool: String,
        executor: Executor,
        args: Value,
    },
    /// On the rest: it is journalled.
    Told {
        #[serde(skip_serializing_if = "Option::is_none")]
        tool: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        args: Option<Value>,
        /// As the journal has it; `None` of a conversation that was deleted, and of `PreCompact`.
        event: Option<Arc<Event>>,
    },
}

/// What kind of text streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Text,
    Thinking,
}

/// The newest messages that make up 1 MB of JSON at most; the last one whatever its size.
pub(crate) fn kept(messages: &[Message]) -> Arc<[Message]> {
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
