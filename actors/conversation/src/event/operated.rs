//! An operator intervened.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::identity::Identity;
use crate::ids::Principal;

/// An operator did something about the conversation. It changes nothing by itself: what the verb
/// does has events of its own, or none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Operated {
    pub by: Principal,
    /// Who did it; absent if nobody was authenticated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Identity>))]
    pub identity: Option<Arc<Identity>>,
    /// `retry`, `fail`, `cancel`, `move`, `release` or `kill`; later versions may have more.
    pub verb: String,
    /// The operator's own words, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
