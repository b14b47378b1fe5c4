//! What hooks did to a turn.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::message::{Message, Usage};

/// Durable hooks added to the context, right before this step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ContextAdded {
    pub step: u32,
    /// In the order of declaration.
    pub added: Vec<AddedContext>,
}

/// What one hook added.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = AddedContext))]
pub struct AddedContext {
    pub hook: String,
    /// Content blocks.
    pub content: Vec<Value>,
}

/// A hook refused what the model said, calls included; the model is asked once more. The message is
/// no part of the conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MessageRefused {
    pub step: u32,
    pub hook: String,
    pub reason: String,
    pub message: Message,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}
