//! What a caller may do with a conversation, by role, ownership and kind of call.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use abide_conversation::identity::{AuthMethod, Subject};

use super::*;

const KINDS: [SuspensionKind; 3] =
    [SuspensionKind::ClientExec, SuspensionKind::Elicitation, SuspensionKind::Approval];

fn caller(sub: &str, read: Reach, act: Reach) -> CallerAccess {
    let subject = Subject {
        iss: "abide".to_owned(),
        sub: sub.to_owned(),
        name: None,
        roles: BTreeSet::new(),
        groups: Vec::new(),
    };
    let identity = Identity {
        tenant: None,
        subject,
        auth: AuthMethod::Jwt,
        key_id: None,
        jti: None,
        on_behalf_of: None,
        minted_by: None,
    };
    CallerAccess {
        identity,
        mfa_at: None,
        read,
        act,
        needs: "send".to_owned(),
        create: None,
        answer: None,
        born: None,
    }
}

fn of(caller: CallerAccess) -> Access {
    Access::Caller(Box::new(caller))
}

fn participants() -> Participants {
    Participants { owner: Some("ada".to_owned()), members: vec!["bob".to_owned()] }
}

#[test]
fn what_may_not_be_read_does_not_exist_and_what_may_is_forbidden() {
    let check = |sub: &str, read, act| of(caller(sub, read, act)).check(&participants(), None);
    let needs = Err(AccessError::Needs("send".to_owned()));
    for (sub, read, act, expected) in [
        ("ada", Reach::Shared, Reach::Own, Ok(())),
        ("bob", Reach::Shared, Reach::Shared, Ok(())),
        ("bob", Reach::Shared, Reach::Own, needs.clone()),
        ("eve", Reach::Shared, Reach::Own, Err(AccessError::Hidden)),
        ("eve", Reach::Tenant, Reach::Shared, needs),
        ("eve", Reach::None, Reach::Tenant, Ok(())),
        ("eve", Reach::None, Reach::None, Err(AccessError::Hidden)),
    ] {
        assert_eq!(check(sub, read, act), expected, "{sub} {read:?} {act:?}");
    }
    assert_eq!(Access::Unrestricted.check(&participants(), None), Ok(()));
    let nobodys = of(caller("ada", Reach::Shared, Reach::Own));
    assert_eq!(nobodys.check(&Participants::default(), None), Err(AccessError::Hidden));
}

#[test]
fn a_conversation_that_was_made_anew_is_another() {
    let (born, later) = (Timestamp::UNIX_EPOCH, Timestamp::from_second(1).unwrap());
    let access = CallerAccess { born: Some(born), ..caller("x", Reach::Tenant, Reach::Tenant) };
    let access = of(access);
    assert_eq!(access.check(&participants(), Some(born)), Ok(()));
    assert_eq!(access.check(&participants(), Some(later)), Err(AccessError::Hidden));
    assert_eq!(access.check_read(&participants(), Some(later)), Err(AccessError::Hidden));
}

#[test]
fn an_answer_is_judged_by_the_kind_of_the_suspension() {
    let answers = AnswerAccess {
        client: Reach::Shared,
        human: Reach::Own,
        approval: Reach::None,
        only: None,
    };
    let checks = |sub: &str, answers: &AnswerAccess| {
        let access = CallerAccess {
            answer: Some(answers.clone()),
            ..caller(sub, Reach::Shared, Reach::None)
        };
        let access = of(access);
        let call = CallId::new("c");
        KINDS.map(|kind| access.check_answer(&participants(), None, (&call, 1, kind)))
    };
    let approval = Err(AccessError::Approval(VoteRefusal::Role));
    let needs = |what: &str| Err(AccessError::Needs(what.to_owned()));
    assert_eq!(checks("ada", &answers), [Ok(()), Ok(()), approval.clone()]);
    assert_eq!(checks("bob", &answers), [Ok(()), needs("answer:human"), approval]);
    assert_eq!(checks("eve", &answers), [const { Err(AccessError::Hidden) }; 3]);
    let approver = AnswerAccess { approval: Reach::Tenant, client: Reach::None, ..answers };
    assert_eq!(checks("eve", &approver)[2], Ok(()));
    let other = AnswerAccess { only: Some(vec![(CallId::new("c"), 2)]), ..approver };
    assert_eq!(checks("eve", &other)[2], Err(AccessError::Hidden));
}

#[test]
fn a_conversation_is_created_by_those_who_may() {
    let (demo, other) = (AgentName::new("demo"), AgentName::new("other"));
    let check = |create, agent: &AgentName| {
        let caller = CallerAccess { create, ..caller("x", Reach::None, Reach::Tenant) };
        of(caller).check_create(agent)
    };
    assert_eq!(check(None, &demo), Err(AccessError::Hidden));
    assert_eq!(check(Some(CreateAccess::OfAnyAgent), &demo), Ok(()));
    assert_eq!(check(Some(CreateAccess::Of(demo.clone())), &demo), Ok(()));
    let only = Some(CreateAccess::Of(demo));
    assert_eq!(check(only, &other), Err(AccessError::Needs("create".to_owned())));
    assert_eq!(Access::Unrestricted.check_create(&other), Ok(()));
}
