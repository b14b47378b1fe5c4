//! Phases and the list of what is to be done, as they are kept.

use std::time::Duration;

use abide_actors::snapshot::Snapshot;
use abide_conversation::ConversationId;
use abide_conversation::command::ResolutionAnswer;
use abide_conversation::event::{Event, EventData, TodoStatus, TurnOutcome};
use abide_conversation::permission::PermissionPhase;
use serde_json::{Value, json};

use crate::sub_agents::{inbox, suspended};
use crate::test_cluster::{DeathMode, TestCluster};
use crate::test_node::{TestNode, results};

/// Does what it is told by one word.
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

/// A person's words, one turn each, in one conversation.
struct Talk<'a> {
    node: &'a TestNode,
    turns: usize,
}

impl<'a> Talk<'a> {
    fn with(node: &'a TestNode) -> Self {
        Self { node, turns: 0 }
    }

    /// Says a word, and waits until its turn has ended. Returns what it added to the journal.
    async fn say(&mut self, word: &str) -> Vec<Event> {
        let before = self.node.journal("x").await.len();
        self.node.send("x", word).await.unwrap();
        self.turns += 1;
        assert_eq!(self.node.turn_end("x", self.turns).await, (TurnOutcome::Completed, None));
        self.node.journal("x").await.split_off(before)
    }

    /// Whether `echo` may run now.
    async fn may_echo(&mut self) -> bool {
        let events = self.say("echo").await;
        let call = events.iter().find_map(|event| match &event.data {
            EventData::ToolCall(call) => Some(call.call_id.clone()),
            _ => None,
        });
        results(&events, call.unwrap().as_str())[0]["ok"] == true
    }
}

