//! Journals with events that a newer program wrote and this program does not know.

use std::sync::Arc;

use abide_actors::identity::{Incarnation, NodeName};
use abide_actors::journal::{Commit, ConversationSummary, Holder, Journal};
use abide_actors::request::{ForkRequest, Request};
use abide_conversation::event::{Created, Event, EventData, TurnOutcome, Unknown};
use abide_conversation::state::ConversationStatus;
use abide_conversation::{AgentName, ConversationId, Scoped, Seq, State, Timestamp};
use abide_registry::store::memory::Memory;

use serde_json::{Map, json};

use crate::test_node::TestNode;

const REPEATING_AGENT: &str =
    "{name: a, model: {provider: scripted, script: [{text: 'You: {{ user }}'}]}}";
/// At four events a turn, these exceed the most events that a state may lag behind its journal.
const TURNS: usize = 20;

/// A journal of two events, one of them unknown, whose writer has released it.
async fn written() -> Arc<Memory> {
    let store = Arc::new(Memory::default());
    let id = Scoped::parse("x").unwrap();
    let agent = AgentName::new("a");
    let newer = Holder { node: NodeName::new("newer"), incarnation: Incarnation::new("1") };
    let held = store.claim(&id, &newer, None).await.unwrap();
    let at = Timestamp::UNIX_EPOCH;
    let created = EventData::Created(Created {
        agent: agent.clone(),
        assigns: Map::new(),
        metadata: Map::new(),
        tools: Vec::new(),
        parent: None,
        fork: None,
        title: None,
        expires_at: None,
        owner: None,
        members: Vec::new(),
    });
    let mused =
        EventData::Unknown(Unknown { kind: "mused".to_owned(), data: json!({"on": "life"}) });
    let event = |(seq, data)| Event { seq, at, turn_id: None, data };
    let events = [(Seq::FIRST, created), (Seq::new(2), mused)].map(event).into();
    let summary = ConversationSummary {
        agent,
        status: ConversationStatus::Idle,
        last_seq: Seq::new(2),
        created_at: at,
        metadata: Map::new(),
        participants: Default::default(),
        alarm: None,
        active: false,
        listing: Default::default(),
    };
    let commit = Commit::new(events, summary);
    store.append(&id, &held, commit).await.unwrap();
    store.release(&id, &held).await.unwrap();
    store
}

#[tokio::test(start_paused = true)]
async fn a_conversation_goes_on_after_an_event_that_its_node_does_not_know() {
    let store = written().await;
    let node = TestNode::with_store(store.clone(), REPEATING_AGENT).await;
    for n in 1..=TURNS {
        node.send("x", "go").await.unwrap();
        assert_eq!(node.turn_end("x", n).await, (TurnOutcome::Completed, None));
    }
    node.check("x").await;
    let loaded = store.load(&Scoped::parse("x").unwrap()).await.unwrap().unwrap();
    assert_eq!(loaded.state, State::default(), "a state was cached that lacks the unknown event");
    let journal = node.journal("x").await;
    assert!(journal.len() > 64);

    let (from, at_seq) = (ConversationId::new("x"), None);
    node.deliver("y", Request::Fork(ForkRequest { from, at_seq })).await.unwrap();
    assert_eq!(node.journal("y").await[1], journal[1], "the fork lacks the unknown event");
}
