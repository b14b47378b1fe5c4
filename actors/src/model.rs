//! Language models behind one trait: a request goes in, the chunks of a reply stream out.

mod anthropic;
pub mod big_numbers;
mod call_pieces;
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
use abide_conversation::message::{Message, ProviderMessage, StopReason};
use abide_conversation::usage::{Cost, Usage};
use async_trait::async_trait;
use futures::stream::BoxStream;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::limits::encoded_len;
use crate::outbound::Outbound;

pub use call_pieces::{CallPiece, CallPieceSink};

/// The calls of one message that are carried out, as many as providers allow. Each further call
/// gets an error as its result: no model makes more calls on purpose.
pub const MAX_CALLS_PER_MESSAGE: usize = 128;

/// Which model speaks, and how: the `model` of a definition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelSettings {
    pub provider: Provider,
    #[serde(default, deserialize_with = "null_as_default")]
    #[schema(value_type = Option<String>)]
    pub name: String,
    /// Any compatible server.
    #[schema(example = "http://127.0.0.1:9000/v1")]
    pub base_url: Option<String>,
    /// The name of the environment variable that holds the key; never the key itself.
    #[schema(example = "OPENAI_API_KEY")]
    pub api_key_env: Option<String>,
    pub temperature: Option<f64>,
    pub max_tokens: Option<u32>,
    /// The size of the model's context window in tokens, input and output together.
    pub window: Option<u32>,
    /// Merged into the request's body: what this provider understands besides, such as
    /// `{"reasoning_effort": "low"}`.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schema(value_type = Option<Map<String, Value>>)]
    pub options: Map<String, Value>,
    #[serde(default, deserialize_with = "null_as_default")]
    #[schema(value_type = Option<Prices>)]
    pub prices: Prices,
    /// The models that are called in turn, at most 4, when this one is overloaded or gone: it cannot be
    /// reached, or still answers 408, 409, 429 or 5xx after all attempts, or 404 or 410. None of them has
    /// a `fallback` of its own.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Vec<ModelSettings>>, no_recursion, max_items = 4)]
    pub fallback: Vec<ModelSettings>,
    /// For `scripted`: one entry a step, or rules matched against the last user message.
    #[schema(value_type = Option<Vec<Map<String, Value>>>)]
    pub script: Option<Arc<Value>>,
    /// What it may reach and name; no part of the document.
    #[serde(skip)]
    #[schema(ignore)]
    pub outbound: Outbound,
}

/// Null is the same as absent.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Dollars per million tokens. An absent price is 0, but cached input and cache writes default to
/// the price of other input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    #[serde(default, deserialize_with = "null_as_default")]
    #[schema(value_type = Option<f64>)]
    pub input: f64,
    #[serde(default, deserialize_with = "null_as_default")]
    #[schema(value_type = Option<f64>)]
    pub output: f64,
    pub cached_input: Option<f64>,
    pub cache_write: Option<f64>,
}

impl Prices {
    /// The cost of a call with this usage.
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

/// The API that serves the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ModelProvider)]
pub enum Provider {
    Scripted,
    Openai,
    OpenaiResponses,
    Anthropic,
    Gemini,
    Ollama,
}

impl Provider {
    /// The name used in definitions.
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

    /// The name used in traces, by OpenTelemetry's GenAI conventions.
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
    /// How many of the first messages the next step will send again unchanged; the prompt cache is
    /// marked after them.
    pub stable_messages: usize,
    /// Assistant messages as their provider wrote them. A format sends those of its own provider
    /// unchanged, and writes the others from `messages`.
    pub verbatim: BTreeMap<MessageId, ProviderMessage>,
    /// The conversation's id, for providers whose prompt cache has named entries.
    pub cache_key: String,
    pub purpose: Purpose,
    pub tools: Vec<ToolSpec>,
    /// A JSON Schema that the answer must satisfy.
    pub schema: Option<Value>,
    /// Receives the arguments of calls while they are written.
    pub call_pieces: CallPieceSink,
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A step of a turn.
    #[default]
    Step,
    /// A summary of the request's messages.
    Summary,
}

/// A tool as it is described to the model.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    pub parameters: Arc<Value>,
    /// With [`Executor::Provider`], the model's provider runs the tool itself.
    pub executor: Executor,
    /// Additions to the tool's definition in the request, by the provider's name.
    pub provider_options: Map<String, Value>,
}

/// A chunk of a reply, in the order of arrival.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplyChunk {
    Text(String),
    Thinking(String),
    /// A complete call.
    Call(ModelToolCall),
    /// The reply is complete; nothing follows.
    Done(ReplyEnd),
}

/// The facts that are known only when a reply is complete.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplyEnd {
    pub usage: Option<Usage>,
    pub stop: Option<StopReason>,
    /// The message as its provider wrote it, if that holds more than text and calls: signed or
    /// encrypted thinking, citations, or runs of the provider's own tools.
    pub verbatim: Option<ProviderMessage>,
}

/// A call as the model made it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelToolCall {
    /// The provider's id; may be empty, repeated or hostile.
    pub id: String,
    pub name: String,
    /// `Err` holds the raw text, if it was not JSON or contains an integer that a JSON value would
    /// round.
    pub args: Result<Value, String>,
    /// The result, if the provider executed the call itself.
    pub provider_result: Option<Value>,
}

impl ModelToolCall {
    /// The approximate length of its arguments and result as JSON.
    pub(crate) fn encoded_bytes(&self) -> usize {
        let args = match &self.args {
            Ok(args) => encoded_len(args),
            Err(raw) => raw.len(),
        };
        args.saturating_add(self.provider_result.as_ref().map_or(0, encoded_len))
    }

    /// A call whose arguments were streamed as text.
    ///
    /// A tool without parameters is often called with no text at all; that counts as `{}`, unless
    /// the message was cut short (`cut`), possibly before the first argument.
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
    /// For people; never contains a secret or a provider's whole answer.
    pub message: String,
    pub retry: Retry,
}

impl ModelError {
    /// An error that would only occur again.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self { message: message.into(), retry: Retry::Never }
    }

    /// Whether another model may answer: this one is overloaded, or gone.
    pub fn is_unavailable(&self) -> bool {
        match self.retry {
            Retry::After(_) | Retry::Elsewhere => true,
            Retry::Never | Retry::Shorter => false,
        }
    }

    /// An error that may not occur again.
    pub fn transient(message: impl Into<String>) -> Self {
        Self { message: message.into(), retry: Retry::After(None) }
    }
}

/// Whether a failed call may be retried, as long as no chunk of the reply has been passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    Never,
    /// Not of this model, which is not there; another one may answer.
    Elsewhere,
    /// Only a shorter request may succeed: this one has more tokens than the model's window.
    Shorter,
    /// After a backoff, or after the provider's own `Retry-After`.
    After(Option<Duration>),
}

/// The chunks of one reply. Dropping the stream closes the connection.
pub type ReplyStream = BoxStream<'static, Result<ReplyChunk, ModelError>>;

/// A client of one or more providers of models.
#[async_trait]
pub trait Model: Send + Sync + 'static {
    /// Calls the model once, without retries.
    async fn call(&self, request: &ModelRequest) -> Result<ReplyStream, ModelError>;

    /// The body that is sent for a request, without keys; null if no body is sent.
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
