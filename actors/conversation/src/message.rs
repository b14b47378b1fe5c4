//! Messages and results, in the forms that clients and models see.

pub mod blocks;
#[cfg(feature = "openapi")]
mod openapi;

use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::CallArgs;
use crate::ids::{CallId, MessageId};
use crate::json;

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Role))]
#[serde(rename_all = "snake_case")]
pub enum MessageRole {
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

/// A call, as the assistant's message names it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CallRef {
    pub id: CallId,
    pub name: String,
    /// The model's arguments; a string if they were not JSON.
    #[cfg_attr(feature = "openapi", schema(value_type = Value))]
    pub args: CallArgs,
}

/// A message. Content blocks of an unknown `type` pass through untouched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Message {
    pub id: MessageId,
    pub role: MessageRole,
    pub content: Vec<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<CallRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<CallId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<MessageStatus>,
    #[serde(
        default,
        deserialize_with = "json::keep_null",
        skip_serializing_if = "Option::is_none"
    )]
    pub object: Option<Value>,
}

impl Message {
    /// A message with this content and nothing else.
    pub fn new(id: MessageId, role: MessageRole, content: Vec<Value>) -> Self {
        Self {
            id,
            role,
            content,
            tool_calls: Vec::new(),
            tool_call_id: None,
            status: None,
            object: None,
        }
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

/// The values of `error_type`; see `reference/results.md`.
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

/// The outcome of a call: `{"ok": true, "result"}` or `{"ok": false, "error", "error_type"}`.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Ok(Value),
    Err(String, ErrorType),
}

impl Outcome {
    /// Whether the call succeeded.
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

/// Content that a tool shows to people. The model never sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Ui {
    pub kind: String,
    pub payload: Value,
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Stop))]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The message is complete.
    End,
    /// The model waits for the results of its calls.
    ToolCalls,
    /// The message was cut at its maximum length.
    MaxTokens,
    /// The model or its provider refused to answer.
    Refusal,
    /// The provider paused, and goes on when it is asked again.
    Paused,
}

/// A message in its provider's own form, sent back to that provider unchanged. Nothing else holds
/// what the provider signed, encrypted or executed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Verbatim))]
pub struct ProviderMessage {
    /// The provider, as agent definitions name it.
    pub provider: String,
    pub model: String,
    /// The parts of the message, in order.
    pub items: Vec<Value>,
}

/// A model that answered in place of the definition's first one, which was overloaded or gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FallbackModel {
    /// The provider, as agent definitions name it.
    pub provider: String,
    pub name: String,
}
