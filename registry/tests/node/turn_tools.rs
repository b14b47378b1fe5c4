//! Tools and context that come with a message hold for its turn, over kills, in the queue, and in no
//! other turn.

use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_actors::model::ModelRequest;
use abide_actors::request::{ForkRequest, Request, RequestError};
use abide_conversation::command::{IfBusy, ResolutionAnswer};
use abide_conversation::event::{EventData, SuspensionKind, TurnOutcome};
use abide_conversation::message::Message;
use abide_conversation::{ConversationId, Seq};
use serde_json::{Value, json};

use crate::test_cluster::{DeathMode, TestCluster};
use crate::test_node::{TestNode, results, user_message};

/// An agent without tools of its own whose model locates the user twice.
const LOCATING_AGENT: &str = r#"
name: a
client_grace: 5s
suspension_timeout: 10m
tools: [{name: own, description: Is the agent's., executor: human}]
model:
  provider: scripted
  script:
    - {calls: [{id: first, name: locate, args: {}}]}
    - {calls: [{id: second, name: locate, args: {}}]}
    - {text: Well.}
"#;
const NOON: &str = "It is noon.";

/// The message `text`, with a tool `locate` of the executor, and with a block of context.
fn locating(text: &str, executor: &str, if_busy: IfBusy) -> Request {
    let Request::Send(mut send) = user_message(text, if_busy) else { unreachable!() };
    let locate = json!({"name": "locate", "description": "Where are you?", "executor": executor,
        "result_schema": {"type": "string"}});
    send.tools = [locate].into();
    send.context = vec![json!({"type": "text", "text": NOON})];
    Request::Send(send)
}

fn here() -> ResolutionAnswer {
    ResolutionAnswer::Result(json!("here"))
}

fn unknown() -> Value {
    let error = "unknown tool: locate";
    json!({"ok": false, "error": error, "error_type": "TOOL_NOT_FOUND"})
}

/// Waits for the suspension of a call, without counting as a connected client. Returns its kind.
async fn suspension(node: &TestNode, id: &str, call: &str) -> SuspensionKind {
    let is_it =
        |data: &EventData| matches!(data, EventData::Suspension(it) if it.call_id.as_str() == call);
    match node.poll_for_event(id, is_it).await.data {
        EventData::Suspension(suspension) => suspension.kind,
        other => unreachable!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_turns_tool_waits_without_a_page_and_lives_on_after_kills() {
    let node = TestNode::new(LOCATING_AGENT).await;
    node.deliver("x", locating("go", "client", IfBusy::Reject)).await.unwrap();
    for name in ["first", "second"] {
        assert_eq!(suspension(&node, "x", name).await, SuspensionKind::ClientExec);
        node.kill("x").await;
        // Far longer than the grace of the agent's own client calls.
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(node.state("x").await.pending_calls().len(), 1);
        let wrong = node.resolve("x", name, ResolutionAnswer::Result(json!(7))).await;
        assert!(matches!(&wrong, Err(RequestError::Invalid { field, .. }) if field == "result"));
        node.kill("x").await;
        node.resolve("x", name, here()).await.unwrap();
    }
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    node.send("x", "again").await.unwrap();
    assert_eq!(node.turn_end("x", 2).await, (TurnOutcome::Completed, None));
    assert_eq!(results(&node.journal("x").await, "first~2"), [unknown()]);
    node.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_turns_tool_lives_on_on_another_node() {
    let mut cluster = TestCluster::new(2, LOCATING_AGENT).await;
    let message = locating("go", "client", IfBusy::Reject);
    cluster.node(0).deliver("x", message).await.unwrap();
    suspension(cluster.node(0), "x", "first").await;
    cluster.kill(0, DeathMode::ConnectionRefused);
    for name in ["first", "second"] {
        suspension(cluster.node(1), "x", name).await;
        let wrong = cluster.node(1).resolve("x", name, ResolutionAnswer::Result(json!(7))).await;
        assert!(matches!(&wrong, Err(RequestError::Invalid { field, .. }) if field == "result"));
        cluster.node(1).resolve("x", name, here()).await.unwrap();
    }
    assert_eq!(cluster.node(1).turn_end("x", 1).await, (TurnOutcome::Completed, None));
}

#[tokio::test(start_paused = true)]
async fn queued_messages_keep_their_own_tools() {
    let node = TestNode::new(LOCATING_AGENT).await;
    node.deliver("x", locating("go", "client", IfBusy::Reject)).await.unwrap();
    suspension(&node, "x", "first").await;
    node.deliver("x", locating("and", "human", IfBusy::Queue)).await.unwrap();
    node.deliver("x", user_message("then", IfBusy::Queue)).await.unwrap();
    node.kill("x").await;
    for (call, kind) in [
        ("first", SuspensionKind::ClientExec),
        ("second", SuspensionKind::ClientExec),
        ("first~2", SuspensionKind::Elicitation),
        ("second~2", SuspensionKind::Elicitation),
    ] {
        assert_eq!(suspension(&node, "x", call).await, kind, "{call}");
        node.resolve("x", call, here()).await.unwrap();
    }
    assert_eq!(node.turn_end("x", 3).await, (TurnOutcome::Completed, None));
    assert_eq!(results(&node.journal("x").await, "first~3"), [unknown()]);
    node.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_fork_of_an_open_turn_has_its_tools_in_no_later_turn() {
    let node = TestNode::new(LOCATING_AGENT).await;
    node.deliver("x", locating("go", "client", IfBusy::Reject)).await.unwrap();
    suspension(&node, "x", "first").await;
    node.deliver("x", locating("and", "human", IfBusy::Queue)).await.unwrap();
    let fork = ForkRequest { from: ConversationId::new("x"), at_seq: None::<Seq> };
    node.deliver("y", Request::Fork(fork)).await.unwrap();
    for n in [1, 2] {
        assert_eq!(node.turn_end("y", n).await.0, TurnOutcome::Cancelled);
    }
    node.send("y", "again").await.unwrap();
    assert_eq!(node.turn_end("y", 3).await, (TurnOutcome::Completed, None));
    assert_eq!(results(&node.journal("y").await, "first~2"), [unknown()]);
    node.check("y").await;
    node.resolve("x", "first", here()).await.unwrap();
    assert_eq!(suspension(&node, "x", "second").await, SuspensionKind::ClientExec);
}

/// The places of the context behind the messages that the next step sends again.
fn places_of_context(prompt: &ModelRequest) -> Vec<usize> {
    let added = prompt.messages.iter().skip(prompt.stable_messages).enumerate();
    let has_noon = |(at, message): (usize, &Message)| message.text().contains(NOON).then_some(at);
    let stable = prompt.messages.iter().take(prompt.stable_messages);
    assert!(stable.clone().all(|message| !message.text().contains(NOON)));
    added.filter_map(has_noon).collect()
}

#[tokio::test(start_paused = true)]
async fn a_turns_context_ends_each_of_its_prompts_and_no_other() {
    let node = TestNode::new(LOCATING_AGENT).await;
    node.model.record_prompts.store(true, Ordering::SeqCst);
    node.send("x", "before").await.unwrap();
    node.turn_end("x", 1).await;
    node.deliver("x", locating("go", "client", IfBusy::Reject)).await.unwrap();
    for call in ["first~2", "second~2"] {
        suspension(&node, "x", call).await;
        // The context is read from the journal again.
        node.kill("x").await;
        node.resolve("x", call, here()).await.unwrap();
    }
    node.turn_end("x", 2).await;
    node.send("x", "after").await.unwrap();
    node.turn_end("x", 3).await;
    let prompts = node.model.prompts.lock().unwrap().clone();
    let places: Vec<_> = prompts.iter().map(places_of_context).collect();
    assert_eq!(places, [&[][..], &[], &[], &[0], &[0], &[0], &[], &[], &[]]);
    for prompt in &prompts[3..6] {
        assert_eq!(prompt.messages.len(), prompt.stable_messages + 1);
        assert!(prompt.tools.iter().any(|tool| tool.name == "locate"));
    }
    assert!(prompts[6].tools.iter().all(|tool| tool.name != "locate"));
}

#[tokio::test(start_paused = true)]
async fn the_name_of_an_agents_tool_is_refused_and_changes_nothing() {
    let node = TestNode::new(LOCATING_AGENT).await;
    let Request::Send(mut send) = locating("go", "client", IfBusy::Reject) else { unreachable!() };
    let own = json!({"name": "own", "description": "Is another.", "executor": "client"});
    send.tools = [send.tools[0].clone(), own].into();
    let refused = node.deliver("x", Request::Send(send)).await;
    let field = "tools[1].name";
    assert!(matches!(&refused, Err(RequestError::Invalid { field: it, .. }) if it == field));
    assert!(node.journal("x").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_turns_tools_take_tokens_of_their_conversation_and_of_no_other() {
    let agent =
        LOCATING_AGENT.replace("{calls: [{id: first, name: locate, args: {}}]}", "{text: Hi.}");
    let node = TestNode::new(&agent).await;
    let tokens = async |id: &str, request| {
        node.deliver(id, request).await.unwrap();
        node.turn_end(id, 1).await;
        node.state(id).await.context.tokens
    };
    let with_tool = || locating("go", "client", IfBusy::Reject);
    let without = || user_message("go", IfBusy::Reject);
    let first = tokens("a", with_tool()).await;
    let alone = tokens("b", without()).await;
    assert!(first > alone + 10 && alone > 10, "{first} {alone}");
    assert_eq!(tokens("c", with_tool()).await, first);
    assert_eq!(tokens("d", without()).await, alone);
}
