//! What happens to a tool's suspensions while nobody answers: `remind`, `on_expiry`, `escalate`.

use std::sync::Arc;
use std::time::Duration;

use abide_conversation::approval::{ApprovalPolicy, ApproverGroup};
use abide_conversation::event::{Escalation, Executor, OnExpiry, WaitingRules};
use serde_json::Value;

use super::super::document::{EscalationDocument, Items, ToolDocument};
use super::super::duration;
use super::super::reader::Mistakes;
use super::approval::groups;
use crate::definition::{Approval, ClientAnswer, ToolKind};
use crate::limits::{MAX_VALUE_BYTES, encoded_len};

/// Reads the rules; `None` if the tool says nothing.
pub(super) fn rules(
    mistakes: &mut Mistakes,
    document: &mut ToolDocument,
    executor: Executor,
) -> Option<Arc<WaitingRules>> {
    let rules = WaitingRules {
        remind_ms: reminders(mistakes, document.remind.take()),
        on_expiry: on_expiry(mistakes, document.on_expiry.take(), executor),
        escalate: escalations(mistakes, document.escalate.take()),
    };
    (!rules.is_empty()).then(|| Arc::new(rules))
}

/// Refuses rules that can never apply to a call of the tool, and a result that is no answer to it.
pub(super) fn check(
    mistakes: &mut Mistakes,
    rules: Option<&WaitingRules>,
    approval: Option<&Approval>,
    kind: Option<&ToolKind>,
) {
    let (Some(rules), Some((approval, kind))) = (rules, approval.zip(kind)) else { return };
    if matches!(approval, Approval::Auto) {
        if rules.on_expiry == Some(OnExpiry::Deny) {
            mistakes.add("on_expiry", "deny is for a tool with an approval");
        }
        if !rules.escalate.is_empty() {
            mistakes.add("escalate", "is for a tool with an approval");
        }
    }
    let Some(OnExpiry::Result(result)) = &rules.on_expiry else { return };
    let schema = match kind {
        ToolKind::Human { result_schema } => result_schema.as_ref(),
        ToolKind::Client(answer) => match answer {
            ClientAnswer::Awaited { result_schema } => result_schema.as_ref(),
            ClientAnswer::Default(_) => None,
        },
        ToolKind::Server(_) | ToolKind::Provider => None,
    };
    if let Some(Err(why)) = schema.map(|schema| schema.check(result)) {
        mistakes.add("on_expiry.result", why);
    }
}

fn reminders(mistakes: &mut Mistakes, items: Option<Items<8>>) -> Vec<u64> {
    let mut all = Vec::new();
    for (n, item) in items.map(|items| items.0).unwrap_or_default().into_iter().enumerate() {
        let text = item.as_str().ok_or("must be a duration such as \"1h\"".to_owned());
        match text.and_then(duration::parse) {
            Ok(before) => all.push(millis(before)),
            Err(why) => mistakes.add(&format!("remind[{n}]"), why),
        }
    }
    all
}

fn on_expiry(
    mistakes: &mut Mistakes,
    value: Option<Value>,
    executor: Executor,
) -> Option<OnExpiry> {
    match value? {
        Value::String(word) if word == "error" => None,
        Value::String(word) if word == "deny" => Some(OnExpiry::Deny),
        Value::Object(mut object) if object.len() == 1 && object.contains_key("result") => {
            let result = object.remove("result").unwrap_or_default();
            if !matches!(executor, Executor::Human | Executor::Client) {
                mistakes.add("on_expiry", "a result is for a human or client tool only");
            }
            if encoded_len(&result) > MAX_VALUE_BYTES {
                mistakes.add("on_expiry.result", "must be at most 1 MB");
            }
            Some(OnExpiry::Result(result))
        }
        _ => {
            mistakes.add("on_expiry", "must be error, deny, or {result: VALUE}");
            None
        }
    }
}

/// The earliest first, however they were written.
fn escalations(mistakes: &mut Mistakes, items: Option<Items<8>>) -> Vec<Escalation> {
    let mut all = Vec::new();
    for (n, item) in items.map(|items| items.0).unwrap_or_default().into_iter().enumerate() {
        let field = format!("escalate[{n}]");
        let Some(document) = mistakes.read::<EscalationDocument>(&field, item) else { continue };
        let roles = document.by.roles.unwrap_or(ApprovalPolicy::default().roles);
        if roles.is_empty() {
            mistakes.add(&format!("{field}.by.roles"), "must have a role: nobody could approve");
        }
        let groups = groups(mistakes, &format!("{field}.by.groups"), document.by.groups);
        let by = ApproverGroup { roles, groups };
        all.push(Escalation { after_ms: millis(document.after.0), by });
    }
    all.sort_by_key(|escalation| escalation.after_ms);
    all
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
