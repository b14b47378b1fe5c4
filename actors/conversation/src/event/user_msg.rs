//! The message of a user, and the answer that it asks for.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::identity::Identity;
use crate::ids::{Principal, ScheduledId};
use crate::message::Message;

/// A user's message. It belongs to the event's turn, which starts with `turn_started`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UserMsg {
    pub message: Message,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Set if the message was scheduled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_id: Option<ScheduledId>,
    pub principal: Principal,
    /// Who sent it; absent if nobody was authenticated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Identity>))]
    pub identity: Option<Arc<Identity>>,
    /// The message's own assigns, which override the conversation's and the agent's.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub assigns: Map<String, Value>,
    #[serde(rename = "schema", default, skip_serializing_if = "AnswerFormat::is_agent")]
    pub answer_format: AnswerFormat,
    /// Tools that the client declared for this turn, as definitions.
    #[serde(default, skip_serializing_if = "<[Value]>::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub tools: Arc<[Value]>,
    /// Blocks that stand at the end of this turn's prompts, and are no part of the message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub context: Vec<Value>,
}

/// The form that the turn's answer must have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Shape))]
#[serde(rename_all = "snake_case")]
pub enum AnswerFormat {
    /// The form of the agent's `response_format`.
    #[default]
    Agent,
    /// Plain text, whatever the agent's `response_format` is.
    Plain,
    /// JSON that satisfies this JSON Schema.
    Schema(Value),
}

impl AnswerFormat {
    fn is_agent(&self) -> bool {
        *self == AnswerFormat::Agent
    }
}
