//! Children of conversations, with authentication.

use serde_json::json;

use crate::access::{GuardedApi, key_line};

#[tokio::test]
async fn a_child_works_for_whoever_asked_and_not_for_whoever_approved() {
    let keys = ["user ada", "author author", "approver bob", "backend backend"];
    let keys: Vec<_> = keys.iter().filter_map(|line| line.split_once(' ')).collect();
    let keys: Vec<_> = keys.iter().map(|(role, id)| key_line(id, &[role])).collect();
    let guarded = GuardedApi::start(&json!({"keys": keys})).await;
    let define = async |name: &str, script: serde_json::Value, tools: serde_json::Value| {
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
    let list = guarded.get("backend", "/v1/conversations").await.body;
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
