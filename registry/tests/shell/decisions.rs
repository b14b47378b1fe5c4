//! A decision for a whole agent reaches it, though the node that heard it dies at once.

use abide_actors::agents::Agents;
use abide_actors::request::{RememberRequest, Request, ResolveRequest};
use abide_conversation::command::ResolutionAnswer;
use abide_conversation::event::{EventData, TurnOutcome};
use abide_conversation::remembered_decision::{Match, Scope};
use abide_conversation::{AgentName, CallId, Principal};

use crate::revival::ASKS;
use crate::rig::Rig;
use crate::town::{Killed, Town};

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
async fn an_agents_decision_survives_the_node_that_heard_it() {
    let mut town = Town::new(2, ASKS).await;
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).until_unseen("x", suspended).await;
    town.node(0).ask("x", remembering(Scope::Agent)).await.unwrap();
    town.kill(0, Killed::Refused);
    town.release_all();
    town.node(1).until_unseen("x", |data| matches!(data, EventData::DecisionPublished(_))).await;
    town.node(1).send("y", "go").await.unwrap();
    assert_eq!(town.node(1).ended("y", 1).await, (TurnOutcome::Completed, None));
    assert!(!town.node(1).journal("y").await.iter().any(|event| suspended(&event.data)));
    let kept = town.node(1).catalogue.decisions(&AgentName::new("a")).await.unwrap();
    assert_eq!(kept.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_conversations_decision_holds_after_its_actor_died_and_nowhere_else() {
    let rig = Rig::new(ASKS).await;
    rig.send("x", "go").await.unwrap();
    rig.until("x", suspended).await;
    rig.ask("x", remembering(Scope::Conversation)).await.unwrap();
    rig.tools.release.add_permits(9);
    rig.ended("x", 1).await;
    rig.kill("x").await;
    rig.send("x", "again").await.unwrap();
    assert_eq!(rig.ended("x", 2).await, (TurnOutcome::Completed, None));
    let ran = rig.journal("x").await.into_iter().find_map(|event| match event.data {
        EventData::ToolCall(call) if call.call_id != CallId::new("c") => call.gate,
        _ => None,
    });
    let gate = ran.unwrap();
    assert!(gate.rule.starts_with("remembered: dec_"), "{}", gate.rule);
    assert_eq!(gate.by, Some(Principal::new("bob")));
    rig.send("y", "go").await.unwrap();
    rig.until("y", suspended).await;
}
