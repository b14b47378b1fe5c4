//! The JSON of a [`Call`]. The settings of its kind are not flattened into it: they stand where older
//! programs wrote them, between its other fields.

use std::borrow::Cow;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use super::{Call, CallPhase};
use crate::AnswerSchema;
use crate::approval::Approver;
use crate::elicitation::PendingInput;
use crate::event::{Executor, Intent, OnInterrupt, StoredKind};
use crate::ids::{CallId, ConversationId, Principal};
use crate::json;
use crate::permission::Verdict;

#[derive(Serialize, Deserialize)]
pub(super) struct StoredCall<'a> {
    id: Cow<'a, CallId>,
    tool: Cow<'a, str>,
    args: Cow<'a, Value>,
    executor: Executor,
    intent: Intent,
    message: Cow<'a, str>,
    timeout_ms: u64,
    grace_ms: Option<u64>,
    on_interrupt: OnInterrupt,
    #[serde(
        rename = "answer",
        default,
        deserialize_with = "json::keep_null",
        skip_serializing_if = "Option::is_none"
    )]
    default_result: Option<Cow<'a, Value>>,
    principal: Cow<'a, Principal>,
    suspensions: u32,
    #[serde(default)]
    gate: Option<Cow<'a, Verdict>>,
    #[serde(default)]
    approved: bool,
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    approvals: Cow<'a, [Approver]>,
    #[serde(rename = "input", default)]
    pending_input: Option<Cow<'a, PendingInput>>,
    #[serde(default)]
    child: Option<Cow<'a, ConversationId>>,
    #[serde(default)]
    lane: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer_schema: Option<AnswerSchema>,
    phase: Cow<'a, CallPhase>,
}

impl Serialize for Call {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        StoredCall::from(self).serialize(to)
    }
}

impl<'a> From<&'a Call> for StoredCall<'a> {
    fn from(call: &'a Call) -> Self {
        let StoredKind { executor, grace_ms, on_interrupt, default_result, child, lane } =
            StoredKind::from(&call.kind);
        Self {
            id: Cow::Borrowed(&call.id),
            tool: Cow::Borrowed(&call.tool),
            args: Cow::Borrowed(&call.args),
            executor,
            intent: call.intent,
            message: Cow::Borrowed(&call.message),
            timeout_ms: call.timeout_ms,
            grace_ms,
            on_interrupt,
            default_result,
            principal: Cow::Borrowed(&call.principal),
            suspensions: call.suspensions,
            gate: call.gate.as_ref().map(Cow::Borrowed),
            approved: call.approved,
            approvals: Cow::Borrowed(&call.approvals),
            pending_input: call.pending_input.as_ref().map(Cow::Borrowed),
            child,
            lane,
            answer_schema: call.answer_schema.clone(),
            phase: Cow::Borrowed(&call.phase),
        }
    }
}

impl From<StoredCall<'_>> for Call {
    fn from(stored: StoredCall<'_>) -> Self {
        let StoredCall { executor, grace_ms, on_interrupt, default_result, .. } = stored;
        let (child, lane) = (stored.child, stored.lane);
        let kind = StoredKind { executor, grace_ms, on_interrupt, default_result, child, lane };
        Self {
            id: stored.id.into_owned(),
            tool: stored.tool.into_owned(),
            args: stored.args.into_owned(),
            kind: kind.into(),
            intent: stored.intent,
            message: stored.message.into_owned(),
            timeout_ms: stored.timeout_ms,
            principal: stored.principal.into_owned(),
            suspensions: stored.suspensions,
            gate: stored.gate.map(Cow::into_owned),
            approved: stored.approved,
            approvals: stored.approvals.into_owned(),
            pending_input: stored.pending_input.map(Cow::into_owned),
            answer_schema: stored.answer_schema,
            phase: stored.phase.into_owned(),
        }
    }
}
