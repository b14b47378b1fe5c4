//! The message that a model is writing now: live, lossy, and never the truth.

use std::sync::{Arc, Mutex, PoisonError};

use abide_conversation::command::PartialMessage;
use abide_conversation::message::text_block;
use abide_conversation::{ConversationId, MessageId, Scoped, Step, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::live::{Delta, LiveSink, Signal};

/// The message as far as it has streamed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StreamingMessage {
    pub id: MessageId,
    pub text: String,
    pub thinking: String,
    /// The number of deltas so far.
    pub delta_seq: u64,
    #[serde(skip, default = "no_turn")]
    pub turn: TurnId,
    #[serde(skip)]
    #[schema(value_type = u32)]
    pub step: Step,
}

/// The turn is not serialized: only this node needs it.
fn no_turn() -> TurnId {
    TurnId::new("")
}

impl StreamingMessage {
    /// The content blocks that the message has so far.
    pub fn content(&self) -> Vec<Value> {
        let thinking = (!self.thinking.is_empty())
            .then(|| json!({"type": "reasoning", "text": self.thinking}));
        let text = (!self.text.is_empty()).then(|| text_block(&self.text));
        thinking.into_iter().chain(text).collect()
    }
}

/// One stream, shared by the task that reads it and the actor that may interrupt it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream(Arc<Mutex<Option<StreamingMessage>>>);

impl Stream {
    /// The message so far; `None` before its first chunk.
    pub(crate) fn message(&self) -> Option<StreamingMessage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the first chunk has arrived.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// The message to journal if the stream is interrupted now.
    pub(crate) fn partial(&self) -> Option<PartialMessage> {
        let message = self.message()?;
        let content = message.content();
        Some(PartialMessage { id: message.id, step: message.step, content })
    }

    /// Begins the message; its first chunk follows.
    pub(crate) fn begin(&self, id: MessageId, turn: TurnId, step: Step) {
        let message = StreamingMessage {
            id,
            text: String::new(),
            thinking: String::new(),
            delta_seq: 0,
            turn,
            step,
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(message);
    }

    /// Adds a piece and publishes it.
    pub(crate) fn add(
        &self,
        live: &dyn LiveSink,
        conversation: &Scoped<ConversationId>,
        piece: Piece<'_>,
    ) {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(message) = guard.as_mut() else { return };
        message.delta_seq += 1;
        let delta = |message: &StreamingMessage, text: &str| Delta {
            turn: message.turn.clone(),
            step: message.step,
            message: message.id.clone(),
            text: text.to_owned(),
            delta_seq: message.delta_seq,
        };
        let signal = match piece {
            Piece::Text(text) => {
                message.text.push_str(text);
                Signal::Text(delta(message, text))
            }
            Piece::Thinking(text) => {
                message.thinking.push_str(text);
                Signal::Thinking(delta(message, text))
            }
        };
        drop(guard);
        live.publish(conversation, signal);
    }
}

/// A piece of a streaming message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Piece<'a> {
    Text(&'a str),
    Thinking(&'a str),
}
