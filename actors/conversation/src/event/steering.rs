//! What people do about turns: a queued one is withdrawn, a running one is steered, and those that have
//! ended are taken back.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Todo;
use crate::context::Context;
use crate::identity::Identity;
use crate::ids::Principal;
use crate::message::Message;
use crate::numbers::Seq;

/// The event's turn, which was queued, will not start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TurnWithdrawn {
    pub by: Principal,
    /// Who withdrew it; absent if nobody was authenticated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Identity>))]
    pub identity: Option<Arc<Identity>>,
}

/// A user's message for the turn that runs. The model reads it before the turn's next step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Steered {
    pub message: Message,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    pub principal: Principal,
    /// Who sent it; absent if nobody was authenticated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Identity>))]
    pub identity: Option<Arc<Identity>>,
}

/// The conversation goes on from an earlier event: those in between count no longer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Rewound {
    /// The last event that still counts.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub to_seq: Seq,
    pub by: Principal,
    /// Who did it; absent if nobody was authenticated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Identity>))]
    pub identity: Option<Arc<Identity>>,
    /// What holds again, as it was after `to_seq`.
    pub point: RewindPoint,
}

/// What belongs to a branch and not to the conversation as a whole, as it was after an event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RewindPoint {
    /// What the model read.
    #[serde(default)]
    pub context: Context,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub todos: Vec<Todo>,
    /// The key-value state.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub state: Map<String, Value>,
    /// Whether the conversation had chosen to plan, or not to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planning: Option<bool>,
}
