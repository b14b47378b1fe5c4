//! Two tenants with the same ids and names on one cluster: neither sees nor changes the other's.

use abide_actors::access::{Access, CallerAccess, Reach};
use abide_actors::journal::InboxFilter;
use abide_actors::request::{
    ForkRequest, RememberRequest, Reply, Request, RequestContext, RequestError, ResolveRequest,
};
use abide_conversation::command::{IfBusy, ResolutionAnswer};
use abide_conversation::event::{EventData, TurnOutcome};
use abide_conversation::identity::{AuthMethod, Identity, Subject};
use abide_conversation::remembered_decision::{Match, Scope};
use abide_conversation::{
    AgentName, CallId, ConversationId, Principal, Rejection, Scoped, Seq, Tenant,
};

use crate::revival::APPROVAL_AGENT;
use crate::sub_agents::{BOSS, KID, child};
use crate::test_cluster::{DeathMode, TestCluster};
use crate::test_node::{TestNode, user_message};

const MINE: &str = "{name: a, model: {provider: scripted, script: [{text: 'Mine: {{ user }}'}]}}";
const THEIRS: &str =
    "{name: a, model: {provider: scripted, script: [{text: 'Theirs: {{ user }}'}]}}";
const COMPLETED: (TurnOutcome, Option<String>) = (TurnOutcome::Completed, None);

fn acme() -> Tenant {
    Tenant::parse("acme").unwrap()
}

fn suspended(data: &EventData) -> bool {
    matches!(data, EventData::Suspension(_))
}

async fn replies(node: &TestNode, id: &str) -> Vec<String> {
    let events = node.journal(id).await.into_iter();
    let text = |data| match data {
        EventData::AssistantMsg(reply) => Some(reply.message.text()),
        _ => None,
    };
    events.filter_map(|event| text(event.data)).collect()
}

#[tokio::test(start_paused = true)]
async fn the_same_conversation_and_agent_of_two_tenants_are_two() {
    let node = TestNode::new(MINE).await;
    node.define_for(&acme(), THEIRS).await;
    let mut mine = node.hub.subscribe(&Scoped::parse("x").unwrap());
    for (id, text) in [("x", "one"), ("acme/x", "two")] {
        let sent = node.send(id, text).await.unwrap();
        let Reply::Sent { conversation_id, .. } = sent else { panic!("{sent:?}") };
        assert_eq!(conversation_id, ConversationId::new("x"), "clients know local ids");
        assert_eq!(node.turn_end(id, 1).await, COMPLETED);
    }
    assert_eq!(replies(&node, "x").await, ["Mine: one"]);
    assert_eq!(replies(&node, "acme/x").await, ["Theirs: two"]);
    let mut signals = String::new();
    while let Some(signal) = mine.try_next() {
        signals += &format!("{signal:?}");
    }
    assert!(signals.contains("Mine") && !signals.contains("Theirs"), "{signals}");
    node.deliver("x", Request::Delete).await.unwrap();
    assert_eq!(replies(&node, "acme/x").await, ["Theirs: two"]);
    node.check("acme/x").await;
}

#[tokio::test(start_paused = true)]
async fn what_another_tenant_has_does_not_exist() {
    let node = TestNode::new(MINE).await;
    node.send("x", "one").await.unwrap();
    node.turn_end("x", 1).await;
    let agent = AgentName::new("a");
    let missing_agent = RequestError::AgentMissing(agent);
    for id in ["acme/x", "acme/never"] {
        let scoped = Scoped::parse(id).unwrap();
        assert!(node.conversations.get_actor(&scoped).await.unwrap().is_none());
        assert_eq!(node.send(id, "hello").await, Err(missing_agent.clone()));
        let missing = Err(RequestError::Rejected(Rejection::NotFound));
        for request in [
            Request::Cancel,
            Request::Delete,
            Request::Fork(ForkRequest { from: ConversationId::new("x"), at_seq: None }),
            Request::Fork(ForkRequest {
                from: ConversationId::new("x"),
                at_seq: Some(Seq::new(1)),
            }),
        ] {
            assert_eq!(node.deliver(id, request).await, missing);
        }
        assert_eq!(node.conversations.snapshot(&scoped).await.unwrap(), None);
    }
    assert_eq!(replies(&node, "x").await, ["Mine: one"]);
}

