//! Who may vote, and what votes decide.
#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;

fn subject(sub: &str, roles: &[Role], groups: &[&str]) -> Subject {
    Subject {
        iss: "https://login.example.com/".to_owned(),
        sub: sub.to_owned(),
        name: Some("Ada".to_owned()),
        roles: roles.iter().copied().collect(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
    }
}

fn voter(sub: &str, roles: &[Role], groups: &[&str]) -> Voter {
    let identity = Identity {
        tenant: None,
        subject: subject(sub, roles, groups),
        auth: AuthMethod::Jwt,
        key_id: None,
        jti: None,
        on_behalf_of: None,
        minted_by: None,
    };
    Voter { identity, at: at(60_000), mfa_at: None }
}

fn approver(sub: &str) -> Voter {
    voter(sub, &[Role::Approver], &[])
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap()
}

fn vote(by: Voter, approved: bool) -> Vote {
    Vote { by, approved, reason: None, args_fingerprint: String::new(), remember: None }
}

fn requested_by(subs: &[&str]) -> BTreeSet<SubjectId> {
    subs.iter().map(|sub| SubjectId::from(&subject(sub, &[], &[]))).collect()
}

fn check(policy: &ApprovalPolicy, voter: &Voter, votes: &[Vote]) -> Result<(), VoteRefusal> {
    let requesters = requested_by(&["requester"]);
    let has_voted = votes.iter().any(|vote| vote.by.subject() == voter.subject());
    policy.check(voter, Parties { requesters: &requesters, owner: Some("owner") }, has_voted)
}

#[test]
fn without_more_an_approver_may_approve_who_is_not_the_requester() {
    let policy = ApprovalPolicy::default();
    assert_eq!(check(&policy, &approver("a"), &[]), Ok(()));
    assert_eq!(check(&policy, &approver("owner"), &[]), Ok(()));
    assert_eq!(check(&policy, &approver("requester"), &[]), Err(VoteRefusal::Requester));
    for roles in [[].as_slice(), &[Role::Backend, Role::User, Role::TenantAdmin]] {
        assert_eq!(check(&policy, &voter("a", roles, &[]), &[]), Err(VoteRefusal::Role));
    }
}

#[test]
fn a_subject_is_known_by_its_issuer_and_never_by_its_name() {
    let policy = ApprovalPolicy::default();
    let mut other = approver("requester");
    other.identity.subject.iss = "https://elsewhere.example.com/".to_owned();
    assert_eq!(check(&policy, &other, &[]), Ok(()));
    other.identity.subject.iss = "abide".to_owned();
    assert_eq!(check(&policy, &other, &[]), Err(VoteRefusal::Requester), "by a token of one's own");
    let voted = [vote(approver("a"), true)];
    assert_eq!(check(&policy, &approver("a"), &voted), Err(VoteRefusal::Voted));
    assert_eq!(check(&policy, &approver("b"), &voted), Ok(()));
}

#[test]
fn a_gateway_votes_as_the_person_for_whom_it_acts() {
    let policy = ApprovalPolicy::default();
    let mut gateway = voter("key:gateway", &[Role::Backend, Role::Approver], &[]);
    gateway.identity.auth = AuthMethod::Key;
    assert_eq!(check(&policy, &gateway, &[]), Err(VoteRefusal::Service));
    let mut services = policy.clone();
    services.services = true;
    assert_eq!(check(&services, &gateway, &[]), Ok(()));
    for (person, expected) in [
        (subject("a", &[Role::Approver], &[]), Ok(())),
        (subject("a", &[Role::User], &[]), Err(VoteRefusal::Role)),
        (subject("requester", &[Role::Approver], &[]), Err(VoteRefusal::Requester)),
    ] {
        gateway.identity.on_behalf_of = Some(Box::new(person));
        assert_eq!(check(&policy, &gateway, &[]), expected);
    }
}

#[test]
fn groups_the_owner_and_a_second_factor_are_asked_for_where_the_policy_says_so() {
    let policy = ApprovalPolicy {
        groups: BTreeSet::from(["finance".to_owned()]),
        not: BTreeSet::from([Party::Owner]),
        mfa_within_ms: Some(10_000),
        ..ApprovalPolicy::default()
    };
    let of_finance = |sub: &str, mfa_at: Option<i64>| Voter {
        mfa_at: mfa_at.map(at),
        ..voter(sub, &[Role::Approver], &["sales", "finance"])
    };
    for (voter, expected) in [
        (voter("a", &[Role::Approver], &["sales"]), Err(VoteRefusal::Role)),
        (of_finance("owner", Some(60_000)), Err(VoteRefusal::Owner)),
        (of_finance("a", None), Err(VoteRefusal::Mfa)),
        (of_finance("a", Some(49_999)), Err(VoteRefusal::Mfa)),
        (of_finance("a", Some(50_000)), Ok(())),
        (of_finance("requester", Some(60_000)), Ok(())),
    ] {
        assert_eq!(check(&policy, &voter, &[]), expected, "{voter:?}");
    }
}

#[test]
fn a_quorum_approves_and_one_denial_denies_unless_it_takes_a_quorum() {
    let votes: Vec<_> = [true, true, false, false]
        .into_iter()
        .enumerate()
        .map(|(n, approved)| vote(approver(&n.to_string()), approved))
        .collect();
    let one = ApprovalPolicy { quorum: 2, ..ApprovalPolicy::default() };
    let all = ApprovalPolicy { deny: DenyRule::Quorum, ..one.clone() };
    for (policy, range, expected) in [
        (&one, 0..0, Tally::Open { missing: 2 }),
        (&one, 0..1, Tally::Open { missing: 1 }),
        (&one, 0..2, Tally::Approved),
        (&one, 1..3, Tally::Denied),
        (&all, 1..3, Tally::Open { missing: 1 }),
        (&all, 1..4, Tally::Denied),
    ] {
        assert_eq!(policy.tally(&votes[range.clone()]), expected, "{range:?}");
    }
}

#[test]
fn a_policy_and_a_vote_are_journalled_in_their_own_words() {
    let policy = ApprovalPolicy { mfa_within_ms: Some(600_000), ..Default::default() };
    let json = json!({"roles": ["approver"], "groups": [], "quorum": 1, "not": ["requester"],
        "services": false, "mfa_within_ms": 600_000, "deny": "one"});
    assert_eq!(json!(policy), json);
    assert_eq!(serde_json::from_value::<ApprovalPolicy>(json).unwrap(), policy);
    let vote = vote(approver("a"), true);
    let by = json!({"iss": "https://login.example.com/", "sub": "a", "name": "Ada",
        "roles": ["approver"], "auth": "jwt", "at": "1970-01-01T00:01:00.000Z"});
    let json = json!({"by": by, "approved": true, "args_fingerprint": ""});
    assert_eq!(json!(vote), json);
    assert_eq!(serde_json::from_value::<Vote>(json).unwrap(), vote);
}
