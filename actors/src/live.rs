//! The live plane as a port: what a running conversation tells whoever listens.

use std::sync::Arc;

use abide_conversation::event::Event;
use abide_conversation::state::Activeness;
use abide_conversation::{CallId, ConversationId, MessageId};
use serde_json::Value;

/// Something that a listener may want to know now.
#[derive(Clone, Debug)]
pub enum Signal {
    /// Journalled. A listener that missed one reads the store.
    Committed(Arc<[Event]>),
    /// What the conversation is doing has changed.
    State(Activeness),
    /// A piece of the streaming message; lossy. `delta_seq` counts from 1 within the message.
    Text { message: MessageId, text: String, delta_seq: u64 },
    /// A piece of the streaming message's thinking; the same count.
    Thinking { message: MessageId, text: String, delta_seq: u64 },
    /// How far a streaming tool has come; lossy.
    Progress { call: CallId, payload: Value },
    /// The conversation is gone.
    Deleted,
}

/// Carries signals to the listeners of a conversation. Never blocks, never fails.
pub trait Live: Send + Sync + 'static {
    /// Tells all present listeners.
    fn publish(&self, conversation: &ConversationId, signal: Signal);

    /// Counts open event streams of a conversation; the receiver sees every change.
    fn pages(&self, conversation: &ConversationId) -> tokio::sync::watch::Receiver<usize>;
}
