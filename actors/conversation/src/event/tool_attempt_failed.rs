//! An attempt of a tool failed, and another one follows.

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::ids::CallId;
use crate::numbers::Attempt;

/// An attempt of a tool failed. The next one begins at `retry_at`, under the same idempotency key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ToolAttemptFailed {
    pub call_id: CallId,
    #[cfg_attr(feature = "openapi", schema(value_type = u32))]
    pub attempt: Attempt,
    pub error: String,
    pub retry_at: Timestamp,
}
