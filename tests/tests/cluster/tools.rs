//! The ten built-in tools, as readers of the event stream see them.

use abide_tests::frames::{Frame, ids};
use abide_tests::node::Site;
use abide_tests::tool_server::ToolServer;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::{able, agent, call, steps};

/// A sub-agent that repeats its prompt.
pub(crate) fn sub_agent() -> Value {
    agent(json!({"provider": "scripted", "script": [{"text": "kid heard {{ user }}"}]}), vec![])
}

/// The frame of the call's result, and the frame right after it.
pub(crate) fn end_of<'f>(frames: &'f [Frame], call: &str) -> (&'f Frame, &'f Frame) {
    let ends = |frame: &Frame| ["tool_call_resolved", "tool_call_errored"].contains(&&*frame.name);
    let of_call = |frame: &Frame| ends(frame) && frame.data["call_id"] == call;
    let found: Vec<usize> = (0..frames.len()).filter(|at| of_call(&frames[*at])).collect();
    assert_eq!(found.len(), 1, "results of {call} in {frames:#?}");
    (&frames[found[0]], &frames[found[0] + 1])
}

/// The frames of journalled events, without those that are only live.
fn mirrors(frames: &[Frame]) -> Vec<Frame> {
    let live = ["snapshot", "state_changed", "text_delta", "thinking_delta", "tool_progress"];
    frames.iter().filter(|frame| !live.contains(&frame.name.as_str())).cloned().collect()
}

/// A call of each tool, its result for the model, and its UI for people.
fn calls_of_all_tools(tools: &ToolServer) -> Vec<(Value, &'static str, Value)> {
    let matches = |pattern, item| json!({"kind": "matches", "payload": {"pattern": pattern, "count": 1, "items": [item]}});
    let url = tools.url("/echo");
    let path = "src/a.txt";
    let file = json!({"path": path, "content": "one\ntwo", "line_range": null});
    let diff =
        json!({"path": path, "before": "one\ntwo\n", "after": "one\n2\n", "replacements": 1});
    let shell = json!({"command": "cat src/a.txt; echo no >&2; exit 3"});
    let process = json!({"command": shell["command"], "exit_code": 3, "stdout": "one\n2\nno\n"});
    let todos = json!([{"content": "look", "status": "completed"},
        {"content": "write", "status": "in_progress"}, {"content": "rest", "status": "pending"}]);
    let subagent = json!({"iterations": 1, "tool_calls_made": 0, "cost_usd": null,
        "isolation": "shared"});
    let ui = |kind, payload: Value| json!({"kind": kind, "payload": payload});
    vec![
        (
            call("write", "write", json!({"path": path, "content": "one\ntwo\n"})),
            "wrote 8 bytes to src/a.txt",
            Value::Null,
        ),
        (call("read", "read", json!({"path": path})), "1\tone\n2\ttwo", ui("file", file)),
        (
            call("edit", "edit", json!({"path": path, "old_string": "two", "new_string": "2"})),
            "edited src/a.txt (1 replacement)",
            ui("diff", diff),
        ),
        (call("glob", "glob", json!({"pattern": "**/*.txt"})), path, matches("**/*.txt", path)),
        (
            call("grep", "grep", json!({"pattern": "^\\d$"})),
            "src/a.txt:2:2",
            matches("^\\d$", "src/a.txt:2:2"),
        ),
        (call("bash", "bash", shell), "exit 3\none\n2\nno\n", ui("process", process)),
        (
            call("web_fetch", "web_fetch", json!({"url": url})),
            "null",
            ui("webpage", json!({"url": url, "status": 200, "truncated": false})),
        ),
        (
            call("todo_write", "todo_write", json!({"todos": todos})),
            "[x] look\n[~] write\n[ ] rest",
            Value::Null,
        ),
        (
            call("spawn_agent", "spawn_agent", json!({"agent": "kid", "prompt": "hello"})),
            "kid heard hello",
            ui("subagent", subagent),
        ),
        (
            call("plan_mode", "plan_mode", json!({"action": "enter", "reason": "first look"})),
            "entered plan mode",
            Value::Null,
        ),
    ]
}

