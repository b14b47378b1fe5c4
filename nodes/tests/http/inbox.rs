//! The inbox as a stream.

use reqwest::RequestBuilder;
use serde_json::{Value, json};

use crate::access::{GuardedApi, key, key_line};
use crate::api::Api;
use crate::stream::Stream;

fn agent() -> Value {
    let mail = json!({"name": "mail", "description": "Sends.", "approval": "requires_approval",
        "timeout": "1h", "run": {"native": "demo_send_email"}});
    json!({"tools": [mail], "model": {"provider": "scripted", "script": [
        {"calls": [{"id": "m", "name": "mail", "args": {"to": "a@b.c"}}]}, {"text": "Done."}]}})
}

async fn inbox(request: RequestBuilder) -> Stream {
    Stream::open_of(request, "InboxFrame").await
}

fn pending_of(guarded: &GuardedApi, caller: &str) -> RequestBuilder {
    guarded.api.request("GET", "/v1/pending/events").bearer_auth(key(caller))
}

#[tokio::test]
async fn an_inbox_stream_tells_what_opens_and_what_closes_after_a_snapshot() {
    let api = Api::start().await;
    assert_eq!(api.put("/v1/agents/one", agent()).await.status, 201);
    let rests = api
        .post("/v1/conversations/a/messages?wait=20s", json!({"agent": "one", "text": "go"}))
        .await;
    assert_eq!(rests.body["outcome"], "awaiting_input", "{rests:?}");
    let mut stream = inbox(api.request("GET", "/v1/pending/events")).await;
    let snapshot = stream.until("snapshot").await.data;
    assert_eq!(
        (&snapshot["pending"][0]["conversation_id"], &snapshot["more"]),
        (&json!("a"), &json!(false))
    );
    assert_eq!(snapshot["pending"][0]["may_answer"], true);
    api.post("/v1/conversations/b/messages", json!({"agent": "one", "text": "go"})).await;
    let opened = stream.until("opened").await.data;
    assert_eq!((&opened["conversation_id"], &opened["call_id"]), (&json!("b"), &json!("m")));
    let extend = "/v1/conversations/b/calls/m/extend";
    let extended = api.post(extend, json!({"for": "1h"})).await;
    assert_eq!(stream.until("opened").await.data["expires_at"], extended.body["expires_at"]);
    let resolution = "/v1/conversations/a/calls/m/resolution";
    assert_eq!(api.post(resolution, json!({"approved": true})).await.status, 200);
    let closed = stream.until("closed").await.data;
    let expected =
        json!({"conversation_id": "a", "call_id": "m", "suspension": 1, "by": "anonymous"});
    assert_eq!(closed, expected);
    assert_eq!(api.delete("/v1/conversations/b").await.status, 204);
    assert_eq!(stream.until("closed").await.data["conversation_id"], "b");
}

#[tokio::test]
async fn an_inbox_stream_shows_only_what_its_caller_may_see() {
    let keys = json!({"keys": [key_line("ann", &["user"]), key_line("eve", &["user"]),
        key_line("dev", &["author"])], "tenants": {"default": {}}});
    let guarded = GuardedApi::start(&keys).await;
    assert_eq!(guarded.send("dev", "PUT", "/v1/agents/one", agent()).await.status, 201);
    let mut eve = inbox(pending_of(&guarded, "eve")).await;
    let mut ann = inbox(pending_of(&guarded, "ann")).await;
    assert_eq!(eve.until("snapshot").await.data["pending"], json!([]));
    ann.until("snapshot").await;
    for (caller, id) in [("ann", "a"), ("eve", "e")] {
        let path = format!("/v1/conversations/{id}/messages");
        let sent = json!({"agent": "one", "text": "go"});
        assert_eq!(guarded.send(caller, "POST", &path, sent).await.status, 202);
    }
    assert_eq!(eve.until("opened").await.data["conversation_id"], "e");
    assert_eq!(ann.until("opened").await.data["conversation_id"], "a");
}

#[tokio::test]
async fn a_page_of_calls_with_large_arguments_ends_early_and_its_cursor_goes_on() {
    let api = Api::start().await;
    let mut large = agent();
    large["model"]["script"][0]["calls"][0]["args"]["body"] = json!("x".repeat(600_000));
    assert_eq!(api.put("/v1/agents/one", large).await.status, 201);
    for number in 0..20 {
        let path = format!("/v1/conversations/c{number}/messages?wait=20s");
        let rests = api.post(&path, json!({"agent": "one", "text": "go"})).await;
        assert_eq!(rests.body["outcome"], "awaiting_input", "{rests:?}");
    }
    let first = api.get("/v1/pending?limit=1000").await.body;
    assert_eq!(first["pending"].as_array().unwrap().len(), 16);
    let path = format!("/v1/pending?limit=1000&cursor={}", first["cursor"].as_str().unwrap());
    let rest = api.get(&path).await.body;
    assert_eq!((rest["pending"].as_array().unwrap().len(), &rest["cursor"]), (4, &json!(null)));
}
