//! Keys that an agent begins to index find the conversations that it has, after a while and by
//! themselves.

use std::sync::Arc;
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_actors::request::{Request, UpdateRequest};
use abide_conversation::command::Create;
use abide_conversation::identity::Participants;
use abide_conversation::{AgentName, Principal, Scoped, Tenant};
use abide_registry::index_rebuilder::IndexRebuilder;
use abide_registry::store::{IndexJobs, ListQuery};
use serde_json::{Map, Value, json};
use tokio_util::task::AbortOnDropHandle;

use crate::test_node::{TestNode, clock};

const WITHOUT: &str = "{name: a, model: {provider: scripted, script: [{text: hi}]}}";
const WITH: &str =
    "{name: a, index: [customer], model: {provider: scripted, script: [{text: hi}]}}";
const WITH_MORE: &str =
    "{name: a, index: [customer, ticket], model: {provider: scripted, script: [{text: hi}]}}";
const MINUTE: Duration = Duration::from_secs(60);

fn metadata(customer: &str) -> Map<String, Value> {
    let Value::Object(metadata) = json!({"customer": customer, "ticket": "t"}) else {
        unreachable!()
    };
    metadata
}

async fn create(node: &TestNode, id: &str) {
    let create = Create {
        agent: AgentName::new("a"),
        assigns: Default::default(),
        metadata: metadata("7"),
        tools: Vec::new(),
        parent: None,
        fork: None,
        participants: Participants::default(),
        title: None,
        expires_at: None,
    };
    node.deliver(id, Request::Create(create)).await.unwrap();
}

/// The ids of the conversations that have this text at the key.
async fn found(node: &TestNode, key: &str, value: &str) -> Vec<String> {
    let metadata = [(key.to_owned(), value.to_owned())].into();
    let query = ListQuery { metadata, root_only: false, ..ListQuery::default() };
    let page = node.store.list(&Tenant::default(), &query, None, 1_000).await.unwrap();
    let mut ids: Vec<_> = page.items.into_iter().map(|it| it.id.to_string()).collect();
    ids.sort();
    ids
}

async fn jobs(node: &TestNode) -> IndexJobs {
    node.store.index_jobs().await.unwrap()
}

fn rebuilder(node: &TestNode, clock: &Arc<dyn Clock>) -> IndexRebuilder {
    let (store, agents) = (node.store.clone(), node.catalog.clone());
    IndexRebuilder { store, agents, clock: clock.clone() }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_added_finds_the_conversations_before_it_without_an_operator() {
    let clock = clock();
    let node = TestNode::with_clock(clock.clone(), WITHOUT).await;
    create(&node, "x").await;
    create(&node, "y").await;
    node.define(WITH).await;
    assert_eq!(jobs(&node).await.jobs.len(), 1);
    create(&node, "z").await;
    assert_eq!(found(&node, "customer", "7").await, ["z"]);
    let cluster = node.conversations.cluster().clone();
    let _running = AbortOnDropHandle::new(tokio::spawn(rebuilder(&node, &clock).run(cluster)));
    let complete = async {
        while !jobs(&node).await.jobs.is_empty() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(MINUTE, complete).await.expect("the job never ends");
    assert_eq!(found(&node, "customer", "7").await, ["x", "y", "z"]);
    // What is known already asks for nothing.
    node.define(WITH).await;
    node.define(WITHOUT).await;
    assert_eq!(jobs(&node).await.jobs, []);
    node.define(WITH_MORE).await;
    assert_eq!(jobs(&node).await.jobs.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_job_goes_on_from_its_last_page_by_what_is_indexed_then() {
    let clock = clock();
    let node = TestNode::with_clock(clock.clone(), WITHOUT).await;
    for number in 0..600 {
        create(&node, &format!("c{number:03}")).await;
    }
    node.define(WITH).await;
    let early = rebuilder(&node, &clock).index_step().await;
    assert_eq!(early, Ok(true), "requests may still index by no key");
    tokio::time::advance(MINUTE).await;
    assert_eq!(rebuilder(&node, &clock).index_step().await, Ok(false));
    let passed = jobs(&node).await.jobs[0].conversations;
    assert!((1..600).contains(&passed), "{passed}");
    // Another node goes on.
    while !rebuilder(&node, &clock).index_step().await.unwrap() {}
    assert_eq!(jobs(&node).await.jobs, []);
    assert_eq!(found(&node, "customer", "7").await.len(), 600);
    assert_eq!(found(&node, "ticket", "t").await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_gone_is_not_indexed_and_a_new_one_has_nothing_to_index() {
    let clock = clock();
    let node = TestNode::with_clock(clock.clone(), WITHOUT).await;
    node.define(&WITH.replace("name: a", "name: b")).await;
    assert_eq!(jobs(&node).await, IndexJobs::default());
    create(&node, "x").await;
    node.define(WITH).await;
    let change = UpdateRequest {
        metadata: Some(metadata("8")),
        members: None,
        title: None,
        expires_at: None,
        by: Principal::new("ada"),
    };
    node.deliver("x", Request::Update(change)).await.unwrap();
    assert_eq!(found(&node, "customer", "8").await, ["x"]);
    let name = Scoped::new(&Tenant::default(), &AgentName::new("a"));
    assert!(node.store.delete_agent(&name, None).await.unwrap());
    tokio::time::advance(MINUTE).await;
    while !rebuilder(&node, &clock).index_step().await.unwrap() {}
    assert_eq!(jobs(&node).await.jobs, []);
    assert_eq!(found(&node, "customer", "8").await, ["x"]);
    // It may come again with conversations that it had.
    node.define(WITH).await;
    assert_eq!(jobs(&node).await.jobs.len(), 1);
}
