//! Open suspensions, as people see them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Call, EditedArgs, PendingVote};
use crate::approval::{ApprovalPolicy, SubjectId};
use crate::event::{Doubt, Executor, Intent, SuspensionKind};
use crate::ids::{CallId, ConversationId};
use crate::{AnswerSchema, CallArgs, Timestamp};

/// An open suspension, as the snapshot and the inbox show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = PendingCall))]
pub struct PendingCall {
    pub call_id: CallId,
    pub tool: String,
    pub executor: Executor,
    pub kind: SuspensionKind,
    #[cfg_attr(feature = "openapi", schema(value_type = Value))]
    pub args: CallArgs,
    pub message: String,
    pub intent: Intent,
    pub suspension: u32,
    pub suspended_at: Timestamp,
    pub expires_at: Timestamp,
    /// The input that the tool asks for, if the tool is already running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Value>,
    /// Calls of a child only: the conversation at the top of the family, which a person started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_conversation_id: Option<ConversationId>,
    /// Approvals with a policy only: who may approve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<ApprovalPolicy>,
    /// Those who led to the call; empty if nobody was authenticated.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub requesters: BTreeSet<SubjectId>,
    /// Approvals with a policy only: the votes on the arguments as they are now, oldest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub votes: Option<Vec<PendingVote>>,
    /// Approvals with a policy only: how many must approve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed: Option<u32>,
    /// The arguments before an approver edited them.
    #[serde(
        default,
        deserialize_with = "crate::keep_null",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Value>))]
    pub original_args: Option<CallArgs>,
    /// The JSON Schema of an answer: of the body of an approval, else of its `result`. Absent if
    /// any answer fits, and for a call that an older version suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub answer_schema: Option<AnswerSchema>,
    /// Calls in doubt only: what is known of the attempt that was cut off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<Doubt>,
}

impl Call {
    /// The arguments that approvers are asked about: as one of them edited them, or the call's own.
    pub fn args_to_approve(&self) -> &CallArgs {
        self.edited_args().map_or(&self.args, |edited| &edited.args)
    }

    /// The arguments as an approver edited them, while further votes are needed.
    pub fn edited_args(&self) -> Option<&EditedArgs> {
        self.open_suspension()?.approval.as_ref()?.edited.as_ref()
    }

    /// The open suspension, as people see it.
    pub fn pending_call(&self) -> Option<PendingCall> {
        let open = self.open_suspension()?;
        let approval = open.approval.as_deref();
        // The first answer to a call in doubt decides.
        let votes_on = approval.filter(|_| open.kind == SuspensionKind::Approval);
        Some(PendingCall {
            call_id: self.id.clone(),
            tool: self.tool.clone(),
            executor: self.kind.executor(),
            kind: open.kind,
            args: self.args_to_approve().clone(),
            message: open.message.clone(),
            intent: self.intent,
            suspension: open.suspension,
            suspended_at: open.since,
            expires_at: open.expires_at,
            requests: self.requests(),
            root_conversation_id: None,
            policy: approval.map(|approval| approval.policy.clone()),
            requesters: BTreeSet::new(),
            votes: votes_on.map(|approval| approval.votes.iter().map(Into::into).collect()),
            needed: votes_on.map(|approval| approval.policy.quorum),
            original_args: self.edited_args().map(|_| self.args.clone()),
            answer_schema: open.answer_schema.clone(),
            doubt: open.doubt.clone(),
        })
    }
}
