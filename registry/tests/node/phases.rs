//! Permission phases and to-do lists, as a conversation keeps them.

use std::time::Duration;

use abide_actors::snapshot::Snapshot;
use abide_conversation::Scoped;
use abide_conversation::command::ResolutionAnswer;
use abide_conversation::event::{Event, EventData, TodoStatus, TurnOutcome};
use abide_conversation::permission::PermissionPhase;
use serde_json::{Value, json};

use crate::sub_agents::{inbox, suspended};
use crate::test_cluster::{DeathMode, TestCluster};
use crate::test_node::{TestNode, results};

/// An agent whose calls depend on the first words of the user's text.
fn agent(permissions: &str) -> String {
    let calls = |calls: Value| json!({"steps": [{"calls": calls}, {"text": "Well."}]});
    let rule = |word: &str, given: Value| {
        let mut rule = calls(given);
        rule["when"] = json!(format!("^{word}"));
        rule
    };
    let echo = json!({"id": "e", "name": "echo", "args": {"n": 1}});
    let plan = |action: &str| {
        let args = json!({"action": action, "reason": "the plan"});
        json!({"id": "p", "name": "plan_mode", "args": args})
    };
    let todos = |todos: Value| json!({"id": "t", "name": "todo_write", "args": {"todos": todos}});
    let script = json!([
        rule("enter and echo", json!([plan("enter"), echo])),
        rule("echo and enter", json!([echo, plan("enter")])),
        rule("enter", json!([plan("enter")])),
        rule("exit", json!([plan("exit")])),
        rule("echo", json!([echo])),
        rule("edit", json!([{"id": "w", "name": "write", "args": {"path": "a", "content": "b"}}])),
        rule("pay", json!([{"id": "y", "name": "pay", "args": {"n": 1}}])),
        rule(
            "todo",
            json!([todos(json!([
                {"content": "first", "status": "in_progress"},
                {"content": "second", "status": "pending"},
            ]))])
        ),
        rule("done", json!([todos(json!([{"content": "second", "status": "completed"}]))])),
        rule("clear", json!([todos(json!([]))])),
    ]);
    let permissions: Value = serde_json::from_str(permissions).unwrap();
    json!({
        "name": "a",
        "permissions": permissions,
        "model": {"provider": "scripted", "script": script},
        "tools": [
            {"builtin": ["plan_mode", "todo_write"]},
            {"name": "write", "run": {"builtin": "write"}, "approval": "requires_approval"},
            {"name": "echo", "run": {"native": "echo"}},
            {"name": "pay", "run": {"native": "echo"}, "approval": "requires_approval"},
        ],
    })
    .to_string()
}

/// A person who sends one text per turn to one conversation.
struct Dialogue<'a> {
    node: &'a TestNode,
    turns: usize,
}

impl<'a> Dialogue<'a> {
    fn with(node: &'a TestNode) -> Self {
        Self { node, turns: 0 }
    }

    /// Sends a text, and waits until its turn has ended. Returns the events of the turn.
    async fn say(&mut self, word: &str) -> Vec<Event> {
        let before = self.node.journal("x").await.len();
        self.node.send("x", word).await.unwrap();
        self.turns += 1;
        assert_eq!(self.node.turn_end("x", self.turns).await, (TurnOutcome::Completed, None));
        self.node.journal("x").await.split_off(before)
    }

    /// Whether the gate lets `echo` run now.
    async fn may_echo(&mut self) -> bool {
        let events = self.say("echo").await;
        let call = events.iter().find_map(|event| match &event.data {
            EventData::ToolCall(call) => Some(call.call_id.clone()),
            _ => None,
        });
        results(&events, call.unwrap().as_str())[0]["ok"] == true
    }
}

