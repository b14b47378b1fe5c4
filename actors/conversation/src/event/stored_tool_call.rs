//! The JSON of `tool_call`. The settings of the call's kind are not flattened into it: they stand
//! where older programs wrote them, between its other fields.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use super::call_kind::StoredKind;
use super::{DoubtTerms, Executor, Intent, OnInterrupt, ToolCall, WaitingRules};
use crate::ids::{CallId, ConversationId};
use crate::json;
use crate::permission::Verdict;
use crate::{AnswerSchema, CallArgs};

/// A call was planned. Its later phases need nothing else, because definitions may change
/// meanwhile.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(super) struct StoredToolCall<'a> {
    call_id: Cow<'a, CallId>,
    tool: Cow<'a, str>,
    #[cfg_attr(feature = "openapi", schema(value_type = Value))]
    args: CallArgs,
    executor: Executor,
    #[serde(default)]
    intent: Intent,
    /// Whether the call was handed to its executor at once, as attempt 1.
    started: bool,
    /// Shown to the person or the page that the call waits for.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    message: Cow<'a, str>,
    /// How long each suspension of the call may wait.
    #[serde(default)]
    timeout_ms: u64,
    /// How long a client call waits while no page is connected; absent: until it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    grace_ms: Option<u64>,
    #[serde(default)]
    on_interrupt: OnInterrupt,
    /// The result of a client call that needs no answer from the page.
    #[serde(
        rename = "answer",
        default,
        deserialize_with = "json::keep_null",
        skip_serializing_if = "Option::is_none"
    )]
    default_result: Option<Cow<'a, Value>>,
    /// The gate's verdict; absent if the call did not reach the gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gate: Option<Cow<'a, Verdict>>,
    /// The child conversation that is to answer the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    child: Option<Cow<'a, ConversationId>>,
    /// Calls of one step in the same lane run one after another, in call order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lane: Option<Cow<'a, str>>,
    /// A person says what becomes of the call if it is cut off; `on_interrupt` is then `fail`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    in_doubt: Option<DoubtTerms>,
    /// The JSON Schema of the answer of a person or a page, for the suspension that follows an
    /// approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    answer_schema: Option<AnswerSchema>,
    /// What happens to its suspensions while nobody answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<WaitingRules>))]
    waiting_rules: Option<Arc<WaitingRules>>,
}

impl Serialize for ToolCall {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        StoredToolCall::from(self).serialize(to)
    }
}

impl<'a> From<&'a ToolCall> for StoredToolCall<'a> {
    fn from(call: &'a ToolCall) -> Self {
        let ToolCall { call_id, tool, args, kind, intent, started, message, .. } = call;
        let ToolCall { timeout_ms, gate, answer_schema, waiting_rules, .. } = call;
        let StoredKind { executor, grace_ms, on_interrupt, default_result, child, lane, in_doubt } =
            StoredKind::from(kind);
        Self {
            call_id: Cow::Borrowed(call_id),
            tool: Cow::Borrowed(tool),
            args: args.clone(),
            executor,
            intent: *intent,
            started: *started,
            message: Cow::Borrowed(message),
            timeout_ms: *timeout_ms,
            grace_ms,
            on_interrupt,
            default_result,
            gate: gate.as_ref().map(Cow::Borrowed),
            child,
            lane,
            in_doubt,
            answer_schema: answer_schema.clone(),
            waiting_rules: waiting_rules.clone(),
        }
    }
}

impl From<StoredToolCall<'_>> for ToolCall {
    fn from(stored: StoredToolCall<'_>) -> Self {
        let StoredToolCall { executor, grace_ms, on_interrupt, default_result, .. } = stored;
        let (child, lane) = (stored.child, stored.lane);
        let in_doubt = stored.in_doubt;
        let kind =
            StoredKind { executor, grace_ms, on_interrupt, default_result, child, lane, in_doubt };
        Self {
            call_id: stored.call_id.into_owned(),
            tool: stored.tool.into_owned(),
            args: stored.args,
            kind: kind.into(),
            intent: stored.intent,
            started: stored.started,
            message: stored.message.into_owned(),
            timeout_ms: stored.timeout_ms,
            gate: stored.gate.map(Cow::into_owned),
            answer_schema: stored.answer_schema,
            waiting_rules: stored.waiting_rules,
        }
    }
}

#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for ToolCall {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        StoredToolCall::schema()
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for ToolCall {
    fn schemas(schemas: &mut Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::Schema>)>) {
        StoredToolCall::schemas(schemas);
    }
}
