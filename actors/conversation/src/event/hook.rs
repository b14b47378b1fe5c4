//! Events of hooks that changed a turn.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::message::Message;
use crate::numbers::Step;
use crate::usage::Usage;

/// Durable hooks added content to the context, right before this step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ContextAdded {
    #[cfg_attr(feature = "openapi", schema(value_type = u32))]
    pub step: Step,
    /// In the order of the hooks' declaration.
    pub added: Vec<AddedContext>,
}

/// The content that one hook added.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = AddedContext))]
pub struct AddedContext {
    pub hook: String,
    /// Content blocks.
    pub content: Vec<Value>,
}

/// A hook refused a message of the model, including its calls. The model is asked once more, and
/// the message does not become part of the conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MessageRefused {
    #[cfg_attr(feature = "openapi", schema(value_type = u32))]
    pub step: Step,
    pub hook: String,
    pub reason: String,
    pub message: Message,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}
