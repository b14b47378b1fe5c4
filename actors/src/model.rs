//! Models behind one trait: a request goes in, parts of a reply stream out.

mod anthropic;
pub(crate) mod big_numbers;
#[cfg(test)]
mod conformance;
mod gemini;
pub mod http;
mod ollama;
mod openai;
mod openai_responses;
pub mod prompt;
pub mod providers;
pub mod retry;
pub mod scripted;
#[cfg(test)]
mod test_server;
pub(crate) mod tokens;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use abide_conversation::MessageId;
use abide_conversation::event::Executor;
use abide_conversation::message::{Message, ProviderMessage, StopReason, Usage};
use abide_conversation::usage::Cost;
use async_trait::async_trait;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::tools::limits::encoded_len;

/// Calls of one message that are carried out, as many as providers allow. Those beyond are each
/// answered with an error: nobody means that many.
pub const MAX_CALLS_PER_MESSAGE: usize = 128;

/// The `model` of a definition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSettings {
    pub provider: Provider,
    #[serde(default)]
    pub name: String,
    pub base_url: Option<String>,
    /// The name of the variable that holds the key; never the key.
    pub api_key_env: Option<String>,
    pub temperature: Option<f64>,
    pub max_tokens: Option<u32>,
    /// How many tokens the model reads at most, input and output together.
    pub window: Option<u32>,
    /// Merged into the request's body: what this provider understands besides.
    #[serde(default)]
    pub options: Map<String, Value>,
    #[serde(default)]
    pub prices: Prices,
    /// The steps or rules of `scripted`, checked by its own parser.
    pub script: Option<Arc<Value>>,
}

/// What a million tokens cost, in dollars; what is absent costs nothing, but cached input and what is
/// written into a cache cost as much as other input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    #[serde(default)]
    pub input: f64,
    #[serde(default)]
    pub output: f64,
    pub cached_input: Option<f64>,
    pub cache_write: Option<f64>,
}

impl Prices {
    /// What a call with this usage cost.
    pub fn cost(&self, usage: &Usage) -> Cost {
        let Usage { input_tokens, output_tokens, cached_tokens, cache_write_tokens, .. } = *usage;
        let cached = cached_tokens.min(input_tokens);
        let written = cache_write_tokens.min(input_tokens - cached);
        let dollars = [
            (input_tokens - cached - written, self.input),
            (cached, self.cached_input.unwrap_or(self.input)),
            (written, self.cache_write.unwrap_or(self.input)),
            (output_tokens, self.output),
        ]
        .into_iter()
        .map(|(tokens, price)| tokens as f64 * price / 1e6)
        .sum();
        Cost::from_usd(dollars).unwrap_or_default()
    }
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

impl Provider {
    /// Its name, as definitions spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scripted => "scripted",
            Self::Openai => "openai",
            Self::OpenaiResponses => "openai_responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
        }
    }

    /// The same, as the GenAI conventions of traces spell it.
    pub(crate) fn otel_name(self) -> &'static str {
        match self {
            Self::Openai | Self::OpenaiResponses => "openai",
            Self::Gemini => "gcp.gemini",
            Self::Scripted | Self::Anthropic | Self::Ollama => self.name(),
        }
    }
}

/// One model call.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelRequest {
    pub settings: ModelSettings,
    pub system: String,
    /// Oldest first. Every call of an assistant message is followed by its result.
    pub messages: Vec<Message>,
    /// How many of the messages the next step will send again, the same and first.
    pub stable_messages: usize,
    /// Assistant messages as their provider wrote them. A format sends those of its own provider so,
    /// and the others from `messages`.
    pub verbatim: BTreeMap<MessageId, ProviderMessage>,
    /// The conversation, for providers that keep its prefix in a cache by name.
    pub cache_key: String,
    pub purpose: Purpose,
    pub tools: Vec<ToolSpec>,
    /// A JSON Schema that the answer must satisfy.
    pub schema: Option<Value>,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A step of a turn.
    #[default]
    Step,
    /// A summary of its messages.
    Summary,
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
pub enum ReplyChunk {
    Text(String),
    Thinking(String),
    /// A whole call.
    Call(ModelToolCall),
    /// The reply is whole; nothing follows.
    Done(ReplyEnd),
}

/// What is known of a reply once it is whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplyEnd {
    pub usage: Option<Usage>,
    pub stop: Option<StopReason>,
    /// The message as its provider wrote it, if that says more than its text and calls: what is
    /// signed, encrypted, cited, or was run by the provider itself.
    pub verbatim: Option<ProviderMessage>,
}

/// A call as the model made it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelToolCall {
    /// The provider's id; may be empty, repeated or hostile.
    pub id: String,
    pub name: String,
    /// The raw text, if it was not JSON, or has a whole number that a value would round.
    pub args: Result<Value, String>,
    /// The result, of a call that the provider executed itself.
    pub provider_result: Option<Value>,
}

impl ModelToolCall {
    /// How long it is as JSON, about.
    pub(crate) fn encoded_bytes(&self) -> usize {
        let args = match &self.args {
            Ok(args) => encoded_len(args),
            Err(raw) => raw.len(),
        };
        args.saturating_add(self.provider_result.as_ref().map_or(0, encoded_len))
    }
}

impl ModelToolCall {
    /// A call whose arguments came as text, piece by piece.
    ///
    /// A tool without parameters is often called with no text at all; that is `{}`, unless the
    /// message was cut short, maybe before the first argument.
    pub(crate) fn from_text(id: String, name: String, args: String, cut: bool) -> Self {
        let args = match big_numbers::parse_exact(args) {
            Err(raw) if raw.trim().is_empty() && !cut => Ok(Value::Object(Default::default())),
            args => args,
        };
        Self { id, name, args, provider_result: None }
    }
}

/// Why a model call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// For people; never a secret, never a provider's whole answer.
    pub message: String,
    pub retry: Retry,
}

impl ModelError {
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
    /// A shorter request may succeed: this one had more tokens than the model reads.
    Shorter,
    /// After a back-off, or after what the provider's `Retry-After` said.
    After(Option<Duration>),
}

/// The parts of one reply. Dropping it closes the connection.
pub type ReplyStream = BoxStream<'static, Result<ReplyChunk, ModelError>>;

/// A provider of models.
#[async_trait]
pub trait Model: Send + Sync + 'static {
    /// Asks the model once, without retrying.
    async fn call(&self, request: &ModelRequest) -> Result<ReplyStream, ModelError>;

    /// What is sent for a request, without keys; null where nothing is.
    fn request_body(&self, request: &ModelRequest) -> Value {
        let _ = request;
        Value::Null
    }
}

#[async_trait]
impl<M: Model + ?Sized> Model for Arc<M> {
    async fn call(&self, request: &ModelRequest) -> Result<ReplyStream, ModelError> {
        self.as_ref().call(request).await
    }

    fn request_body(&self, request: &ModelRequest) -> Value {
        self.as_ref().request_body(request)
    }
}
