//! Dispatches: a user's own calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{EffectiveArgs, OnInterrupt};
use crate::CallArgs;
use crate::identity::Identity;
use crate::ids::{CallId, ConversationId, Principal, Revision};
use crate::message::{Outcome, Ui};
use crate::numbers::Attempt;
use crate::permission::Verdict;

/// A dispatch, a user's own call, started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DispatchStarted {
    pub call_id: CallId,
    pub tool: String,
    #[cfg_attr(feature = "openapi", schema(value_type = Value))]
    pub input: CallArgs,
    pub principal: Principal,
    /// The caller; absent if nobody was authenticated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Identity>))]
    pub identity: Option<Arc<Identity>>,
    pub revision: Revision,
    #[cfg_attr(feature = "openapi", schema(value_type = u32))]
    pub attempt: Attempt,
    #[serde(default)]
    pub on_interrupt: OnInterrupt,
    /// The requests for this dispatch: idempotency key → fingerprint of the body. A repeated
    /// request joins the dispatch.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, String>,
    #[serde(rename = "gate", default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// The child conversation that is to answer the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<ConversationId>,
}

/// A dispatch ended. The model never sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Dispatch))]
pub struct DispatchFinished {
    pub call_id: CallId,
    pub tool: String,
    #[cfg_attr(feature = "openapi", schema(value_type = Value))]
    pub input: CallArgs,
    pub principal: Principal,
    pub result: Outcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ui: Option<Ui>,
    /// The gate's verdict, if it refused the call.
    #[serde(rename = "gate", default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    #[serde(rename = "ran", default, skip_serializing_if = "Option::is_none")]
    pub effective_args: Option<EffectiveArgs>,
}
