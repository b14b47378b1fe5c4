//! Children of conversations, with authentication.

use serde_json::{Value, json};

use crate::access::{GuardedApi, key_line};
use crate::api::Api;

#[tokio::test]
async fn a_child_works_for_whoever_asked_and_not_for_whoever_approved() {
    let keys = ["user ada", "author author", "approver bob", "backend backend"];
    let keys: Vec<_> = keys.iter().filter_map(|line| line.split_once(' ')).collect();
    let keys: Vec<_> = keys.iter().map(|(role, id)| key_line(id, &[role])).collect();
    let guarded = GuardedApi::start(&json!({"keys": keys})).await;
    let define = async |name: &str, script: Value, tools: Value| {
        let agent = json!({"tools": tools, "model": {"provider": "scripted", "script": script}});
        let path = format!("/v1/agents/{name}");
        assert_eq!(guarded.send("author", "PUT", &path, agent).await.status, 201);
    };
    define("kid", json!([{"text": "Kid done."}]), json!([])).await;
    let ask = json!({"name": "ask", "run": {"agent": "kid"},
        "approval": {"by": {"services": true}}});
    let call = json!({"id": "a", "name": "ask", "args": {"prompt": "go"}});
    define("boss", json!([{"calls": [call]}, {"text": "Done."}]), json!([ask])).await;
    let sent = json!({"agent": "boss", "text": "go"});
    let sent = guarded.send("ada", "POST", "/v1/conversations/c/messages?wait=30s", sent).await;
    assert_eq!(sent.body["outcome"], "awaiting_input", "{sent:?}");
    let approve = "/v1/conversations/c/calls/a/resolution?wait=30s";
    let done = guarded.send("bob", "POST", approve, json!({"approved": true})).await;
    assert_eq!(done.status, 200, "{done:?}");
    let list = guarded.get("backend", "/v1/conversations?root_only=false").await.body;
    let ids = list["conversations"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap());
    let kid = ids.into_iter().find(|id| *id != "c").unwrap();
    let journal = guarded.get("backend", &format!("/v1/conversations/{kid}/journal")).await.body;
    let events = journal["events"].as_array().unwrap();
    let message = events.iter().find(|event| event["type"] == "user_msg").unwrap();
    let data = &message["data"];
    assert_eq!(
        (&data["principal"], &data["identity"]["sub"]),
        (&json!("key:ada"), &json!("key:ada"))
    );
}

/// The journalled data of the first event of this type in the parent's only child.
async fn in_child(api: &Api, kind: &str) -> Value {
    let page = api.get("/v1/conversations/parent/journal?limit=1000").await.body;
    let events = page["events"].as_array().unwrap();
    let started = events.iter().find(|event| event["type"] == "child_started").unwrap();
    let child = started["data"]["conversation_id"].as_str().unwrap();
    let page = api.get(&format!("/v1/conversations/{child}/journal?limit=1000")).await.body;
    let events = page["events"].as_array().unwrap();
    events.iter().find(|event| event["type"] == kind).unwrap()["data"].clone()
}

#[tokio::test]
async fn a_call_chooses_the_childs_model_among_those_that_the_agent_lets_choose_from() {
    for (model, is_known) in [("large", true), ("huge", false)] {
        let api = Api::start().await;
        let kid = json!({"models": ["small", "large"],
            "model": {"provider": "scripted", "script": [{"text": "Done."}]}});
        assert_eq!(api.put("/v1/agents/kid", kid).await.status, 201);
        let call = json!({"id": "ask", "name": "ask", "args": {"prompt": "go", "model": model}});
        let boss = json!({
            "tools": [{"name": "ask", "run": {"agent": "kid"}}],
            "model": {"provider": "scripted", "script": [{"calls": [call]}, {"text": "Done."}]},
        });
        assert_eq!(api.put("/v1/agents/boss", boss).await.status, 201);
        let message = json!({"agent": "boss", "text": "go"});
        let sent = api.post("/v1/conversations/parent/messages", message).await;
        assert_eq!(sent.status, 202);
        let mut stream = api.stream("/v1/conversations/parent/events?after=0").await;
        if is_known {
            stream.until("turn_completed").await;
            assert_eq!(in_child(&api, "created").await["parent"]["model"], model);
            let message = in_child(&api, "user_msg").await["message"].clone();
            assert_eq!(message["content"], json!([{"type": "text", "text": "go"}]));
        } else {
            let failed = stream.until("tool_call_errored").await.data;
            let error = failed["result"]["error"].as_str().unwrap().to_owned();
            assert!(error.contains("huge is not among the models of agent kid"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_name_of_a_model_that_is_none_is_refused() {
    let api = Api::start().await;
    let kid = json!({"models": ["small", 7, ""],
        "model": {"provider": "scripted", "script": [{"text": "Done."}]}});
    let refused = api.put("/v1/agents/kid", kid).await;
    assert_eq!(refused.status, 422);
    let body = refused.body.to_string();
    assert!(body.contains("models[1]") && body.contains("models[2]"), "{body}");
}
