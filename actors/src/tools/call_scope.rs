//! Where a call happens: what conditions and messages may look at besides the arguments.

use abide_conversation::{ConversationId, Principal};
use serde_json::{Map, Value, json};

use crate::definition::{Approval, Tool};
use crate::expressions::template::Template;

/// A conversation and the principal on whose behalf a call of it is made.
#[derive(Clone, Debug, PartialEq)]
pub struct CallScope {
    pub conversation: ConversationId,
    pub principal: Principal,
    pub assigns: Map<String, Value>,
    pub metadata: Map<String, Value>,
}

impl CallScope {
    /// `{args, principal, conversation: {id, assigns, metadata}}`.
    pub fn values(&self, args: Value) -> Value {
        json!({
            "args": args,
            "principal": self.principal,
            "conversation": {
                "id": self.conversation,
                "assigns": self.assigns,
                "metadata": self.metadata,
            },
        })
    }
}

impl Tool {
    /// The confirmation message for these arguments, if there is one and it renders.
    pub(super) fn message(&self, args: &Value, scope: &CallScope) -> Option<String> {
        self.confirmation_message.as_ref()?.render(self.values(args, scope))
    }

    /// Whether nothing that an interpreter works on stands between a call and its plan.
    pub(super) fn is_planned_quickly(&self) -> bool {
        let asks = matches!(self.approval, Approval::When(_));
        !asks && self.confirmation_message.as_ref().is_none_or(Template::is_quick)
    }

    pub(super) fn values(&self, args: &Value, scope: &CallScope) -> Value {
        scope.values(self.parameters.fill(args.clone()))
    }
}
