//! `tool_call_delta`: arguments while the model writes them.

use serde_json::{Value, json};

use crate::api::Api;
use crate::stream::Frame;

/// The frames of the first turn of an agent whose model calls each of these tools with the arguments,
/// up to this one.
async fn frames(tools: Value, hooks: Value, args: &Value, until: &str) -> Vec<Frame> {
    let api = Api::start().await;
    let call = |tool: &Value| json!({"name": tool["name"], "args": args});
    let calls: Vec<Value> = tools.as_array().unwrap().iter().map(call).collect();
    let script = json!([{"text": "I ask.", "calls": calls, "stream_args": true}]);
    let model = json!({"provider": "scripted", "script": script});
    let agent = json!({"model": model, "tools": tools, "hooks": hooks});
    assert_eq!(api.put("/v1/agents/a", agent).await.status, 201);
    let new = json!({"id": "c", "agent": "a"});
    assert_eq!(api.post("/v1/conversations", new).await.status, 201);
    let mut stream = api.stream("/v1/conversations/c/events").await;
    let sent = api.post("/v1/conversations/c/messages", json!({"text": "go"})).await;
    assert_eq!(sent.status, 202);
    stream.all_until(until).await
}

fn deltas(frames: &[Frame]) -> Vec<&Frame> {
    frames.iter().filter(|frame| frame.event == "tool_call_delta").collect()
}

#[tokio::test]
async fn arguments_are_shown_while_they_are_written() {
    let args = json!({"text": "Grüße aus dem Süden", "n": [1, 2.5]});
    let tools = json!([
        {"name": "ask", "description": "Asks.", "executor": "human"},
        {"name": "send", "description": "Sends.", "approval": "requires_approval",
            "run": {"http": {"url": "http://127.0.0.1:9"}}},
        {"name": "locate", "description": "Locates.", "executor": "client"},
    ]);
    let frames = frames(tools.clone(), json!([]), &args, "message_completed").await;
    let message = &frames.last().unwrap().data["message"];
    let deltas = deltas(&frames);
    for (index, tool) in tools.as_array().unwrap().iter().enumerate() {
        let own: Vec<_> = deltas.iter().filter(|it| it.data["index"] == index).collect();
        assert_eq!(own[0].data["name"], tool["name"]);
        assert!(own.len() > 3 && own[1..].iter().all(|it| it.data["name"].is_null()), "{own:?}");
        let text: String = own.iter().map(|it| it.data["args_text"].as_str().unwrap()).collect();
        let call = &message["tool_calls"][index];
        assert_eq!((&call["name"], &call["args"]), (&tool["name"], &args));
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), args);
    }
    for delta in deltas {
        assert_eq!((&delta.data["message_id"], delta.id), (&message["id"], None));
        assert!(delta.data["call_id"].is_null(), "nothing tells which call it is: {delta:?}");
    }
}

#[tokio::test]
async fn no_arguments_are_shown_that_somebody_may_hold_back() {
    let args = json!({"secret": "hush"});
    let client = |name: &str, approval: Value| json!({"name": name, "description": "x", "executor": "client", "approval": approval});
    let gated = json!([
        client("gated", json!("requires_approval")),
        client("perhaps", json!({"when": "args.secret == 'x'"})),
    ]);
    let human = json!([{"name": "ask", "description": "Asks.", "executor": "human"}]);
    let hook = |on: &str| json!([{"name": "h", "on": on, "http": {"url": "http://127.0.0.1:9"}}]);
    for (tools, hooks) in
        [(gated, json!([])), (human.clone(), hook("PreToolUse")), (human, hook("stream"))]
    {
        let frames = frames(tools.clone(), hooks.clone(), &args, "message_completed").await;
        assert!(deltas(&frames).is_empty(), "{tools} {hooks}");
        assert_eq!(frames.last().unwrap().data["message"]["tool_calls"][0]["args"], args);
    }
}

#[tokio::test]
async fn a_script_that_is_wrong_about_its_arguments_is_refused() {
    let api = Api::start().await;
    let script = json!([{"text": "x", "stream_args": "yes"}]);
    let agent = json!({"model": {"provider": "scripted", "script": script}});
    api.put("/v1/agents/a", agent).await.names("stream_args");
}
