//! Those who may approve, and their answers.

use std::sync::Arc;

use crate::Principal;
use crate::approval::{ApprovalPolicy, SubjectId};
use crate::command::*;
use crate::identity::{AuthMethod, Identity, Role, Subject};

/// The call, which only these may approve.
pub(super) fn with_policy(mut planned: PlannedCall, by: ApprovalPolicy) -> PlannedCall {
    if let CallPlan::Execute { gate: Some(ApprovalQuestion { policy, .. }), .. } = &mut planned.plan
    {
        *policy = Some(by);
    }
    planned
}

pub(super) fn two_of_three() -> ApprovalPolicy {
    ApprovalPolicy { quorum: 2, ..ApprovalPolicy::default() }
}

/// Those who may approve.
pub(super) const VOTERS: [&str; 3] = ["ada", "bob", "cy"];

/// A person with the role `approver`.
pub(super) fn identity(sub: &str) -> Identity {
    let subject = Subject {
        iss: "https://login.example.com/".to_owned(),
        sub: sub.to_owned(),
        name: None,
        roles: [Role::Approver].into(),
        groups: Vec::new(),
    };
    let (auth, on_behalf_of) = (AuthMethod::Jwt, None);
    Identity { tenant: None, subject, auth, key_id: None, jti: None, on_behalf_of, minted_by: None }
}

pub(super) fn subject_id(sub: &str) -> SubjectId {
    SubjectId::from(&identity(sub).subject)
}

/// The answer, given by this person.
pub(super) fn voted_by(sub: &str, answer: Action) -> Action {
    match answer {
        Action::Resolve(resolve) => Action::Resolve(Resolve {
            by: Principal::new(sub),
            identity: Some(Arc::new(identity(sub))),
            ..resolve
        }),
        other => other,
    }
}
