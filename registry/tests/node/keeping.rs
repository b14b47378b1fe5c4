//! Conversations end at their own time, or when nothing has happened in them for long enough: once,
//! not early, and whatever dies.

use std::sync::Arc;
use std::time::Duration;

use abide_actors::identity::{Incarnation, NodeName};
use abide_actors::journal::{Commit, Holder};
use abide_actors::request::{
    DeletionCondition, Reply, Request, RequestError, ScheduleRequest, SendRequest, UpdateRequest,
};
use abide_conversation::command::{Create, IfBusy};
use abide_conversation::event::EventData;
use abide_conversation::remembered_decision::{Match, RememberedDecision};
use abide_conversation::{AgentName, DecisionId, Principal, Rejection, Scoped, Tenant, Timestamp};
use abide_registry::partition::Partition;
use abide_registry::retention::{RetentionRules, RetentionSweeper};
use abide_registry::store::SummaryFilter;
use tokio_util::task::AbortOnDropHandle;

use crate::flaky_store::FlakyStore;
use crate::sub_agents::{BOSS, CAREFUL_KID, child, suspended};
use crate::test_cluster::{DeathMode, TestCluster};
use crate::test_node::{TestNode, clock, user_message};

const AGENT: &str = r#"
name: a
retention: {idle: 1h}
model: {provider: scripted, script: [{text: "Yes, {{ user }}."}]}
"#;
const GATED: &str = r#"
name: a
suspension_timeout: 30d
model: {provider: scripted, script: [{calls: [{id: c, name: echo, args: {n: 1}}]}, {text: "Well."}]}
tools: [{name: echo, run: {native: echo}, approval: requires_approval}]
"#;
const HOUR: Duration = Duration::from_secs(3_600);
const MINUTE: Duration = Duration::from_secs(60);

/// The operator's rule for every tenant.
pub struct Rule(pub Option<Duration>);

impl RetentionRules for Rule {
    fn tenants(&self) -> Vec<Tenant> {
        vec![Tenant::default()]
    }

    fn retention(&self, _: &Tenant) -> Option<Duration> {
        self.0
    }

    fn deleted(&self, _: &Tenant) {}
}

/// Two tenants with one rule.
struct TwoTenants;

impl RetentionRules for TwoTenants {
    fn tenants(&self) -> Vec<Tenant> {
        vec![Tenant::parse("acme").unwrap(), Tenant::default()]
    }

    fn retention(&self, _: &Tenant) -> Option<Duration> {
        Some(HOUR)
    }

    fn deleted(&self, _: &Tenant) {}
}

/// Sweeps on a node until it is dropped.
fn sweep(
    node: &TestNode,
    clock: Arc<dyn abide_actors::clock::Clock>,
    rules: impl RetentionRules,
) -> AbortOnDropHandle<()> {
    let sweeper = RetentionSweeper {
        conversations: node.conversations.clone(),
        store: node.store.clone(),
        clock,
        rules: Arc::new(rules),
    };
    AbortOnDropHandle::new(tokio::spawn(sweeper.run()))
}

async fn create(node: &TestNode, id: &str, expires_at: Option<Timestamp>) {
    let create = Create {
        agent: AgentName::new("a"),
        assigns: Default::default(),
        metadata: Default::default(),
        tools: Vec::new(),
        parent: None,
        fork: None,
        participants: Default::default(),
        title: None,
        expires_at,
    };
    node.deliver(id, Request::Create(create)).await.unwrap();
}

async fn set_end(node: &TestNode, id: &str, expires_at: Option<Timestamp>) {
    let update = UpdateRequest {
        metadata: None,
        members: None,
        title: None,
        expires_at: Some(expires_at),
        by: Principal::new("ada"),
    };
    assert_eq!(node.deliver(id, Request::Update(update)).await, Ok(Reply::Updated));
}

async fn all(node: &TestNode) -> Vec<String> {
    let (tenant, filter) = (Tenant::default(), SummaryFilter::default());
    let page = node.store.conversations(&tenant, &filter, None, 100);
    page.await.unwrap().items.into_iter().map(|(id, _)| id.to_string()).collect()
}

