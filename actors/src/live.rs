//! The live plane as a port: what a running conversation tells whoever listens.

use std::sync::Arc;

use abide_conversation::event::Event;
use abide_conversation::state::ConversationStatus;
use abide_conversation::{CallId, ConversationId, MessageId, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Something that a listener may want to know now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Signal {
    /// Journalled. A listener that missed one reads the store.
    Committed(Arc<[Event]>),
    /// What the conversation is doing has changed, after the event of this `seq`.
    State { state: ConversationStatus, seq: u64 },
    /// A piece of the streaming message; lossy.
    Text(Delta),
    /// A piece of the streaming message's thinking; the same count.
    Thinking(Delta),
    /// How far a streaming tool has come; lossy.
    Progress { call: CallId, payload: Value },
    /// A new actor has taken over; the journal may have more than was told.
    Revived,
    /// The conversation is gone.
    Deleted,
}

/// A piece of a streaming message, and the step that it belongs to: once that is journalled, the
/// piece is out of date.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Delta {
    pub turn: TurnId,
    pub step: u32,
    pub message: MessageId,
    pub text: String,
    /// Counts from 1 within the message.
    pub delta_seq: u64,
}

/// Carries signals to the listeners of a conversation. Never blocks, never fails.
pub trait LiveSink: Send + Sync + 'static {
    /// Tells all present listeners.
    fn publish(&self, conversation: &ConversationId, signal: Signal);

    /// Counts open event streams of a conversation; the receiver sees every change.
    fn pages(&self, conversation: &ConversationId) -> tokio::sync::watch::Receiver<usize>;
}
