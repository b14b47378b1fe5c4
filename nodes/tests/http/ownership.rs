//! Owners and members: who may read a conversation, who may act in it, and for whom it does not exist.

use serde_json::{Value, json};

use crate::access::{GuardedApi, key_line};
use crate::api::ApiResponse;

const PEOPLE: [&str; 3] = ["ada", "bob", "eve"];

/// A node with three users, of whom Ada owns the conversation `c`, in which Bob is a member.
async fn shared_conversation() -> GuardedApi {
    let mut keys: Vec<Value> = PEOPLE.iter().map(|id| key_line(id, &["user"])).collect();
    keys.extend(["backend", "approver", "auditor", "author"].map(|role| key_line(role, &[role])));
    let guarded = GuardedApi::start(&json!({"keys": keys})).await;
    let mail = json!({"name": "send_email", "args": {"to": "a@b.c", "subject": "hi"}});
    let script = json!([{"when": "mail", "steps": [{"calls": [mail]}, {"text": "Done."}]},
        {"steps": [{"text": "Yes?"}]}]);
    // The approver of these tests is a program.
    let tool = json!({"name": "send_email", "approval": {"by": {"services": true}},
        "run": {"native": "demo_send_email"}});
    let agent = json!({"model": {"provider": "scripted", "script": script}, "tools": [tool]});
    let defined = guarded.send("author", "PUT", "/v1/agents/mailer", agent).await;
    assert_eq!(defined.status, 201, "{defined:?}");
    let body = json!({"id": "c", "agent": "mailer", "members": ["key:bob"]});
    let created = guarded.send("ada", "POST", "/v1/conversations", body).await;
    assert_eq!(created.status, 201, "{created:?}");
    guarded
}

/// The problem without what differs in every answer.
fn problem(answer: &ApiResponse) -> Value {
    let mut body = answer.body.clone();
    body.as_object_mut().unwrap().remove("instance");
    body
}

#[tokio::test]
async fn members_take_part_and_for_others_the_conversation_does_not_exist() {
    let guarded = shared_conversation().await;
    let message = json!({"text": "hi", "if_busy": "queue"});
    let messages = "/v1/conversations/c/messages";
    for (who, status) in [("ada", 202), ("bob", 202), ("backend", 202), ("eve", 404)] {
        let sent = guarded.send(who, "POST", messages, message.clone()).await;
        assert_eq!(sent.status, status, "{who}: {sent:?}");
    }
    let forbidden = guarded.send("auditor", "POST", messages, message.clone()).await;
    forbidden.is_problem(403, "forbidden");
    assert_eq!(forbidden.body["needs"], "send");
    let missing = guarded.send("eve", "POST", "/v1/conversations/d/messages", message).await;
    for (method, path) in [
        ("GET", "/v1/conversations/c"),
        ("GET", "/v1/conversations/c/messages"),
        ("GET", "/v1/conversations/c/journal"),
        ("GET", "/v1/conversations/c/events"),
        ("GET", "/v1/conversations/c/decisions"),
        ("POST", "/v1/conversations/c/cancel"),
        ("DELETE", "/v1/conversations/c"),
        ("DELETE", "/v1/conversations/c/decisions/dec_1"),
    ] {
        let hidden = guarded.send("eve", method, path, Value::Null).await;
        assert_eq!(problem(&hidden), problem(&missing), "{method} {path}");
    }
    for (path, body) in [
        ("/v1/conversations/c/fork", json!({})),
        ("/v1/conversations/c/dispatch", json!({"tool": "t", "input": {}})),
        ("/v1/conversations/c/calls/call_1_1/resolution", json!({"approved": true})),
        ("/v1/conversations/c/messages", json!({"text": "hi", "agent": "demo"})),
    ] {
        let hidden = guarded.send("eve", "POST", path, body).await;
        assert_eq!(problem(&hidden), problem(&missing), "{path}");
    }
    let journal = guarded.get("ada", "/v1/conversations/c/journal").await.body;
    assert_eq!(journal["events"][0]["data"]["owner"], "key:ada");
    assert_eq!(journal["events"][0]["data"]["members"], json!(["key:bob"]));
    assert_eq!(journal["events"][1]["data"]["identity"]["sub"], "key:ada");
    let snapshot = guarded.get("auditor", "/v1/conversations/c").await.body;
    assert_eq!(snapshot["owner"], "key:ada");
}

#[tokio::test]
async fn what_only_the_owner_may_is_forbidden_to_members() {
    let guarded = shared_conversation().await;
    let fork = "/v1/conversations/c/fork";
    let refused = guarded.send("bob", "POST", fork, json!({})).await;
    refused.is_problem(403, "forbidden");
    assert_eq!(refused.body["needs"], "fork");
    let refused = guarded.send("bob", "DELETE", "/v1/conversations/c", Value::Null).await;
    assert_eq!((refused.status, &refused.body["needs"]), (403, &json!("delete")));
    let forked = guarded.send("ada", "POST", fork, json!({"id": "f"})).await;
    assert_eq!(forked.status, 201, "{forked:?}");
    let fork = guarded.get("bob", "/v1/conversations/f").await.body;
    assert_eq!((&fork["owner"], &fork["members"]), (&json!("key:ada"), &json!(["key:bob"])));
    let deleted = guarded.send("ada", "DELETE", "/v1/conversations/c", Value::Null).await;
    assert_eq!(deleted.status, 204);
}

