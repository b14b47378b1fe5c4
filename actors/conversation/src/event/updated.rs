//! What is written about a conversation was replaced.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Timestamp;
use crate::identity::Identity;
use crate::ids::Principal;
use crate::json::keep_null;

/// Somebody replaced the metadata, the members, the title or the end of the conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Updated {
    /// All metadata from now on; absent if it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// All members from now on; absent if they stay as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<Vec<String>>,
    /// The title from now on, null for none; absent if it stays as it is.
    #[serde(default, deserialize_with = "keep_null", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub title: Option<Option<String>>,
    /// When the conversation is deleted from now on, null for at no time; absent if that stays as it is.
    #[serde(default, deserialize_with = "keep_null", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Timestamp>))]
    pub expires_at: Option<Option<Timestamp>>,
    pub by: Principal,
    /// Who did it; absent if nobody was authenticated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Identity>))]
    pub identity: Option<Arc<Identity>>,
}
