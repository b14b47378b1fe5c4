//! Budgets of turns and conversations, which include what child conversations spend.

use abide_conversation::event::{EventData, TurnOutcome};
use serde_json::{Value, json};

use crate::sub_agents::{all_conversations, child};
use crate::test_node::TestNode;

/// An agent that calls `echo` forever; each step costs 100 tokens and 3 dollars.
fn spender(budget: Value) -> String {
    let step = json!({
        "calls": [{"name": "echo", "args": {"n": 1}}],
        "usage": {"input_tokens": 90, "output_tokens": 10},
    });
    json!({
        "name": "a",
        "model": {"provider": "scripted", "script": vec![step; 20],
            "prices": {"input": 10_000, "output": 210_000}},
        "budget": budget,
        "tools": [{"name": "echo", "run": {"native": "echo"}}],
    })
    .to_string()
}

fn halted(by: &str) -> (TurnOutcome, Option<String>) {
    (TurnOutcome::Halted, Some(by.to_owned()))
}

async fn steps(node: &TestNode) -> usize {
    let is_reply = |data: &EventData| matches!(data, EventData::AssistantMsg(_));
    node.journal("x").await.iter().filter(|event| is_reply(&event.data)).count()
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_exceeds_a_budget_is_halted_with_the_name_of_the_budget() {
    for (budget, by, taken) in [
        (json!({"max_turn_tokens": 250}), "max_turn_tokens", 3),
        (json!({"max_turn_tokens": 300}), "max_turn_tokens", 3),
        (json!({"max_turn_cost": 5.9}), "max_turn_cost", 2),
        (json!({"max_conversation_tokens": 101}), "max_conversation_tokens", 2),
        (json!({"max_conversation_cost": 0.5}), "max_conversation_cost", 1),
        (json!({"max_turn_tokens": 900, "max_turn_cost": 7}), "max_turn_cost", 3),
    ] {
        let node = TestNode::new(&spender(budget)).await;
        node.send("x", "go").await.unwrap();
        assert_eq!(node.turn_end("x", 1).await, halted(by));
        assert_eq!(steps(&node).await, taken, "{by}");
        node.check("x").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_turns_budget_starts_anew_and_a_conversations_does_not() {
    let budget = json!({"max_turn_tokens": 200, "max_conversation_tokens": 300});
    let node = TestNode::new(&spender(budget)).await;
    for (turn, by, taken) in [
        (1, "max_turn_tokens", 2),
        (2, "max_conversation_tokens", 3),
        (3, "max_conversation_tokens", 3),
    ] {
        node.send("x", "go").await.unwrap();
        assert_eq!(node.turn_end("x", turn).await, halted(by));
        assert_eq!(steps(&node).await, taken);
    }
    node.check("x").await;
}

/// An agent that asks `kid`; its own step costs 100 tokens.
fn boss(budget: Value) -> String {
    json!({
        "name": "a",
        "model": {"provider": "scripted", "script": [
            {"calls": [{"id": "c", "name": "ask", "args": {"prompt": "go"}}],
                "usage": {"input_tokens": 90, "output_tokens": 10}},
            {"text": "Well."},
        ]},
        "budget": budget,
        "tools": [{"name": "ask", "run": {"agent": "kid"}, "run_timeout": "1h"}],
    })
    .to_string()
}

#[tokio::test(start_paused = true)]
async fn a_child_gets_what_is_left_and_its_parent_pays_for_it() {
    let node = TestNode::new(&boss(json!({"max_turn_tokens": 350}))).await;
    node.define(&spender(json!({})).replace(r#""name":"a""#, r#""name":"kid""#)).await;
    node.send("x", "go").await.unwrap();
    assert_eq!(node.turn_end("x", 1).await, halted("max_turn_tokens"));
    let child = child(&node, "x").await;
    assert_eq!(node.turn_end(&child, 1).await, halted("max_turn_tokens"));
    let started =
        node.wait_for_event(&child, |data| matches!(data, EventData::TurnStarted(_))).await;
    let EventData::TurnStarted(started) = started.data else { unreachable!() };
    assert_eq!(started.budget.max_turn_tokens, Some(250));
    assert_eq!(node.state(&child).await.usage.tokens(), 300);
    assert_eq!(node.state("x").await.usage.tokens(), 400);
    assert_eq!(all_conversations(&node).await.len(), 2);
    node.check("x").await;
}
