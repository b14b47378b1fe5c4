//! What is taken away while it is used: a role, a tenant.

use serde_json::{Value, json};

use crate::access::{GuardedApi, key, key_line};
use crate::stream::Stream;

/// Puts another file in force, and waits until this key is answered so.
async fn replace(guarded: &GuardedApi, document: &Value, (id, status): (&str, u16)) {
    std::fs::write(guarded.file(), document.to_string()).unwrap();
    guarded.api.node.auth_reloader().reload();
    while guarded.get(id, "/v1/conversations").await.status != status {
        tokio::task::yield_now().await;
    }
}

async fn stream(guarded: &GuardedApi, who: &str, id: &str) -> Stream {
    let path = format!("/v1/conversations/{id}/events");
    let mut stream = Stream::open(guarded.api.request("GET", &path).bearer_auth(key(who))).await;
    stream.until("snapshot").await;
    stream
}

#[tokio::test]
async fn a_stream_ends_when_the_role_that_reads_it_is_taken_away() {
    let line = |role: &str| key_line("shop", &[role]);
    let other = key_line("auditor", &["auditor"]);
    let guarded = GuardedApi::start(&json!({"keys": [line("backend"), other]})).await;
    let new = json!({"id": "c", "agent": "demo", "owner": "ada"});
    assert_eq!(guarded.send("shop", "POST", "/v1/conversations", new).await.status, 201);
    let (mut lost, mut kept) =
        (stream(&guarded, "shop", "c").await, stream(&guarded, "auditor", "c").await);

    let document = json!({"keys": [line("user"), other]});
    std::fs::write(guarded.file(), document.to_string()).unwrap();
    guarded.api.node.auth_reloader().reload();
    assert_eq!(lost.until("credential_ended").await.data, json!({}));
    assert!(lost.next().await.is_none(), "the stream ends");
    guarded.get("shop", "/v1/conversations/c").await.is_problem(404, "not-found");
    let message = json!({"text": "hi"});
    let sent = guarded.send("shop", "POST", "/v1/conversations/c/messages", message.clone()).await;
    sent.is_problem(404, "not-found");

    let document = json!({"keys": [line("backend"), other]});
    replace(&guarded, &document, ("shop", 200)).await;
    while guarded.get("shop", "/v1/conversations/c").await.status != 200 {
        tokio::task::yield_now().await;
    }
    let sent = guarded.send("shop", "POST", "/v1/conversations/c/messages", message).await;
    assert_eq!(sent.status, 202, "{sent:?}");
    kept.until("turn_completed").await;
}

#[tokio::test]
async fn the_conversations_of_a_tenant_that_is_removed_wait_until_it_is_back() {
    let mut theirs = key_line("theirs", &["backend", "author", "approver"]);
    theirs["tenant"] = json!("acme");
    let mine = key_line("mine", &["backend"]);
    let both = json!({"keys": [mine, theirs], "tenants": {"default": {}, "acme": {}}});
    let guarded = GuardedApi::start(&both).await;
    let agent = json!({
        "model": {"provider": "scripted", "script": [
            {"calls": [{"id": "ask", "name": "ask", "args": {}}]}, {"text": "Done."}]},
        "tools": [{"name": "ask", "executor": "client",
            "approval": {"by": {"services": true, "not": []}}, "requires_response": false}],
    });
    assert_eq!(guarded.send("theirs", "PUT", "/v1/agents/a", agent).await.status, 201);
    let message = json!({"agent": "a", "text": "go"});
    let sent = guarded.send("theirs", "POST", "/v1/conversations/c/messages", message).await;
    assert_eq!(sent.status, 202, "{sent:?}");
    let mut stream = stream(&guarded, "theirs", "c").await;
    while guarded.get("theirs", "/v1/conversations/c").await.body["state"] != "awaiting_input" {
        tokio::task::yield_now().await;
    }
    let before = guarded.get("theirs", "/v1/conversations/c/journal").await.body;

    let without = json!({"keys": [mine], "tenants": {"default": {}}});
    replace(&guarded, &without, ("theirs", 401)).await;
    stream.until("credential_ended").await;
    let resolution = "/v1/conversations/c/calls/ask/resolution";
    let approve = json!({"approved": true});
    let refused = guarded.send("theirs", "POST", resolution, approve.clone()).await;
    refused.is_problem(401, "unauthorized");
    guarded.get("mine", "/v1/conversations/c").await.is_problem(404, "not-found");

    replace(&guarded, &both, ("theirs", 200)).await;
    let after = guarded.get("theirs", "/v1/conversations/c/journal").await.body;
    assert_eq!(after, before, "it waits");
    let accepted = guarded.send("theirs", "POST", resolution, approve).await;
    assert_eq!(accepted.status, 200, "{accepted:?}");
    while guarded.get("theirs", "/v1/conversations/c").await.body["state"] != "idle" {
        tokio::task::yield_now().await;
    }
}
