//! Messages and results, in the shapes that clients and models see.

pub mod blocks;
#[cfg(feature = "openapi")]
mod openapi;

use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::cost::Cost;
use crate::ids::{CallId, MessageId};
use crate::read;

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    User,
    Assistant,
    Tool,
}

/// How an assistant's message ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = MessageStatus))]
#[serde(rename_all = "snake_case")]
pub enum MessageStatus {
    Complete,
    Cancelled,
    Error,
}

/// One call as the assistant's message names it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CallRef {
    pub id: CallId,
    pub name: String,
    /// As the model gave them; a string when they were not JSON.
    pub args: Value,
}

/// A message. A block of an unknown `type` passes through untouched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Message {
    pub id: MessageId,
    pub role: Role,
    pub content: Vec<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<CallRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<CallId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<MessageStatus>,
    #[serde(default, deserialize_with = "read::present", skip_serializing_if = "Option::is_none")]
    pub object: Option<Value>,
}

impl Message {
    /// A message that says this and nothing else.
    pub fn new(id: MessageId, role: Role, content: Vec<Value>) -> Self {
        let (tool_calls, tool_call_id, status, object) = Default::default();
        Self { id, role, content, tool_calls, tool_call_id, status, object }
    }

    /// The text blocks, joined.
    pub fn text(&self) -> String {
        let text = |block: &Value| {
            (block["type"] == "text").then(|| block["text"].as_str().map(str::to_owned))?
        };
        self.content.iter().filter_map(text).collect()
    }
}

/// A `text` block.
pub fn text_block(text: impl Into<String>) -> Value {
    serde_json::json!({"type": "text", "text": text.into()})
}

/// The vocabulary of `error_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ErrorType {
    Denied,
    PermissionDenied,
    Expired,
    Cancelled,
    ToolNotFound,
    ValidationError,
    ToolError,
    ToolCrashed,
    Timeout,
    Interrupted,
    NoClient,
}

/// What a call came to: `{"ok": true, "result"}` or `{"ok": false, "error", "error_type"}`.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Ok(Value),
    Err(String, ErrorType),
}

impl Outcome {
    /// Whether it is a result, not an error.
    pub fn is_ok(&self) -> bool {
        matches!(self, Outcome::Ok(_))
    }
}

impl Serialize for Outcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("ok", &self.is_ok())?;
        match self {
            Outcome::Ok(result) => map.serialize_entry("result", result)?,
            Outcome::Err(error, error_type) => {
                map.serialize_entry("error", error)?;
                map.serialize_entry("error_type", error_type)?;
            }
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Outcome {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Wire {
            ok: bool,
            #[serde(default)]
            result: Value,
            error: Option<String>,
            error_type: Option<ErrorType>,
        }
        let wire = Wire::deserialize(deserializer)?;
        match (wire.ok, wire.error) {
            (true, _) => Ok(Outcome::Ok(wire.result)),
            (false, Some(error)) => {
                Ok(Outcome::Err(error, wire.error_type.unwrap_or(ErrorType::ToolError)))
            }
            (false, None) => Err(D::Error::missing_field("error")),
        }
    }
}

/// What a tool shows to people; the model never sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Ui {
    pub kind: String,
    pub payload: Value,
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It had nothing more to say.
    End,
    /// It waits for the results of its calls.
    ToolCalls,
    /// Its message was cut where it may be no longer.
    MaxTokens,
    /// It, or its provider, would not answer.
    Refusal,
    /// Its provider goes on when it is asked again.
    Paused,
}

/// A message in its provider's own form, to be sent back to that provider as it was: what it signed,
/// encrypted or ran by itself is in no other form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProviderMessage {
    /// Whose form it is, as a definition names it.
    pub provider: String,
    pub model: String,
    /// The message's pieces, in their order.
    pub items: Vec<Value>,
}

/// What a model call cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Usage {
    /// All of the input, what came from a cache or went into one included.
    #[serde(default)]
    pub input_tokens: u64,
    /// All of the output, thinking included.
    #[serde(default)]
    pub output_tokens: u64,
    /// Input that was read from the provider's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached_tokens: u64,
    /// Input that was written into the provider's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_tokens: u64,
    /// Dollars, by the prices of the definition.
    #[serde(default, rename = "cost_usd", skip_serializing_if = "Cost::is_zero")]
    #[cfg_attr(feature = "openapi", schema(value_type = f64))]
    pub cost: Cost,
}

fn is_zero(tokens: &u64) -> bool {
    *tokens == 0
}

impl Usage {
    /// Input and output.
    pub fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, more: Self) {
        self.input_tokens = self.input_tokens.saturating_add(more.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(more.output_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(more.cached_tokens);
        self.cache_write_tokens = self.cache_write_tokens.saturating_add(more.cache_write_tokens);
        self.cost += more.cost;
    }
}