async fn seen(node: &TestNode) -> Snapshot {
    node.conversations.snapshot(&ConversationId::new("x")).await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn planning_begins_with_the_call_for_those_after_it_in_the_same_message() {
    for (words, ran) in [("enter and echo", false), ("echo and enter", true)] {
        let node = TestNode::new(&agent("{}")).await;
        let events = Talk::with(&node).say(words).await;
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
    let mut talk = Talk::with(&node);
    assert!(talk.may_echo().await);
    talk.say("enter").await;
    assert!(!talk.may_echo().await);
    let events = talk.say("exit").await;
    let changed = events.iter().find_map(|event| match &event.data {
        EventData::PhaseChanged(changed) => Some((changed.phase, changed.planning)),
        _ => None,
    });
    assert_eq!(changed, Some((PermissionPhase::Default, false)));
    assert!(talk.may_echo().await);
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_the_agent_began_in_ends_with_an_approval() {
    let node = TestNode::new(&agent(r#"{"phase": "plan"}"#)).await;
    let mut talk = Talk::with(&node);
    assert!(!talk.may_echo().await);
    for (approved, phase) in [(false, PermissionPhase::Plan), (true, PermissionPhase::Default)] {
        node.send("x", "exit").await.unwrap();
        talk.turns += 1;
        while inbox(&node).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let open = inbox(&node).await.remove(0).pending;
        assert_eq!((open.tool.as_str(), &open.args["reason"]), ("plan_mode", &json!("the plan")));
        assert_eq!(seen(&node).await.phase, Some(PermissionPhase::Plan));
        let answer = ResolutionAnswer::Approval { approved, reason: None, args: None };
        node.resolve("x", open.call_id.as_str(), answer).await.unwrap();
        node.turn_end("x", talk.turns).await;
        assert_eq!(seen(&node).await.phase, Some(phase));
        assert_eq!(talk.may_echo().await, approved);
    }
    // What it enters by itself is an agent's that began so: it needs the approval again.
    talk.say("enter").await;
    node.send("x", "exit").await.unwrap();
    while inbox(&node).await.is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_phase_survives_a_kill_and_passivation() {
    let node = TestNode::new(&agent(r#"{"phase": "trusted"}"#)).await;
    let mut talk = Talk::with(&node);
    talk.say("enter").await;
    node.kill("x").await;
    assert!(!talk.may_echo().await);
    node.wait_until_passivated("x").await;
    assert_eq!(seen(&node).await.phase, Some(PermissionPhase::Plan));
    assert!(!talk.may_echo().await);
    talk.say("exit").await;
    node.wait_until_passivated("x").await;
    assert_eq!(seen(&node).await.phase, Some(PermissionPhase::Trusted));
    assert!(talk.may_echo().await);
    node.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn the_phase_and_the_list_go_with_the_conversation_to_another_node() {
    let mut cluster = TestCluster::new(3, &agent("{}")).await;
    let mut talk = Talk::with(cluster.node(0));
    talk.say("todo").await;
    talk.say("enter").await;
    let turns = talk.turns;
    assert_eq!(cluster.live_on("x"), [0]);
    cluster.kill(0, DeathMode::ConnectionRefused);
    let there = cluster.node(1);
    let mut talk = Talk { node: there, turns };
    assert!(!talk.may_echo().await);
    assert_eq!(cluster.live_on("x"), [1]);
    let seen = seen(there).await;
    assert_eq!((seen.phase, seen.todos.len()), (Some(PermissionPhase::Plan), 2));
}

#[tokio::test(start_paused = true)]
async fn a_phase_waives_only_the_approvals_that_it_may() {
    for (permissions, unasked, asked) in [
        (r#"{"phase": "default"}"#, vec!["echo"], vec!["edit", "pay"]),
        (r#"{"phase": "accept_edits"}"#, vec!["echo", "edit"], vec!["pay"]),
        (r#"{"phase": "trusted"}"#, vec!["echo", "edit", "pay"], vec![]),
        (r#"{"phase": "bypass_permissions"}"#, vec!["echo", "edit", "pay"], vec![]),
        // The lists still hold, and are no question.
        (
            r#"{"phase": "bypass_permissions", "disallowed_tools": ["pay"]}"#,
            vec!["echo", "edit", "pay"],
            vec![],
        ),
    ] {
        for word in unasked {
            let node = TestNode::new(&agent(permissions)).await;
            Talk::with(&node).say(word).await;
            let asked = |event: &Event| matches!(event.data, EventData::Suspension(_));
            assert!(!node.journal("x").await.iter().any(asked), "{permissions}: {word}");
            let denied = |event: &Event| match &event.data {
                EventData::ToolResult(result) => !result.outcome.is_ok() && word == "pay",
                _ => false,
            };
            let denied = node.journal("x").await.iter().any(denied);
            assert_eq!(denied, word == "pay" && permissions.contains("disallowed"), "{word}");
        }
        for word in asked {
            let node = TestNode::new(&agent(permissions)).await;
            node.send("x", word).await.unwrap();
            suspended(&node, "x").await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_todo_list_is_replaced_whole_and_survives_a_kill() {
    let node = TestNode::new(&agent("{}")).await;
    let mut talk = Talk::with(&node);
    let events = talk.say("todo").await;
    let told = results(&events, "t")[0]["result"].clone();
    assert_eq!(told, "[~] first\n[ ] second");
    let listed = events.iter().find_map(|event| match &event.data {
        EventData::TodosChanged(changed) => Some((event.seq, changed.todos.clone())),
        _ => None,
    });
    let (seq, todos) = listed.unwrap();
    assert!(
        matches!(
            events.iter().find(|event| event.seq == seq + 1).map(|event| &event.data),
            Some(EventData::ToolResult(_))
        ),
        "in the commit of its result"
    );
    assert_eq!(seen(&node).await.todos, todos);
    talk.say("done").await;
    node.kill("x").await;
    let left = seen(&node).await.todos;
    let left: Vec<_> = left.iter().map(|todo| (todo.content.as_str(), todo.status)).collect();
    assert_eq!(left, [("second", TodoStatus::Completed)]);
    node.wait_until_passivated("x").await;
    assert_eq!(seen(&node).await.todos.len(), 1);
    talk.say("clear").await;
    assert_eq!(seen(&node).await.todos, []);
    node.check("x").await;
}
