//! What is written about a conversation.

use abide_conversation::ids::Principal;
use abide_conversation::{Timestamp, keep_null};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What is to be written about a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpdateRequest {
    /// A JSON Merge Patch (RFC 7396) of the metadata.
    pub metadata: Option<Map<String, Value>>,
    /// All members from now on.
    pub members: Option<Vec<String>>,
    /// The title from now on, `Some(None)` for none; a node of a version without it leaves it as it is.
    #[serde(default, deserialize_with = "keep_null", skip_serializing_if = "Option::is_none")]
    pub title: Option<Option<String>>,
    /// When the conversation is deleted from now on, `Some(None)` for at no time; a node of a version
    /// without it leaves that as it is.
    #[serde(default, deserialize_with = "keep_null", skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Option<Timestamp>>,
    pub by: Principal,
}
