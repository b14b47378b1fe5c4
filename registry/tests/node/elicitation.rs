//! A tool that asks a person while it runs: the question survives its node, and the answer reaches
//! the tool.

use abide_actors::tools::ToolReturn;
use abide_actors::tools::native::{Context, NativeTool};
use abide_conversation::command::ResolutionAnswer;
use abide_conversation::elicitation;
use abide_conversation::elicitation::InputRequest;
use abide_conversation::event::{EventData, SuspensionKind, TurnOutcome};
use async_trait::async_trait;
use serde_json::{Value, json};

use crate::test_cluster::{DeathMode, TestCluster};
use crate::test_node::{TestNode, results};

/// Asks for a seat and returns it; the answer `again` makes the tool ask once more.
pub struct Seat;

#[async_trait]
impl NativeTool for Seat {
    fn description(&self) -> String {
        "Books a seat.".to_owned()
    }

    fn parameters(&self) -> Value {
        json!({"type": "object"})
    }

    async fn run(&self, _args: Value, context: Context<'_>) -> ToolReturn {
        let answer = context.input.and_then(|input| Some((input, input.answer.as_ref()?)));
        match answer {
            Some((input, elicitation::InputAnswer::Result(seat))) if seat != "again" => {
                let state = &input.request.request_state;
                ToolReturn::ok(json!({"seat": seat, "state": state, "attempt": context.attempt}))
            }
            Some((_, elicitation::InputAnswer::Error(_))) => ToolReturn::error("no seat, no trip"),
            Some(_) | None => ToolReturn::input_required(InputRequest {
                message: "Which seat?".to_owned(),
                requests: json!({"seat": {"type": "string"}}),
                request_state: Some(format!("asked by attempt {}", context.attempt)),
            }),
        }
    }
}

const SEAT_AGENT: &str = r#"
name: a
model:
  provider: scripted
  script:
    - calls: [{id: c, name: seat, args: {}}]
    - text: "Booked: {{result}}"
suspension_timeout: 60s
tools:
  - {name: seat, run: {native: seat}, audience: all}
"#;

fn is_suspension(n: u32) -> impl Fn(&EventData) -> bool {
    move |data| matches!(data, EventData::Suspension(suspension) if suspension.suspension == n)
}

#[tokio::test(start_paused = true)]
async fn an_answer_revives_the_call_on_another_node_with_what_was_asked() {
    let mut cluster = TestCluster::new(3, SEAT_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).poll_for_event("x", is_suspension(1)).await;
    let open = cluster.node(0).state("x").await.pending_calls().pop().unwrap();
    assert_eq!((open.kind, open.message.as_str()), (SuspensionKind::Elicitation, "Which seat?"));
    assert_eq!(open.requests, Some(json!({"seat": {"type": "string"}})));
    cluster.kill(0, DeathMode::ConnectionRefused);
    cluster.node(1).resolve("x", "c", ResolutionAnswer::Result(json!("12A"))).await.unwrap();
    assert_eq!(cluster.node(1).turn_end("x", 1).await, (TurnOutcome::Completed, None));
    let result = json!({"seat": "12A", "state": "asked by attempt 1", "attempt": 2});
    let events = cluster.node(2).journal("x").await;
    assert_eq!(results(&events, "c"), [json!({"ok": true, "result": result})]);
    cluster.node(1).check("x").await;
    cluster.check_writes();
}

#[tokio::test(start_paused = true)]
async fn a_tool_may_ask_again_and_is_told_of_a_refusal() {
    let node = TestNode::new(SEAT_AGENT).await;
    node.send("x", "go").await.unwrap();
    node.wait_for_event("x", is_suspension(1)).await;
    node.resolve("x", "c", ResolutionAnswer::Result(json!("again"))).await.unwrap();
    node.wait_for_event("x", is_suspension(2)).await;
    node.resolve("x", "c", ResolutionAnswer::Error("too dear".to_owned())).await.unwrap();
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    let refused = json!({"ok": false, "error": "no seat, no trip", "error_type": "TOOL_ERROR"});
    assert_eq!(results(&node.journal("x").await, "c"), [refused]);
    node.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_question_that_nobody_answers_expires() {
    let node = TestNode::new(SEAT_AGENT).await;
    node.send("x", "go").await.unwrap();
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    let late = json!({"ok": false, "error": "timed out: no response", "error_type": "EXPIRED"});
    assert_eq!(results(&node.journal("x").await, "c"), [late]);
}
