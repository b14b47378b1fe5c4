//! Decisions that are remembered survive the death of their node or actor.

use abide_actors::agents::Agents;
use abide_actors::request::{RememberRequest, Request, ResolveRequest};
use abide_conversation::command::ResolutionAnswer;
use abide_conversation::event::{EventData, TurnOutcome};
use abide_conversation::remembered_decision::{Match, Scope};
use abide_conversation::{CallId, Principal, Scoped};

use crate::revival::APPROVAL_AGENT;
use crate::test_cluster::{DeathMode, TestCluster};
use crate::test_node::TestNode;

fn suspended(data: &EventData) -> bool {
    matches!(data, EventData::Suspension(_))
}

fn remembering(scope: Scope) -> Request {
    Request::Resolve(ResolveRequest {
        call: CallId::new("c"),
        suspension: None,
        by: Principal::new("bob"),
        answer: ResolutionAnswer::Approval { approved: true, reason: None, args: None },
        remember: Some(RememberRequest { scope, matching: Match::Tool, for_ms: 3_600_000 }),
    })
}

#[tokio::test(start_paused = true)]
async fn an_agents_decision_survives_the_node_that_took_it() {
    let mut cluster = TestCluster::new(2, APPROVAL_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).poll_for_event("x", suspended).await;
    cluster.node(0).deliver("x", remembering(Scope::Agent)).await.unwrap();
    cluster.kill(0, DeathMode::ConnectionRefused);
    cluster.release_all();
    cluster
        .node(1)
        .poll_for_event("x", |data| matches!(data, EventData::DecisionPublished(_)))
        .await;
    cluster.node(1).send("y", "go").await.unwrap();
    assert_eq!(cluster.node(1).turn_end("y", 1).await, (TurnOutcome::Completed, None));
    assert!(!cluster.node(1).journal("y").await.iter().any(|event| suspended(&event.data)));
    let decisions = cluster.node(1).catalog.decisions(&Scoped::parse("a").unwrap()).await.unwrap();
    assert_eq!(decisions.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_conversations_decision_holds_after_its_actor_died_and_nowhere_else() {
    let node = TestNode::new(APPROVAL_AGENT).await;
    node.send("x", "go").await.unwrap();
    node.wait_for_event("x", suspended).await;
    node.deliver("x", remembering(Scope::Conversation)).await.unwrap();
    node.tools.release.add_permits(9);
    node.turn_end("x", 1).await;
    node.kill("x").await;
    node.send("x", "again").await.unwrap();
    assert_eq!(node.turn_end("x", 2).await, (TurnOutcome::Completed, None));
    let verdict = node.journal("x").await.into_iter().find_map(|event| match event.data {
        EventData::ToolCall(call) if call.call_id != CallId::new("c") => call.gate,
        _ => None,
    });
    let gate = verdict.unwrap();
    assert!(gate.rule.starts_with("remembered: dec_"), "{}", gate.rule);
    assert_eq!(gate.by, Some(Principal::new("bob")));
    node.send("y", "go").await.unwrap();
    node.wait_for_event("y", suspended).await;
}
