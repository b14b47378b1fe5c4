//! The key-value state of a conversation changed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::identity::Identity;
use crate::ids::{CallId, Principal};

/// Keys of the conversation's state were replaced or deleted, by a request or by a tool's result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StateChanged {
    /// The new value of each key that changed; null: the key is deleted.
    pub changes: Map<String, Value>,
    /// The call whose result changed it; absent for a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// Who asked for it; absent for a tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Principal>,
    /// Who asked for it; absent if nobody was authenticated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Identity>))]
    pub identity: Option<Arc<Identity>>,
}