#[tokio::test]
async fn lists_show_what_the_caller_may_see() {
    let guarded = shared_conversation().await;
    let create = json!({"id": "e", "agent": "demo"});
    assert_eq!(guarded.send("eve", "POST", "/v1/conversations", create).await.status, 201);
    let mail = json!({"text": "Please send a mail"});
    let sent = guarded.send("ada", "POST", "/v1/conversations/c/messages", mail).await;
    assert_eq!(sent.status, 202);
    while guarded.get("ada", "/v1/conversations/c").await.body["state"] != "awaiting_input" {
        tokio::task::yield_now().await;
    }
    for (who, conversations, pending) in [
        ("ada", &["c"][..], 1),
        ("bob", &["c"], 1),
        ("eve", &["e"], 0),
        ("backend", &["c", "e"], 1),
        ("auditor", &["c", "e"], 1),
    ] {
        let list = guarded.get(who, "/v1/conversations?dir=asc").await.body;
        let ids = list["conversations"].as_array().unwrap().iter().map(|row| &row["id"]);
        assert!(ids.eq(conversations), "{who}: {list}");
        let list = guarded.get(who, "/v1/pending").await.body;
        assert_eq!(list["pending"].as_array().unwrap().len(), pending, "{who}: {list}");
        let list = guarded.get(who, "/v1/pending?conversation=c").await.body;
        assert_eq!(list["pending"].as_array().unwrap().len(), pending, "{who}: {list}");
    }
    let list = guarded.get("approver", "/v1/pending").await.body;
    assert_eq!(list["pending"][0]["kind"], "approval");
    guarded.get("approver", "/v1/conversations").await.is_problem(403, "forbidden");
}

#[tokio::test]
async fn an_approval_is_answered_by_an_approver_and_by_nobody_else() {
    let guarded = shared_conversation().await;
    let mail = json!({"text": "Please send a mail"});
    guarded.send("ada", "POST", "/v1/conversations/c/messages", mail).await;
    while guarded.get("ada", "/v1/conversations/c").await.body["state"] != "awaiting_input" {
        tokio::task::yield_now().await;
    }
    let resolution = "/v1/conversations/c/calls/call_1_1/resolution";
    let approve = || json!({"approved": true});
    for who in ["ada", "bob", "backend"] {
        let refused = guarded.send(who, "POST", resolution, approve()).await;
        refused.is_problem(403, "approval-forbidden");
        assert_eq!(refused.body["because"], "role");
    }
    let dispatch = json!({"tool": "send_email", "input": {"to": "a@b.c"}, "approved": true});
    let path = "/v1/conversations/c/dispatch";
    let refused = guarded.send("ada", "POST", path, dispatch).await;
    refused.is_problem(403, "approval-forbidden");
    let hidden = guarded.send("eve", "POST", resolution, approve()).await;
    hidden.is_problem(404, "not-found");
    let unknown = "/v1/conversations/c/calls/call_9/resolution";
    guarded.send("approver", "POST", unknown, approve()).await.is_problem(409, "call-not-open");
    guarded.send("eve", "POST", unknown, approve()).await.is_problem(404, "not-found");
    let accepted = guarded.send("approver", "POST", resolution, approve()).await;
    assert_eq!(accepted.status, 200, "{accepted:?}");
    let late = guarded.send("approver", "POST", resolution, approve()).await;
    late.is_problem(409, "call-not-open");
    let journal = guarded.get("ada", "/v1/conversations/c/journal").await.body;
    let events = journal["events"].as_array().unwrap();
    let resolution = events.iter().find(|event| event["type"] == "resolution").unwrap();
    assert_eq!(resolution["data"]["by"], "key:approver");
    assert_eq!(resolution["data"]["identity"]["roles"], json!(["approver"]));
}

#[tokio::test]
async fn a_backend_creates_for_others_and_a_user_does_not() {
    let guarded = shared_conversation().await;
    let body = |owner: &str| json!({"agent": "demo", "owner": owner});
    let refused = guarded.send("ada", "POST", "/v1/conversations", body("key:bob")).await;
    refused.names("owner: ");
    let created = guarded.send("backend", "POST", "/v1/conversations", body("u_1")).await;
    assert_eq!(created.status, 201);
    let path = format!("/v1/conversations/{}", created.body["id"].as_str().unwrap());
    assert_eq!(guarded.get("backend", &path).await.body["owner"], "u_1");
    for (field, body) in [
        ("owner: ", json!({"agent": "demo", "owner": "system"})),
        ("members[1]: ", json!({"agent": "demo", "members": ["a", ""]})),
        ("members: ", json!({"agent": "demo", "members": vec!["m"; 101]})),
    ] {
        guarded.send("backend", "POST", "/v1/conversations", body).await.names(field);
    }
}

#[tokio::test]
async fn nobody_gets_the_answer_to_anothers_key() {
    let guarded = shared_conversation().await;
    let create = async |who: &str| {
        let request = guarded.api.request("POST", "/v1/conversations");
        let request = request.bearer_auth(crate::access::key(who)).header("Idempotency-Key", "k");
        guarded.api.send(request.json(&json!({"agent": "demo"}))).await
    };
    let first = create("ada").await;
    assert_eq!((first.status, create("ada").await.body), (201, first.body.clone()));
    let other = create("eve").await;
    assert_eq!(other.status, 201);
    assert_ne!(other.body["id"], first.body["id"]);
}