/// The time so much after the beginning of the test.
fn at(after: Duration) -> Timestamp {
    let ms = i64::try_from(after.as_millis()).unwrap();
    Timestamp::from_millisecond(1_800_000_000_000 + ms).unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_is_damaged_of_one_tenant_keeps_nothing_of_another() {
    let store = Arc::new(FlakyStore::default());
    *store.damaged_tenant.lock().unwrap() = Some(Tenant::parse("acme").unwrap());
    let node = TestNode::with_store(store, AGENT).await;
    create(&node, "x", None).await;
    let _sweeping = sweep(&node, clock(), TwoTenants);
    tokio::time::sleep(HOUR + 5 * MINUTE).await;
    assert_eq!(all(&node).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_conversation_is_deleted_at_its_end_and_not_before_though_it_waits() {
    let node = TestNode::new(GATED).await;
    create(&node, "x", Some(at(HOUR))).await;
    create(&node, "y", Some(at(HOUR))).await;
    node.send("x", "go").await.unwrap();
    node.poll_for_event("x", |data| matches!(data, EventData::Suspension(_))).await;
    tokio::time::sleep(HOUR - MINUTE).await;
    assert_eq!(all(&node).await, ["x", "y"]);
    // Nobody may have it in memory by then.
    assert!(node.conversations.table().get(&Scoped::parse("x").unwrap()).is_none());
    set_end(&node, "y", None).await;
    tokio::time::sleep(2 * MINUTE).await;
    assert_eq!(all(&node).await, ["y"]);
    tokio::time::sleep(HOUR).await;
    assert_eq!(all(&node).await, ["y"], "its end was removed");
}

#[tokio::test(start_paused = true)]
async fn an_end_that_an_earlier_version_has_dropped_is_restored_when_the_conversation_is_loaded() {
    let node = TestNode::new(AGENT).await;
    create(&node, "x", Some(at(HOUR))).await;
    let id = Scoped::parse("x").unwrap();
    tokio::time::sleep(HOUR / 2).await;
    assert!(node.conversations.table().get(&id).is_none());
    // It commits what it knows of the conversation.
    let other = Holder { node: NodeName::new("old"), incarnation: Incarnation::new("1") };
    let held = node.store.claim(&id, &other, None).await.unwrap();
    let mut summary = node.store.summary(&id).await.unwrap().unwrap();
    assert_eq!(summary.alarm, Some(at(HOUR)));
    summary.alarm = None;
    node.store.append(&id, &held, Commit::new(Arc::from([]), summary)).await.unwrap();
    node.store.release(&id, &held).await.unwrap();
    assert_eq!(node.store.alarms(9).await, Ok(vec![]));
    node.send("x", "hello").await.unwrap();
    node.turn_end("x", 1).await;
    assert_eq!(node.store.alarms(9).await, Ok(vec![(id, at(HOUR))]));
    tokio::time::sleep(HOUR / 2 + MINUTE).await;
    assert_eq!(all(&node).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_children_of_a_conversation_go_with_it() {
    let node = TestNode::new(BOSS).await;
    node.define(CAREFUL_KID).await;
    node.send("x", "go").await.unwrap();
    let child = child(&node, "x").await;
    suspended(&node, &child).await;
    set_end(&node, "x", Some(at(MINUTE))).await;
    tokio::time::sleep(2 * MINUTE).await;
    assert_eq!(all(&node).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_was_moved_while_the_deletion_was_on_its_way_holds() {
    let node = TestNode::new(AGENT).await;
    create(&node, "x", Some(at(HOUR))).await;
    let early = Request::DeleteIf(DeletionCondition::Expired);
    assert_eq!(node.deliver("x", early.clone()).await, Ok(Reply::NotDue));
    tokio::time::sleep(HOUR - MINUTE).await;
    set_end(&node, "x", Some(at(2 * HOUR))).await;
    tokio::time::sleep(2 * MINUTE).await;
    assert_eq!(node.deliver("x", early.clone()).await, Ok(Reply::NotDue));
    tokio::time::sleep(HOUR + MINUTE).await;
    let gone = Err(RequestError::Rejected(Rejection::NotFound));
    assert_eq!(node.deliver("x", early).await, gone);
}

#[tokio::test(start_paused = true)]
async fn what_is_idle_for_long_enough_is_deleted_within_a_minute() {
    let clock = clock();
    let node = TestNode::with_clock(clock.clone(), AGENT).await;
    let _sweeper = sweep(&node, clock, Rule(None));
    create(&node, "never-used", None).await;
    node.send("used", "hello").await.unwrap();
    node.turn_end("used", 1).await;
    tokio::time::sleep(HOUR / 2).await;
    node.send("later", "hello").await.unwrap();
    node.turn_end("later", 1).await;
    tokio::time::sleep(HOUR / 2 - MINUTE).await;
    assert_eq!(all(&node).await, ["later", "never-used", "used"]);
    tokio::time::sleep(2 * MINUTE).await;
    assert_eq!(all(&node).await, ["later"]);
    tokio::time::sleep(HOUR / 2).await;
    assert_eq!(all(&node).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_waits_or_has_something_to_come_is_left_alone() {
    let clock = clock();
    let node = TestNode::with_clock(clock.clone(), GATED).await;
    let _sweeper = sweep(&node, clock, Rule(Some(HOUR)));
    node.send("waits", "go").await.unwrap();
    node.poll_for_event("waits", |data| matches!(data, EventData::Suspension(_))).await;
    let Request::Send(message) = user_message("later", IfBusy::Queue) else { unreachable!() };
    let message: SendRequest = message;
    let later = ScheduleRequest { deliver_at: at(5 * HOUR), message };
    node.deliver("scheduled", Request::Schedule(Box::new(later))).await.unwrap();
    create(&node, "idle", None).await;
    tokio::time::sleep(3 * HOUR).await;
    assert_eq!(all(&node).await, ["scheduled", "waits"]);
    node.approve("waits", "c").await.unwrap();
    tokio::time::sleep(HOUR + MINUTE).await;
    assert_eq!(all(&node).await, ["scheduled"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_arrives_just_before_keeps_an_idle_conversation() {
    let node = TestNode::new(AGENT).await;
    create(&node, "x", None).await;
    tokio::time::sleep(HOUR).await;
    let seen = Request::DeleteIf(DeletionCondition::IdleSince(at(MINUTE)));
    node.send("x", "hello").await.unwrap();
    assert_eq!(node.deliver("x", seen.clone()).await, Ok(Reply::NotDue));
    node.turn_end("x", 1).await;
    assert_eq!(node.deliver("x", seen).await, Ok(Reply::NotDue));
    assert_eq!(all(&node).await, ["x"]);
}

#[tokio::test(start_paused = true)]
async fn a_backlog_of_several_pages_is_deleted() {
    let clock = clock();
    let node = TestNode::with_clock(clock.clone(), AGENT).await;
    for number in 0..120 {
        create(&node, &format!("c{number}"), None).await;
    }
    tokio::time::sleep(HOUR + MINUTE).await;
    let _sweeper = sweep(&node, clock, Rule(None));
    tokio::time::sleep(MINUTE).await;
    assert_eq!(all(&node).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_a_killed_node_was_to_delete_is_deleted_by_another() {
    let mut cluster = TestCluster::new(2, AGENT).await;
    let view = cluster.node(0).conversations.cluster().view();
    let sweeps = view.partitions.contains(Partition::of("default"));
    let (victim, heir) = if sweeps { (0, 1) } else { (1, 0) };
    let sweeper = sweep(cluster.node(victim), cluster.clock.clone(), Rule(None));
    let _heir = sweep(cluster.node(heir), cluster.clock.clone(), Rule(None));
    let expiring = cluster.id_in_partitions_of(victim);
    create(cluster.node(victim), "idle", None).await;
    create(cluster.node(victim), &expiring, Some(at(HOUR))).await;
    tokio::time::sleep(HOUR - Duration::from_millis(500)).await;
    let heir_node = cluster.node(heir);
    assert_eq!(all(heir_node).await.len(), 2, "nothing is deleted early");
    drop(sweeper);
    cluster.kill(victim, DeathMode::ConnectionRefused);
    tokio::time::sleep(2 * MINUTE).await;
    assert_eq!(all(cluster.node(heir)).await, [""; 0]);
    cluster.check_writes();
}

#[tokio::test(start_paused = true)]
async fn decisions_that_expired_long_ago_are_removed() {
    let clock = clock();
    let node = TestNode::with_clock(clock.clone(), GATED).await;
    let _sweeper = sweep(&node, clock, Rule(None));
    create(&node, "x", None).await;
    let agent = Scoped::new(&Tenant::default(), &AgentName::new("a"));
    let day = jiff::SignedDuration::from_hours(24);
    for (id, days) in [("dec_1", 6), ("dec_2", 8)] {
        let decision = RememberedDecision {
            id: DecisionId::new(id),
            tool: "send".to_owned(),
            tool_digest: String::new(),
            approved: true,
            matching: Match::Tool,
            fingerprint: String::new(),
            by: Principal::new("ann"),
            voters: Vec::new(),
            expires_at: at(Duration::ZERO).checked_sub(day * days).unwrap(),
        };
        node.store.set_decision(&agent, &decision.id, Some(&decision)).await.unwrap();
    }
    tokio::time::sleep(2 * HOUR).await;
    let left = node.store.decisions(&agent).await.unwrap();
    assert_eq!(left.iter().map(|left| left.id.as_str()).collect::<Vec<_>>(), ["dec_1"]);
}
