//! When a call needs an approval, and whose.

use std::collections::BTreeSet;

use abide_conversation::approval::ApprovalPolicy;
use abide_conversation::event::Executor;
use serde_json::Value;

use super::super::document::{ApprovalDocument, ApproversDocument, Items};
use super::super::reader::Mistakes;
use crate::definition::Approval;
use crate::expressions::condition::Condition;

/// The longest name of a group.
const MAX_GROUP_BYTES: usize = 128;

/// Reads `approval`. Returns also who must approve, if that is said.
pub(super) fn approval(
    mistakes: &mut Mistakes,
    value: Option<Value>,
    executor: Executor,
) -> Option<(Approval, Option<ApprovalPolicy>)> {
    let approval = match value {
        None => return Some((Approval::Auto, None)),
        Some(Value::String(word)) if word == "auto" => return Some((Approval::Auto, None)),
        Some(Value::String(word)) if word == "requires_approval" => {
            Some((Approval::Required, None))
        }
        Some(rule @ Value::Object(_)) => {
            mistakes.read("approval", rule).and_then(|document| rule_of(mistakes, document))
        }
        Some(_) => {
            mistakes
                .add("approval", "must be auto, requires_approval, or {when: CONDITION, by: WHO}");
            None
        }
    };
    match executor {
        Executor::Server | Executor::Client => {}
        Executor::Human => mistakes.add("approval", "cannot gate a human tool"),
        Executor::Provider => mistakes.add("approval", "cannot gate a provider tool"),
    }
    approval
}

fn rule_of(
    mistakes: &mut Mistakes,
    document: ApprovalDocument,
) -> Option<(Approval, Option<ApprovalPolicy>)> {
    let ApprovalDocument { when, by } = document;
    let by = by.map(|by| policy(mistakes, by));
    let approval = match when {
        Some(when) => {
            let condition = Condition::compile(&when.0);
            let failed = |message| mistakes.add("approval.when", message);
            Approval::When(condition.map_err(failed).ok()?)
        }
        None if by.is_some() => Approval::Required,
        None => {
            if !mistakes.has("approval") {
                mistakes.add("approval", "must have when, by, or both");
            }
            return None;
        }
    };
    Some((approval, by))
}

fn policy(mistakes: &mut Mistakes, document: ApproversDocument) -> ApprovalPolicy {
    let usual = ApprovalPolicy::default();
    let roles = document.roles.unwrap_or(usual.roles);
    if roles.is_empty() {
        mistakes.add("approval.by.roles", "must have a role: nobody could approve");
    }
    ApprovalPolicy {
        roles,
        groups: groups(mistakes, "approval.by.groups", document.groups),
        quorum: document.quorum.map_or(usual.quorum, |quorum| quorum.0),
        not: document.not.unwrap_or(usual.not),
        services: document.services.unwrap_or(usual.services),
        mfa_within_ms: document
            .mfa_within
            .map(|span| u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX)),
        deny: document.deny.unwrap_or_default(),
        escalated: BTreeSet::new(),
    }
}

/// Reads names of groups.
pub(super) fn groups(
    mistakes: &mut Mistakes,
    field: &str,
    items: Option<Items<32>>,
) -> BTreeSet<String> {
    let mut groups = BTreeSet::new();
    for (n, item) in items.map(|items| items.0).unwrap_or_default().into_iter().enumerate() {
        match item {
            Value::String(group) if (1..=MAX_GROUP_BYTES).contains(&group.len()) => {
                groups.insert(group);
            }
            _ => mistakes.add(
                &format!("{field}[{n}]"),
                format!("must be a name of 1 to {MAX_GROUP_BYTES} bytes"),
            ),
        }
    }
    groups
}
