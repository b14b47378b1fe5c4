//! The scope of a call: what conditions and messages may read in addition to the arguments.

use std::sync::Arc;

use abide_conversation::identity::Identity;
use abide_conversation::{ConversationId, Principal};
use serde_json::{Map, Value, json};

use crate::assigns::Assigns;
use crate::definition::{Approval, Tool};
use crate::expressions::condition::Condition;
use crate::expressions::template::Template;
use crate::limits::without_bidi_controls;

/// The conversation that a call belongs to, and the principal on whose behalf it is made.
#[derive(Clone, Debug, PartialEq)]
pub struct CallScope {
    pub conversation: ConversationId,
    pub principal: Principal,
    /// Whoever asks for the call; `None` if nobody was authenticated.
    pub identity: Option<Arc<Identity>>,
    /// The subject whose conversation it is.
    pub owner: Option<String>,
    pub assigns: Arc<Assigns>,
    pub metadata: Map<String, Value>,
}

impl CallScope {
    /// The variables of an expression:
    /// `{args, principal, conversation: {id, owner, assigns, metadata}, message: {assigns}}`. Whoever writes
    /// the message cannot change what an expression reads of the conversation.
    ///
    /// Only those that it `reads` are built: all of them take longer than the rendering of a message.
    pub fn values(&self, args: impl FnOnce() -> Value, reads: impl Fn(&str) -> bool) -> Value {
        let mut values = json!({});
        if reads("args") {
            values["args"] = args();
        }
        if reads("principal") {
            values["principal"] = json!(self.principal);
        }
        if reads("conversation") {
            values["conversation"] = json!({
                "id": self.conversation,
                "owner": self.owner,
                "assigns": self.assigns.conversation,
                "metadata": self.metadata,
            });
        }
        if reads("message") {
            values["message"] = json!({"assigns": self.assigns.message});
        }
        values
    }

    /// `principal` for conditions that read its members: `{subject, roles, groups, tenant}`.
    fn principal_members(&self) -> Value {
        let identity = self.identity.as_deref();
        let acting = identity.map(Identity::acting);
        let tenant = identity.and_then(|identity| identity.tenant.clone());
        json!({
            "subject": self.principal,
            "roles": acting.map(|subject| subject.roles.clone()).unwrap_or_default(),
            "groups": acting.map(|subject| subject.groups.clone()).unwrap_or_default(),
            "tenant": tenant.unwrap_or_default(),
        })
    }
}

impl Tool {
    /// The variables of the condition of its approval.
    pub(super) fn condition_values(
        &self,
        condition: &Condition,
        args: &Value,
        scope: &CallScope,
    ) -> Value {
        let mut values = self.expression_values(args, scope, |_| true);
        if condition.reads_principal() {
            values["principal"] = scope.principal_members();
        }
        values
    }

    /// The confirmation message for these arguments, if there is one and it renders.
    pub(super) fn confirmation(&self, args: &Value, scope: &CallScope) -> Option<String> {
        let message = self.confirmation_message.as_ref()?;
        let values = self.expression_values(args, scope, |variable| message.reads(variable));
        let message = message.render(values)?;
        Some(without_bidi_controls(&message))
    }

    /// Whether a call can be planned without a costly check of its arguments and without running an
    /// interpreter (a condition or a template).
    pub(super) fn is_cheap_to_plan(&self) -> bool {
        let has_condition = matches!(self.approval, Approval::When(_));
        let is_plain = self.confirmation_message.as_ref().is_none_or(Template::is_plain);
        !has_condition && is_plain && self.parameters.is_quick()
    }

    fn expression_values(
        &self,
        args: &Value,
        scope: &CallScope,
        reads: impl Fn(&str) -> bool,
    ) -> Value {
        scope.values(|| self.parameters.fill_defaults(args.clone()), reads)
    }
}
