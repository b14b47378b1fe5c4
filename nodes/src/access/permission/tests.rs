//! What each permission asks of each role.
use abide_actors::access::Reach::{None as Nobody, Own, Shared, Tenant as All};
use abide_conversation::identity::{AuthMethod, Identity, Subject, Tenant};
use abide_conversation::{CallId, ConversationId, Timestamp};

use super::*;

fn credential(roles: &[Role], grant: Option<TokenGrant>) -> Credential {
    let subject = Subject {
        iss: "abide".to_owned(),
        sub: "u1".to_owned(),
        name: None,
        roles: roles.iter().copied().collect(),
        groups: Vec::new(),
    };
    let identity = Identity {
        tenant: Some(Tenant::default()),
        subject,
        auth: AuthMethod::Key,
        key_id: None,
        jti: None,
        on_behalf_of: None,
        minted_by: None,
    };
    Credential {
        identity,
        grant,
        mfa_at: None,
        expires_at: None,
        queues: Default::default(),
        valid_until: None,
    }
}

fn token(target: TokenTarget, scopes: &[Scope]) -> Credential {
    let scopes = scopes.iter().copied().collect();
    // The roles of a token's subject do not count.
    credential(&Role::ALL, Some(TokenGrant { target, scopes, agent: None }))
}

fn conversation_token(scopes: &[Scope]) -> Credential {
    let born = Some(Timestamp::UNIX_EPOCH);
    token(TokenTarget::Conversation { id: ConversationId::new("c"), born }, scopes)
}

/// The reach of reading, taking part, owning, and answering clients, persons and approvals.
fn reaches(credential: &Credential) -> [Reach; 6] {
    let of = |verb| caller_access(credential, verb, "x");
    let act = |verb| of(verb).act;
    let answer = of(Verb::Answer).answer;
    let answer = |pick: fn(&AnswerAccess) -> Reach| answer.as_ref().map_or(Nobody, pick);
    [
        act(Verb::Read),
        act(Verb::TakePart(Some(Scope::Send))),
        act(Verb::Own),
        answer(|it| it.client),
        answer(|it| it.human),
        answer(|it| it.approval),
    ]
}

#[test]
fn a_role_reaches_the_conversations_of_the_table() {
    for (role, expected) in [
        (User, [Shared, Shared, Own, Shared, Shared, Nobody]),
        (Approver, [Nobody, Nobody, Nobody, Nobody, Nobody, All]),
        (Backend, [All, All, All, All, All, Nobody]),
        (Author, [Nobody; 6]),
        (TenantAdmin, [Nobody; 6]),
        (Auditor, [All, Nobody, Nobody, Nobody, Nobody, Nobody]),
        (Operator, [Nobody; 6]),
    ] {
        assert_eq!(reaches(&credential(&[role], None)), expected, "{role:?}");
    }
    let both = reaches(&credential(&[User, Approver], None));
    assert_eq!(both, [Shared, Shared, Own, Shared, Shared, All]);
}

#[test]
fn a_token_permits_its_scopes_and_nothing_else() {
    for (scope, expected) in [
        (Scope::Create, [Nobody; 6]),
        (Scope::Read, [All, Nobody, Nobody, Nobody, Nobody, Nobody]),
        (Scope::Send, [Nobody, All, Nobody, Nobody, Nobody, Nobody]),
        (Scope::Cancel, [Nobody; 6]),
        (Scope::AnswerClient, [Nobody, Nobody, Nobody, All, Nobody, Nobody]),
        (Scope::AnswerHuman, [Nobody, Nobody, Nobody, Nobody, All, Nobody]),
        (Scope::Approve, [Nobody, Nobody, Nobody, Nobody, Nobody, All]),
    ] {
        assert_eq!(reaches(&conversation_token(&[scope])), expected, "{scope:?}");
    }
    for rule in [ReadAgents::RULE, ManageKeys::RULE, Operate::RULE, MintTokens::RULE] {
        assert!(!is_met(rule, &conversation_token(&[Scope::Read, Scope::Create])));
    }
    assert!(is_met(ReadBlobs::RULE, &conversation_token(&[Scope::Read])));
    assert!(is_met(Known::RULE, &conversation_token(&[])));
}

#[test]
fn a_token_that_is_older_than_its_conversation_reaches_only_what_its_subject_takes_part_in() {
    let target = TokenTarget::Conversation { id: ConversationId::new("c"), born: None };
    let early = token(target, &[Scope::Create, Scope::Read, Scope::Send, Scope::AnswerHuman]);
    assert_eq!(reaches(&early), [Shared, Shared, Nobody, Nobody, Shared, Nobody]);
    let create = caller_access(&early, Verb::TakePart(Some(Scope::Send)), "x").create;
    assert_eq!(create, Some(CreateAccess::OfAnyAgent));
}

#[test]
fn only_a_message_of_somebody_who_may_create_creates() {
    let create = |credential: &Credential, verb| caller_access(credential, verb, "x").create;
    let send = Verb::TakePart(Some(Scope::Send));
    assert_eq!(create(&credential(&[User], None), send), Some(CreateAccess::OfAnyAgent));
    assert_eq!(create(&credential(&[User], None), Verb::TakePart(None)), None);
    assert_eq!(create(&credential(&[Auditor], None), send), None);
    assert_eq!(create(&conversation_token(&[Scope::Send]), send), None);
    let both = conversation_token(&[Scope::Send, Scope::Create]);
    assert_eq!(create(&both, send), Some(CreateAccess::OfAnyAgent));
}

#[test]
fn a_reply_link_is_for_its_calls_and_its_conversation() {
    let born = Timestamp::UNIX_EPOCH;
    let calls = vec![(CallId::new("k"), 1)];
    let target = TokenTarget::Calls { id: ConversationId::new("c"), born, calls: calls.clone() };
    let link = token(target, &Scope::ANSWERS);
    let access = caller_access(&link, Verb::Answer, "answer");
    assert_eq!(access.answer.map(|it| it.only), Some(Some(calls)));
    assert_eq!((access.born, access.read), (Some(born), Nobody));
}

#[test]
fn a_role_that_is_not_in_a_permission_does_not_meet_it() {
    let met = |rule: Rule, role: Role| is_met(rule, &credential(&[role], None));
    for role in Role::ALL {
        assert_eq!(met(Operate::RULE, role), role == Operator);
        assert_eq!(met(ManageKeys::RULE, role), role == TenantAdmin);
        assert_eq!(met(DefineAgents::RULE, role), role == Author);
        assert_eq!(met(ReadAudit::RULE, role), role == Auditor);
        assert!(met(Anybody::RULE, role) && met(Known::RULE, role));
    }
}

#[test]
fn without_a_tenant_nobody_has_a_role_but_the_operator() {
    let mut all = credential(&Role::ALL, None);
    all.identity.tenant = None;
    assert!(is_met(Operate::RULE, &all) && is_met(Known::RULE, &all));
    for rule in [ManageKeys::RULE, DefineAgents::RULE, MintTokens::RULE, ReadBlobs::RULE] {
        assert!(!is_met(rule, &all));
    }
}
