//! The live plane as a port: a running conversation publishes signals to its listeners.

use std::sync::Arc;

use abide_conversation::event::Event;
use abide_conversation::state::ConversationStatus;
use abide_conversation::{CallId, ConversationId, MessageId, Scoped, Seq, Step, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::child_calls::ChildCalls;

/// A signal to the listeners of a conversation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Signal {
    /// Events were journalled. A listener that missed the signal reads the store.
    Committed(Arc<[Event]>),
    /// The status of the conversation has changed, after the event of this `seq`.
    #[serde(rename = "State")]
    Status {
        #[serde(rename = "state")]
        status: ConversationStatus,
        seq: Seq,
    },
    /// Text of the streaming message; may be lost.
    Text(Delta),
    /// Thinking of the streaming message, numbered together with its text; may be lost.
    Thinking(Delta),
    /// Progress of a streaming tool; may be lost.
    Progress { call: CallId, payload: Value },
    /// A descendant of this root waits for something else now. Travels outside of the other signals,
    /// since nodes of an older version would not understand it.
    #[serde(skip)]
    Child(Arc<ChildCalls>),
    /// A piece of the arguments of a call that the streaming message makes; may be lost. Travels
    /// outside of the other signals, since nodes of an older version would not understand it.
    #[serde(skip)]
    CallArgs(Arc<CallDelta>),
    /// A new actor has taken over. The journal may have events that were never published.
    Revived,
    /// The conversation was deleted.
    Deleted,
}

/// A piece of a streaming message, with the step that it belongs to. It is out of date once that
/// step is journalled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Delta {
    pub turn: TurnId,
    pub step: Step,
    pub message: MessageId,
    pub text: String,
    /// The number of the piece within the message, from 1.
    pub delta_seq: u64,
}

/// A piece of the arguments of a call, with the step that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallDelta {
    pub turn: TurnId,
    pub step: Step,
    pub message: MessageId,
    /// The position of the call in the message's `tool_calls`, from 0.
    pub index: usize,
    /// The tool's name, in the first piece; what came before for the index is void.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub args_text: String,
}

/// The channel of a tenant's live inboxes. No conversation has this id: none from outside is one.
pub fn inbox_channel() -> ConversationId {
    ConversationId::new("!inbox")
}

/// Delivers signals to the listeners of a conversation. Never blocks, never fails.
pub trait LiveSink: Send + Sync + 'static {
    /// Sends a signal to all current listeners.
    fn publish(&self, conversation: &Scoped<ConversationId>, signal: Signal);

    /// Whether a signal that is published now may reach anybody: what nobody hears need not be made.
    /// Asking counts as publishing: it makes the conversation known to listeners on other nodes.
    fn may_be_heard(&self, conversation: &Scoped<ConversationId>) -> bool;

    /// The number of open event streams of a conversation; the receiver sees every change.
    fn listeners(
        &self,
        conversation: &Scoped<ConversationId>,
    ) -> tokio::sync::watch::Receiver<usize>;
}
