//! Votes on a call that several approvers must approve.

use serde::{Deserialize, Serialize};

use crate::CallArgs;
use crate::approval::Vote;
use crate::ids::CallId;
use crate::json;
use crate::permission::Verdict;

/// Somebody voted on a call, and further votes are needed. The vote that decides is the call's
/// `resolution`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Voted {
    pub call_id: CallId,
    pub suspension: u32,
    #[serde(flatten)]
    pub vote: Vote,
    /// The arguments, if the voter edited them: then no earlier vote counts.
    #[serde(
        default,
        deserialize_with = "json::keep_null",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Value>))]
    pub args: Option<CallArgs>,
    /// The gate's verdict on the edited arguments.
    #[serde(rename = "gate", default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}
