//! A2A where callers are authenticated: who is told what, who is asked, and whose answer counts.

use serde_json::{Value, json};

use crate::a2a::{answers, call, is_error, questions, says, state, text};
use crate::access::{GuardedApi, key, key_line};
use crate::api::ApiResponse;

/// A node whose callers have these roles, and an agent whose mails Bob, not who asks, approves.
async fn guarded() -> GuardedApi {
    let lines = [
        key_line("ada", &["user"]),
        key_line("bob", &["user", "approver"]),
        key_line("eve", &["user"]),
        key_line("author", &["author"]),
    ];
    let guarded = GuardedApi::start(&json!({"keys": lines})).await;
    let approval = json!({"by": {"services": true}});
    let tool = json!({"name": "send_email", "approval": approval,
        "run": {"native": "demo_send_email"}});
    let script = json!([{"calls": [{"name": "send_email", "args": {"to": "secret@example.com"}}]},
        {"text": "Sent."}]);
    let agent = json!({"model": {"provider": "scripted", "script": script}, "tools": [tool]});
    let defined = guarded.send("author", "PUT", "/v1/agents/mailer", agent).await;
    assert!(defined.status < 300, "{defined:?}");
    guarded
}

async fn by(guarded: &GuardedApi, who: &str, method: &str, params: Value) -> ApiResponse {
    let request = guarded.api.request("POST", "/a2a/mailer").header("A2A-Version", "1.0");
    guarded.api.send(request.bearer_auth(key(who)).json(&call(method, params))).await
}

#[tokio::test]
async fn the_credential_decides_who_is_asked_and_whose_answer_counts() {
    let guarded = guarded().await;
    let new = json!({"id": "c", "agent": "mailer", "members": ["key:bob"]});
    assert_eq!(guarded.send("ada", "POST", "/v1/conversations", new).await.status, 201);
    let sent = by(&guarded, "ada", "SendMessage", says("c", "m", "go")).await;
    let task = sent.body["result"]["task"].clone();
    assert_eq!(state(&task), "TASK_STATE_WORKING", "nobody waits here for others");
    let read = async |who: &str| by(&guarded, who, "GetTask", json!({"id": task["id"]})).await.body;
    let asked = read("bob").await["result"].clone();
    let question = &questions(&asked)[0];
    assert_eq!(question["args"]["to"], "secret@example.com");
    // Who asked for the call is not asked, and sees no arguments.
    let own = read("ada").await["result"].clone();
    assert_eq!(state(&own), "TASK_STATE_WORKING");
    assert!(!own.to_string().contains("secret@example.com"), "{own:#}");
    let yes = |id: &str| {
        answers(&task, id, vec![json!({"call_id": question["call_id"], "approved": true})])
    };
    let refusal = by(&guarded, "ada", "SendMessage", yes("m-2")).await;
    assert_eq!(refusal.status, 403);
    is_error(&refusal, -32_000);
    let stranger = by(&guarded, "eve", "SendMessage", yes("m-2")).await;
    assert_eq!((stranger.status, is_error(&stranger, -32_001).as_str()), (200, "task not found"));
    let unknown = by(&guarded, "eve", "GetTask", json!({"id": "k_a.nothing"})).await;
    assert_eq!(read("eve").await["error"], unknown.body["error"], "it does not exist for her");
    is_error(&by(&guarded, "eve", "SendMessage", says("c", "m-3", "hi")).await, -32_001);
    let done = by(&guarded, "bob", "SendMessage", yes("m-2")).await.body["result"]["task"].clone();
    assert_eq!((state(&done), text(&done).as_str()), ("TASK_STATE_COMPLETED", "Sent."));
}

#[tokio::test]
async fn a_caller_without_a_credential_is_refused_in_the_form_of_json_rpc() {
    let guarded = guarded().await;
    let request = guarded.api.request("POST", "/a2a/mailer").header("A2A-Version", "1.0");
    let answer = guarded.api.send(request.json(&call("GetTask", json!({"id": "x"})))).await;
    assert_eq!((answer.status, &answer.body["id"]), (401, &Value::Null));
    assert!(answer.headers.contains_key("www-authenticate"));
    is_error(&answer, -32_000);
    let path = "/a2a/mailer/.well-known/agent-card.json";
    assert_eq!(guarded.api.get(path).await.status, 401);
    let card = guarded.send("ada", "GET", path, Value::Null).await.body;
    let scheme = &card["securitySchemes"]["credential"]["httpAuthSecurityScheme"]["scheme"];
    assert_eq!(scheme, "Bearer");
}
