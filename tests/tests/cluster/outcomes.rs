//! The four outcomes of a tool, called by a model or by a user.

use abide_tests::client::{Answer, Client};
use abide_tests::node::Site;
use abide_tests::tool_server::ToolServer;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::{able, agent, call, http, steps};
use crate::tools::sub_agent;

/// The four answers of an HTTP tool, each with its result and its UI.
fn http_outcomes() -> [(&'static str, Value, Value, Value); 4] {
    let ui = json!({"kind": "map", "payload": [1, 2]});
    let error = json!({"ok": false, "error": "no", "error_type": "TOOL_ERROR"});
    [
        ("value", json!({"x": 1}), json!({"ok": true, "result": {"x": 1}}), Value::Null),
        (
            "ui",
            json!({"ok": true, "result": "r", "ui": ui}),
            json!({"ok": true, "result": "r"}),
            ui,
        ),
        ("error", json!({"ok": false, "error": "no"}), error, Value::Null),
        (
            "halt",
            json!({"ok": true, "result": "r", "halt": "enough"}),
            json!({"ok": true, "result": "r"}),
            Value::Null,
        ),
    ]
}

#[tokio::test]
async fn a_tool_over_http_answers_shows_fails_or_ends_the_turn() {
    let (site, tools) = (Site::new(ABIDE), ToolServer::start().await);
    let _node = site.start().await;
    for (name, answer, result, ui) in http_outcomes() {
        let model = steps(&[vec![call("it", "echo", answer)]]);
        let echo = http("echo", &tools, "/echo", json!({}));
        site.client.define(name, &agent(model, vec![echo])).await;
        let new = json!({"id": name, "agent": name});
        site.client.post("/v1/conversations", &new).await.expect(201);
        let mut frames = site.client.events(name, None).await;
        site.client.send_message(name, name, "go").await;
        let last = if name == "halt" { "turn_halted" } else { "turn_completed" };
        let read = frames.wait_for(last).await;
        let frame = |name: &str| read.iter().position(|frame| frame.name == name);
        let ended = if name == "error" { "tool_call_errored" } else { "tool_call_resolved" };
        let ended = frame(ended).unwrap();
        assert_eq!(read[ended].data, json!({"call_id": "it", "result": result}));
        assert_eq!(frame("tool_ui"), (name == "ui").then_some(ended + 1), "{name}");
        let journal = site.client.wait_until_settled(name, 1).await;
        assert_eq!(journal.result("it")["ui"], ui);
        if name == "halt" {
            assert_eq!(read.last().unwrap().data["reason"], "enough");
            assert_eq!(journal.of("assistant_msg").count(), 1, "the model is not asked again");
        }
    }
}

async fn dispatch(client: &Client, tool: &str, input: Value) -> Answer {
    let body = json!({"tool": tool, "input": input});
    client.post("/v1/conversations/c/dispatch", &body).await
}

#[tokio::test]
async fn a_user_calls_every_kind_of_tool_and_is_answered_as_a_model_is() {
    let (site, tools) = (Site::new(ABIDE), ToolServer::start().await);
    let _node = site.start().await;
    let mut definition = able(steps(&[]));
    let echo = http("echo", &tools, "/echo", json!({}));
    definition["tools"].as_array_mut().unwrap().push(echo);
    site.client.define("kid", &sub_agent()).await;
    site.client.define("a", &definition).await;
    site.client.post("/v1/conversations", &json!({"id": "c", "agent": "a"})).await.expect(201);
    for (_, answer, mut result, ui) in http_outcomes() {
        if !ui.is_null() {
            result["ui"] = ui;
        }
        assert_eq!(dispatch(&site.client, "echo", answer).await.expect(200), result);
    }
    let url = tools.url("/echo");
    let todos = json!([{"content": "look", "status": "pending"}]);
    for (tool, input, result, ui_kind) in [
        ("write", json!({"path": "a", "content": "b\n"}), "wrote 2 bytes to a", None),
        ("read", json!({"path": "a"}), "1\tb", Some("file")),
        (
            "edit",
            json!({"path": "a", "old_string": "b", "new_string": "c"}),
            "edited a (1 replacement)",
            Some("diff"),
        ),
        ("glob", json!({"pattern": "*"}), "a", Some("matches")),
        ("grep", json!({"pattern": "c"}), "a:1:c", Some("matches")),
        ("bash", json!({"command": "cat a"}), "exit 0\nc\n", Some("process")),
        ("web_fetch", json!({"url": url}), "null", Some("webpage")),
        ("todo_write", json!({"todos": todos}), "[ ] look", None),
        ("spawn_agent", json!({"agent": "kid", "prompt": "hi"}), "kid heard hi", Some("subagent")),
        ("plan_mode", json!({"action": "enter"}), "entered plan mode", None),
    ] {
        let answer = dispatch(&site.client, tool, input).await.expect(200);
        assert_eq!((&answer["ok"], &answer["result"]), (&json!(true), &json!(result)), "{tool}");
        assert_eq!(answer["ui"]["kind"].as_str(), ui_kind, "{tool}");
    }
    let after = site.client.snapshot("c").await;
    assert_eq!((&after["todos"], &after["phase"]), (&todos, &json!("plan")));
    let refused = dispatch(&site.client, "bash", json!({"command": "rm a"})).await.expect(200);
    assert_eq!(refused["error_type"], "PERMISSION_DENIED", "{refused}");
    let wrong = dispatch(&site.client, "read", json!({"path": "no"})).await.expect(200);
    assert_eq!(wrong, json!({"ok": false, "error": "enoent", "error_type": "TOOL_ERROR"}));
    let journal = site.client.journal("c").await;
    journal.assert_settled();
    assert_eq!((journal.of("dispatch").count(), journal.of("turn_started").count()), (16, 0));
}
