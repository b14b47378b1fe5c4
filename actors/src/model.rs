//! Models behind one trait: a request goes in, parts of a reply stream out.

pub(crate) mod numbers;
pub mod openai;
pub mod prompt;
pub mod providers;
pub mod retry;
pub mod scripted;
#[cfg(test)]
mod testing;

use std::sync::Arc;
use std::time::Duration;

use abide_conversation::event::Executor;
use abide_conversation::message::{Message, Usage};
use async_trait::async_trait;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Calls of one message that are carried out, as many as providers allow. Those beyond are each
/// answered with an error: nobody means that many.
pub const MOST_CALLS: usize = 128;

/// The `model` of a definition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub provider: Provider,
    #[serde(default)]
    pub name: String,
    pub base_url: Option<String>,
    /// The name of the variable that holds the key; never the key.
    pub api_key_env: Option<String>,
    pub temperature: Option<f64>,
    pub max_tokens: Option<u32>,
    /// The steps or rules of `scripted`, checked by its own parser.
    pub script: Option<Value>,
}

/// Who runs the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    Scripted,
    Openai,
    OpenaiResponses,
    Anthropic,
    Gemini,
    Ollama,
}

/// One model call.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub settings: Settings,
    pub system: String,
    /// Oldest first. Every call of an assistant message is followed by its result.
    pub messages: Vec<Message>,
    pub tools: Vec<ToolSpec>,
    /// A JSON Schema that the answer must satisfy.
    pub schema: Option<Value>,
}

/// A tool as the model is told of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    pub parameters: Value,
    /// Of `provider`, the model's provider runs it by itself.
    pub executor: Executor,
    /// By the provider's name, what its definition on the wire says besides.
    pub provider_options: Map<String, Value>,
}

/// A piece of a reply, in the order in which it came.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    Text(String),
    Thinking(String),
    /// A whole call.
    Call(GivenCall),
    /// The reply is whole; nothing follows.
    Done {
        usage: Option<Usage>,
    },
}

/// A call as the model made it.
#[derive(Clone, Debug, PartialEq)]
pub struct GivenCall {
    /// The provider's id; may be empty, repeated or hostile.
    pub id: String,
    pub name: String,
    /// The raw text, if it was not JSON, or has a whole number that a value would round.
    pub args: Result<Value, String>,
    /// The result, of a call that the provider executed itself.
    pub provided: Option<Value>,
}

/// Why a model call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// For people; never a secret, never a provider's whole answer.
    pub message: String,
    pub retry: Retry,
}

impl Failure {
    /// One that would only fail again.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self { message: message.into(), retry: Retry::Never }
    }

    /// One that may pass.
    pub fn transient(message: impl Into<String>) -> Self {
        Self { message: message.into(), retry: Retry::After(None) }
    }
}

/// Whether a failed call may be tried again, before its first token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    Never,
    /// After a back-off, or after what the provider's `Retry-After` said.
    After(Option<Duration>),
}

/// The parts of one reply. Dropping it closes the connection.
pub type Parts = BoxStream<'static, Result<Part, Failure>>;

/// A provider of models.
#[async_trait]
pub trait Model: Send + Sync + 'static {
    /// Asks the model once, without retrying.
    async fn ask(&self, request: Request) -> Result<Parts, Failure>;
}

#[async_trait]
impl<M: Model + ?Sized> Model for Arc<M> {
    async fn ask(&self, request: Request) -> Result<Parts, Failure> {
        self.as_ref().ask(request).await
    }
}