async fn snapshot(node: &TestNode) -> Snapshot {
    node.conversations.snapshot(&Scoped::parse("x").unwrap()).await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn planning_begins_with_the_call_for_those_after_it_in_the_same_message() {
    for (words, ran) in [("enter and echo", false), ("echo and enter", true)] {
        let node = TestNode::new(&agent("{}")).await;
        let events = Dialogue::with(&node).say(words).await;
        let echoed = &results(&events, "e")[0];
        assert_eq!(echoed["ok"], ran, "{words}");
        if !ran {
            assert_eq!(echoed["error"], "permission denied: echo is refused by phase: plan");
        }
        assert_eq!(results(&events, "p")[0]["result"], "entered plan mode");
        node.check("x").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_the_model_began_ends_when_the_model_says_so() {
    let node = TestNode::new(&agent("{}")).await;
    let mut dialogue = Dialogue::with(&node);
    assert!(dialogue.may_echo().await);
    dialogue.say("enter").await;
    assert!(!dialogue.may_echo().await);
    let events = dialogue.say("exit").await;
    let changed = events.iter().find_map(|event| match &event.data {
        EventData::PhaseChanged(changed) => Some((changed.phase, changed.planning)),
        _ => None,
    });
    assert_eq!(changed, Some((PermissionPhase::Default, false)));
    assert!(dialogue.may_echo().await);
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_the_agent_began_in_ends_with_an_approval() {
    let node = TestNode::new(&agent(r#"{"phase": "plan"}"#)).await;
    let mut dialogue = Dialogue::with(&node);
    assert!(!dialogue.may_echo().await);
    for (approved, phase) in [(false, PermissionPhase::Plan), (true, PermissionPhase::Default)] {
        node.send("x", "exit").await.unwrap();
        dialogue.turns += 1;
        while inbox(&node).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let open = inbox(&node).await.remove(0).pending;
        assert_eq!((open.tool.as_str(), &open.args["reason"]), ("plan_mode", &json!("the plan")));
        assert_eq!(snapshot(&node).await.phase, Some(PermissionPhase::Plan));
        let answer = ResolutionAnswer::Approval { approved, reason: None, args: None };
        node.resolve("x", open.call_id.as_str(), answer).await.unwrap();
        node.turn_end("x", dialogue.turns).await;
        assert_eq!(snapshot(&node).await.phase, Some(phase));
        assert_eq!(dialogue.may_echo().await, approved);
    }
    // The definition begins in plan mode, so leaving it needs an approval even when the model
    // entered it.
    dialogue.say("enter").await;
    node.send("x", "exit").await.unwrap();
    while inbox(&node).await.is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_phase_survives_a_kill_and_passivation() {
    let node = TestNode::new(&agent(r#"{"phase": "trusted"}"#)).await;
    let mut dialogue = Dialogue::with(&node);
    dialogue.say("enter").await;
    node.kill("x").await;
    assert!(!dialogue.may_echo().await);
    node.wait_until_passivated("x").await;
    assert_eq!(snapshot(&node).await.phase, Some(PermissionPhase::Plan));
    assert!(!dialogue.may_echo().await);
    dialogue.say("exit").await;
    node.wait_until_passivated("x").await;
    assert_eq!(snapshot(&node).await.phase, Some(PermissionPhase::Trusted));
    assert!(dialogue.may_echo().await);
    node.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn the_phase_and_the_list_go_with_the_conversation_to_another_node() {
    let mut cluster = TestCluster::new(3, &agent("{}")).await;
    let mut dialogue = Dialogue::with(cluster.node(0));
    dialogue.say("todo").await;
    dialogue.say("enter").await;
    let turns = dialogue.turns;
    assert_eq!(cluster.live_on("x"), [0]);
    cluster.kill(0, DeathMode::ConnectionRefused);
    let there = cluster.node(1);
    let mut dialogue = Dialogue { node: there, turns };
    assert!(!dialogue.may_echo().await);
    assert_eq!(cluster.live_on("x"), [1]);
    let snapshot = snapshot(there).await;
    assert_eq!((snapshot.phase, snapshot.todos.len()), (Some(PermissionPhase::Plan), 2));
}

#[tokio::test(start_paused = true)]
async fn a_phase_waives_only_the_approvals_that_it_may() {
    for (permissions, running, suspending) in [
        (r#"{"phase": "default"}"#, vec!["echo"], vec!["edit", "pay"]),
        (r#"{"phase": "accept_edits"}"#, vec!["echo", "edit"], vec!["pay"]),
        (r#"{"phase": "trusted"}"#, vec!["echo", "edit", "pay"], vec![]),
        (r#"{"phase": "bypass_permissions"}"#, vec!["echo", "edit", "pay"], vec![]),
        // The lists still hold; a denial by a list asks nobody.
        (
            r#"{"phase": "bypass_permissions", "disallowed_tools": ["pay"]}"#,
            vec!["echo", "edit", "pay"],
            vec![],
        ),
    ] {
        for word in running {
            let node = TestNode::new(&agent(permissions)).await;
            Dialogue::with(&node).say(word).await;
            let suspending = |event: &Event| matches!(event.data, EventData::Suspension(_));
            assert!(!node.journal("x").await.iter().any(suspending), "{permissions}: {word}");
            let denied = |event: &Event| match &event.data {
                EventData::ToolResult(result) => !result.outcome.is_ok() && word == "pay",
                _ => false,
            };
            let denied = node.journal("x").await.iter().any(denied);
            assert_eq!(denied, word == "pay" && permissions.contains("disallowed"), "{word}");
        }
        for word in suspending {
            let node = TestNode::new(&agent(permissions)).await;
            node.send("x", word).await.unwrap();
            suspended(&node, "x").await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_todo_list_is_replaced_whole_and_survives_a_kill() {
    let node = TestNode::new(&agent("{}")).await;
    let mut dialogue = Dialogue::with(&node);
    let events = dialogue.say("todo").await;
    let changed = results(&events, "t")[0]["result"].clone();
    assert_eq!(changed, "[~] first\n[ ] second");
    let changed = events.iter().find_map(|event| match &event.data {
        EventData::TodosChanged(changed) => Some((event.seq, changed.todos.clone())),
        _ => None,
    });
    let (seq, todos) = changed.unwrap();
    assert!(
        matches!(
            events.iter().find(|event| event.seq == seq.next()).map(|event| &event.data),
            Some(EventData::ToolResult(_))
        ),
        "the list was not committed together with its result"
    );
    assert_eq!(snapshot(&node).await.todos, todos);
    dialogue.say("done").await;
    node.kill("x").await;
    let remaining = snapshot(&node).await.todos;
    let remaining: Vec<_> =
        remaining.iter().map(|todo| (todo.content.as_str(), todo.status)).collect();
    assert_eq!(remaining, [("second", TodoStatus::Completed)]);
    node.wait_until_passivated("x").await;
    assert_eq!(snapshot(&node).await.todos.len(), 1);
    dialogue.say("clear").await;
    assert_eq!(snapshot(&node).await.todos, []);
    node.check("x").await;
}