/// Fails unless the UI is the expected one, except for the duration and the child's id.
fn assert_ui(ui: &Value, expected: &Value) {
    let mut ui = ui.clone();
    let payload = ui["payload"].as_object_mut().unwrap();
    if ["process", "subagent"].contains(&expected["kind"].as_str().unwrap()) {
        assert!(payload.remove("duration_ms").unwrap().is_u64());
    }
    if expected["kind"] == "subagent" {
        assert!(payload.remove("subagent_id").unwrap().is_string());
    }
    assert_eq!(ui, *expected);
}

#[tokio::test]
async fn each_built_in_tool_answers_and_what_it_shows_comes_right_after_its_result() {
    let (site, tools) = (Site::new(ABIDE), ToolServer::start().await);
    let _node = site.start().await;
    let expected = calls_of_all_tools(&tools);
    let calls: Vec<Vec<Value>> = expected.iter().map(|(call, ..)| vec![call.clone()]).collect();
    site.client.define("kid", &sub_agent()).await;
    site.client.define("a", &able(steps(&calls))).await;
    site.client.post("/v1/conversations", &json!({"id": "c", "agent": "a"})).await.expect(201);
    let mut frames = site.client.events("c", None).await;
    site.client.send_message("c", "a", "go").await;
    let read = frames.wait_for("turn_completed").await;
    let journal = site.client.wait_until_settled("c", 1).await;
    for (call, text, ui) in &expected {
        let name = call["name"].as_str().unwrap();
        let (ended, next) = end_of(&read, name);
        assert_eq!(ended.data["result"], json!({"ok": true, "result": text}), "{name}");
        assert_eq!(journal.result(name)["result"], *text);
        if ui.is_null() {
            assert_ne!(next.name, "tool_ui", "{name}");
            assert_eq!(journal.result(name)["ui"], Value::Null);
        } else {
            assert_eq!((next.name.as_str(), &next.data["call_id"]), ("tool_ui", &call["id"]));
            assert_ui(&json!({"kind": next.data["kind"], "payload": next.data["payload"]}), ui);
            assert_ui(&journal.result(name)["ui"], ui);
        }
    }
    assert_eq!(ids(&read), journal.mirrored());
    for after in [0].into_iter().chain(ids(&read)).filter(|id| *id < *ids(&read).last().unwrap()) {
        let again = site.client.events("c", Some(after)).await.wait_for("turn_completed").await;
        let missed = |frame: &Frame| frame.id.is_some_and(|id| id > after);
        let first = read.iter().position(missed).unwrap();
        let all = mirrors(&read);
        let received = mirrors(&again);
        assert!(all.ends_with(&received), "after {after}: {received:#?}");
        let count = mirrors(&read[first..]).len();
        assert!(received.len() >= count, "after {after}: {received:#?}");
    }
}

#[tokio::test]
async fn the_list_and_the_phase_are_frames_and_in_the_snapshot_also_after_a_kill() {
    let site = Site::new(ABIDE);
    let node = site.start().await;
    let todos = json!([{"content": "look", "status": "pending"}]);
    let calls = [
        vec![call("todo", "todo_write", json!({"todos": todos}))],
        vec![call("enter", "plan_mode", json!({"action": "enter"}))],
        vec![call("write", "write", json!({"path": "a", "content": "b"}))],
    ];
    site.client.define("a", &able(steps(&calls))).await;
    site.client.post("/v1/conversations", &json!({"id": "c", "agent": "a"})).await.expect(201);
    let mut frames = site.client.events("c", None).await;
    let before = frames.next().await.unwrap().data;
    assert_eq!((&before["todos"], &before["phase"]), (&json!([]), &json!("default")));
    site.client.send_message("c", "a", "go").await;
    let read = frames.wait_for("turn_completed").await;
    let frame = |name: &str| read.iter().find(|frame| frame.name == name).unwrap();
    assert_eq!(frame("todos_changed").data, json!({"todos": todos}));
    assert_eq!(frame("phase_changed").data, json!({"phase": "plan"}));
    let refused = &end_of(&read, "write").0.data["result"];
    assert_eq!(refused["error_type"], "PERMISSION_DENIED", "{refused}");
    assert!(refused["error"].as_str().unwrap().starts_with("permission denied: "), "{refused}");
    node.kill().await;

    let _node = site.start().await;
    let after = site.client.snapshot("c").await;
    assert_eq!((&after["todos"], &after["phase"]), (&todos, &json!("plan")));
}
