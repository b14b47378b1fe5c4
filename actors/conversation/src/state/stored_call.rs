//! The JSON of a [`Call`]. The settings of its kind are not flattened into it: they stand where older
//! programs wrote them, between its other fields.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use super::{Call, CallPhase};
use crate::approval::Approver;
use crate::elicitation::PendingInput;
use crate::event::{DoubtTerms, Executor, Intent, OnInterrupt, StoredKind, WaitingRules};
use crate::ids::{CallId, ConversationId, Principal};
use crate::json;
use crate::permission::Verdict;
use crate::{AnswerSchema, CallArgs, Timestamp};

#[derive(Serialize, Deserialize)]
pub(super) struct StoredCall<'a> {
    id: Cow<'a, CallId>,
    tool: Cow<'a, str>,
    args: CallArgs,
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
    in_doubt: Option<DoubtTerms>,
    #[serde(default, skip_serializing_if = "is_zero")]
    failed_attempts: u32,
    /// A call that waits for its next attempt. Its phase is written as `running`, which older nodes
    /// know, who are shown states of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry: Option<StoredRetry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer_schema: Option<AnswerSchema>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waiting_rules: Option<Arc<WaitingRules>>,
    phase: Cow<'a, CallPhase>,
}

#[derive(Serialize, Deserialize)]
struct StoredRetry {
    at: Timestamp,
    error: String,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Serialize for Call {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        StoredCall::from(self).serialize(to)
    }
}

impl<'a> From<&'a Call> for StoredCall<'a> {
    fn from(call: &'a Call) -> Self {
        let StoredKind { executor, grace_ms, on_interrupt, default_result, child, lane, in_doubt } =
            StoredKind::from(&call.kind);
        let (phase, retry) = match &call.phase {
            CallPhase::AwaitingRetry { attempt, since, retry_at, error } => (
                Cow::Owned(CallPhase::Running { attempt: *attempt, since: *since }),
                Some(StoredRetry { at: *retry_at, error: error.clone() }),
            ),
            phase => (Cow::Borrowed(phase), None),
        };
        Self {
            id: Cow::Borrowed(&call.id),
            tool: Cow::Borrowed(&call.tool),
            args: call.args.clone(),
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
            in_doubt,
            failed_attempts: call.failed_attempts,
            retry,
            answer_schema: call.answer_schema.clone(),
            waiting_rules: call.waiting_rules.clone(),
            phase,
        }
    }
}

impl From<StoredCall<'_>> for Call {
    fn from(stored: StoredCall<'_>) -> Self {
        let StoredCall { executor, grace_ms, on_interrupt, default_result, .. } = stored;
        let (child, lane) = (stored.child, stored.lane);
        let in_doubt = stored.in_doubt;
        let kind =
            StoredKind { executor, grace_ms, on_interrupt, default_result, child, lane, in_doubt };
        Self {
            id: stored.id.into_owned(),
            tool: stored.tool.into_owned(),
            args: stored.args,
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
            waiting_rules: stored.waiting_rules,
            failed_attempts: stored.failed_attempts,
            phase: match (stored.phase.into_owned(), stored.retry) {
                (CallPhase::Running { attempt, since }, Some(StoredRetry { at, error })) => {
                    CallPhase::AwaitingRetry { attempt, since, retry_at: at, error }
                }
                (phase, _) => phase,
            },
        }
    }
}