#[tokio::test(start_paused = true)]
async fn a_child_is_of_the_tenant_of_its_parent_and_so_is_its_agent() {
    let node = TestNode::new(BOSS).await;
    node.define(KID).await;
    node.define_for(&acme(), BOSS).await;
    node.send("acme/x", "go").await.unwrap();
    assert_eq!(node.turn_end("acme/x", 1).await, COMPLETED);
    let [_, answer] = &replies(&node, "acme/x").await[..] else { panic!("two messages") };
    assert!(answer.contains("agent kid does not exist"), "{answer}");
    node.define_for(&acme(), &KID.replace("kid heard", "acme's kid heard")).await;
    for (id, answer) in [("x", "kid heard go"), ("acme/y", "acme's kid heard go")] {
        node.send(id, "go").await.unwrap();
        assert_eq!(node.turn_end(id, 1).await, COMPLETED);
        assert_eq!(replies(&node, id).await[1], answer);
    }
    let child = child(&node, "acme/y").await;
    assert!(!node.journal(&format!("acme/{child}")).await.is_empty());
    assert!(node.journal(&child).await.is_empty(), "it is nowhere else");
    node.deliver("acme/y", Request::Delete).await.unwrap();
    assert!(node.journal(&format!("acme/{child}")).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_decision_for_an_agent_is_none_for_another_tenants() {
    let node = TestNode::new(APPROVAL_AGENT).await;
    node.define_for(&acme(), APPROVAL_AGENT).await;
    node.tools.release.add_permits(9);
    node.send("x", "go").await.unwrap();
    node.poll_for_event("x", suspended).await;
    let remember =
        RememberRequest { scope: Scope::Agent, matching: Match::Tool, for_ms: 3_600_000 };
    let approved = Request::Resolve(ResolveRequest {
        call: CallId::new("c"),
        suspension: None,
        by: Principal::new("bob"),
        answer: ResolutionAnswer::Approval { approved: true, reason: None, args: None },
        remember: Some(remember),
    });
    node.deliver("x", approved).await.unwrap();
    node.poll_for_event("x", |data| matches!(data, EventData::DecisionPublished(_))).await;
    node.send("acme/x", "go").await.unwrap();
    node.poll_for_event("acme/x", suspended).await;
    node.send("y", "go").await.unwrap();
    assert_eq!(node.turn_end("y", 1).await, COMPLETED);
    let (all, none) = (InboxFilter::default(), Vec::new());
    let waiting = async |tenant| node.store.inbox(&tenant, &all, None, 9).await.unwrap().items;
    assert_eq!(waiting(Tenant::default()).await, none);
    let waiting = waiting(acme()).await;
    assert_eq!(waiting.len(), 1);
    assert_eq!(waiting[0].conversation_id, ConversationId::new("x"));
}

#[tokio::test(start_paused = true)]
async fn conversations_of_all_tenants_move_with_the_cluster() {
    let mut cluster = TestCluster::new(2, APPROVAL_AGENT).await;
    cluster.node(0).define_for(&acme(), APPROVAL_AGENT).await;
    for id in ["x", "acme/x"] {
        cluster.node(0).send(id, "go").await.unwrap();
        cluster.node(0).poll_for_event(id, suspended).await;
        // The other node asks the holder for this one.
        let busy = cluster.node(1).deliver(id, user_message("too early", IfBusy::Reject)).await;
        assert!(matches!(busy, Err(RequestError::Rejected(_))), "{busy:?}");
    }
    cluster.kill(0, DeathMode::ConnectionRefused);
    cluster.release_all();
    cluster.node(1).approve("acme/x", "c").await.unwrap();
    assert_eq!(cluster.node(1).turn_end("acme/x", 1).await, COMPLETED);
    let resolved = |data: &EventData| matches!(data, EventData::Resolution(_));
    let mine = cluster.node(1).journal("x").await;
    assert!(!mine.iter().any(|event| resolved(&event.data)), "the other call waits on");
    cluster.node(1).approve("x", "c").await.unwrap();
    assert_eq!(cluster.node(1).turn_end("x", 1).await, COMPLETED);
    cluster.check_writes();
}

/// Somebody of this tenant who reaches all of its conversations.
fn backend_of(tenant: &Tenant) -> RequestContext {
    let subject = Subject {
        iss: "abide".to_owned(),
        sub: "key:shop".to_owned(),
        name: None,
        roles: Default::default(),
        groups: Vec::new(),
    };
    let identity = Identity {
        tenant: Some(tenant.clone()),
        subject,
        auth: AuthMethod::Key,
        key_id: None,
        jti: None,
        on_behalf_of: None,
        minted_by: None,
    };
    let access = CallerAccess {
        identity,
        mfa_at: None,
        read: Reach::Tenant,
        act: Reach::Tenant,
        needs: String::new(),
        create: None,
        answer: None,
        born: None,
    };
    let access = Access::Caller(Box::new(access));
    RequestContext { access, idempotency_keys: Vec::new() }
}

#[tokio::test(start_paused = true)]
async fn a_node_refuses_what_another_asks_for_a_caller_of_another_tenant() {
    let cluster = TestCluster::new(2, APPROVAL_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).poll_for_event("x", suspended).await;
    let before = cluster.node(0).journal("x").await;
    let forge = |tenant, request| {
        let id = Scoped::parse("x").unwrap();
        let router = cluster.node(1).conversations.clone();
        async move { router.deliver_for(&id, request, backend_of(&tenant)).await }
    };
    for request in [Request::Cancel, Request::Delete, user_message("hi", IfBusy::Queue)] {
        let refused = forge(acme(), request).await;
        assert_eq!(refused, Err(RequestError::Rejected(Rejection::NotFound)));
    }
    assert_eq!(cluster.node(0).journal("x").await, before);
    let cancelled = forge(Tenant::default(), Request::Cancel).await;
    assert!(matches!(cancelled, Ok(Reply::Cancelled { .. })), "{cancelled:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_on_each_node_shows_its_tenants_conversation_alone() {
    let cluster = TestCluster::new(2, MINE).await;
    cluster.node(0).define_for(&acme(), THEIRS).await;
    let listen =
        |node: usize, id: &str| cluster.node(node).hub.subscribe(&Scoped::parse(id).unwrap());
    let mut streams: Vec<_> = [(0, "x"), (1, "x"), (0, "acme/x"), (1, "acme/x")]
        .map(|(node, id)| (id, listen(node, id)))
        .into();
    for (_, stream) in &streams {
        stream.wait_until_announced(std::time::Duration::from_secs(5)).await;
    }
    for (id, text) in [("x", "one"), ("acme/x", "two")] {
        cluster.node(0).send(id, text).await.unwrap();
        assert_eq!(cluster.node(0).turn_end(id, 1).await, COMPLETED);
    }
    for (id, stream) in &mut streams {
        let (own, other) = if *id == "x" { ("Mine", "Theirs") } else { ("Theirs", "Mine") };
        let mut signals = String::new();
        while !signals.contains(own) {
            signals += &format!("{:?}", stream.next().await);
        }
        while let Some(signal) = stream.try_next() {
            signals += &format!("{signal:?}");
        }
        assert!(!signals.contains(other), "{id}: {signals}");
    }
}
