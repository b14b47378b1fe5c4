//! The operators' audit, and the repairs that it and the journal have.

use abide_registry::store::{ChainEntry, verify_chain};
use serde_json::{Value, json};

use crate::access::{GuardedApi, key, key_line};
use crate::api::Api;

/// What a request to the operators' API is answered.
struct Answer {
    status: u16,
    body: Value,
}

/// Sends a request to the operators' API, with the key of this id and an `Idempotency-Key`.
async fn admin(
    api: &Api,
    id: Option<&str>,
    (method, path): (&str, &str),
    body: Value,
    idempotency_key: Option<&str>,
) -> Answer {
    let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
    let url = format!("http://{}{path}", api.node.admin);
    let mut request = reqwest::Client::new().request(method, url);
    if let Some(id) = id {
        request = request.bearer_auth(key(id));
    }
    if let Some(key) = idempotency_key {
        request = request.header("Idempotency-Key", key);
    }
    if !body.is_null() {
        request = request.json(&body);
    }
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    let bytes = answer.bytes().await.unwrap();
    Answer { status, body: serde_json::from_slice(&bytes).unwrap_or_default() }
}

/// The chain that somebody reads, which is verified.
async fn chain(api: &Api, id: Option<&str>, query: &str) -> Vec<Value> {
    let path = format!("/admin/operations?limit=1000{query}");
    let answer = admin(api, id, ("GET", &path), Value::Null, None).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let entries: Vec<ChainEntry> =
        serde_json::from_value(answer.body["operations"].clone()).unwrap();
    assert_eq!(verify_chain(&entries), Ok(()));
    answer.body["operations"].as_array().unwrap().clone()
}

/// What the operators' audit calls all that happened.
pub(crate) async fn operation_names(api: &Api, id: &str) -> Vec<String> {
    let entries = chain(api, Some(id), "").await;
    entries.iter().map(|entry| entry["operation"].as_str().unwrap().to_owned()).collect()
}

fn names<'a>(entries: &'a [Value]) -> Vec<(&'a str, &'a str)> {
    let name = |entry: &'a Value, member| entry[member].as_str().unwrap_or_default();
    entries.iter().map(|entry| (name(entry, "operation"), name(entry, "target"))).collect()
}

fn definition() -> Value {
    json!({"model": {"provider": "scripted", "script": [{"text": "hi"}]}})
}

async fn guarded() -> GuardedApi {
    let roles = ["backend", "author", "tenant-admin", "auditor", "operator"];
    let mut keys: Vec<Value> = roles.iter().map(|role| key_line(role, &[role])).collect();
    for (id, role) in [("other-author", "author"), ("other-auditor", "auditor")] {
        let mut line = key_line(id, &[role]);
        line["tenant"] = json!("acme");
        keys.push(line);
    }
    let tenants = json!({"default": {}, "acme": {}});
    let tokens = json!({"keys": ["file:token.pem"]});
    GuardedApi::start(&json!({"keys": keys, "tenants": tenants, "tokens": tokens})).await
}

#[tokio::test]
async fn what_administrators_do_is_in_the_audit_of_their_tenant() {
    let guarded = guarded().await;
    let send = async |id, method, path: &str, body| guarded.send(id, method, path, body).await;
    assert_eq!(send("author", "PUT", "/v1/agents/a", definition()).await.status, 201);
    assert_eq!(send("other-author", "PUT", "/v1/agents/b", definition()).await.status, 201);
    let made = send("tenant-admin", "POST", "/v1/keys", json!({"name": "k", "roles": ["user"]}));
    let made = made.await.body;
    let id = made["id"].as_str().unwrap();
    let path = format!("/v1/keys/{id}");
    assert_eq!(send("tenant-admin", "DELETE", &path, Value::Null).await.status, 204);
    let new = json!({"id": "c", "agent": "demo"});
    assert_eq!(send("backend", "POST", "/v1/conversations", new).await.status, 201);
    let token = json!({"subject": "u", "conversation": "c", "scope": ["read"]});
    let minted = send("backend", "POST", "/v1/tokens", token).await;
    assert_eq!(minted.status, 201, "{minted:?}");
    assert_eq!(send("author", "DELETE", "/v1/agents/a", Value::Null).await.status, 204);
    send("author", "DELETE", "/v1/agents/a", Value::Null).await.is_problem(404, "not-found");

    let all = chain(&guarded.api, Some("operator"), "").await;
    let revision = all[0]["target"].as_str().unwrap().to_owned();
    assert!(revision.starts_with("a@"), "{revision}");
    let own: Vec<(&str, &str)> = vec![
        ("agent.put", &revision),
        ("key.create", id),
        ("key.revoke", id),
        ("agent.delete", "a"),
    ];
    assert_eq!(names(&chain(&guarded.api, Some("auditor"), "").await), own);
    let of_default = chain(&guarded.api, Some("operator"), "&tenant=default").await;
    assert_eq!(names(&of_default), own);
    assert_eq!(names(&chain(&guarded.api, Some("other-auditor"), "").await).len(), 1);
    assert_eq!(all.len(), 5, "a token is no entry: {all:?}");
    let text = json!(all).to_string();
    for secret in [made["key"].as_str().unwrap(), minted.body["token"].as_str().unwrap()] {
        assert!(!text.contains(secret), "{text}");
    }
    assert_eq!(all[0]["by"], "key:author");
    assert_eq!(all[0]["identity"]["key_id"], "author");
    assert_eq!(all[0].get("request"), None);
}

#[tokio::test]
async fn an_auditor_reads_only_the_audit_of_the_own_tenant() {
    let guarded = guarded().await;
    let read = async |id, query: &str| {
        let path = format!("/admin/operations{query}");
        admin(&guarded.api, Some(id), ("GET", &path), Value::Null, None).await
    };
    assert_eq!(read("auditor", "?tenant=default").await.status, 200);
    assert_eq!(read("auditor", "?tenant=acme").await.status, 403);
    assert_eq!(read("backend", "").await.status, 403);
    for (query, field) in
        [("?limit=0", "limit"), ("?tenant=A", "tenant"), ("?after=x", "after"), ("?x=1", "x")]
    {
        let refused = read("operator", query).await;
        assert_eq!(refused.status, 422, "{query}");
        assert!(refused.body["detail"].as_str().unwrap().contains(field), "{}", refused.body);
    }
}

#[tokio::test]
async fn the_audit_is_read_in_pages_and_with_the_request_if_the_level_says_so() {
    let api = Api::start_with(&["--audit-level", "request"]).await;
    for name in ["a", "b", "c"] {
        let path = format!("/v1/agents/{name}");
        assert_eq!(api.put(&path, definition()).await.status, 201);
    }
    let page = async |query: &str| {
        let path = format!("/admin/operations?limit=2{query}");
        admin(&api, None, ("GET", &path), Value::Null, None).await.body
    };
    let first = page("").await;
    assert_eq!((first["operations"].as_array().unwrap().len(), &first["cursor"]), (2, &json!(2)));
    let second = page("&after=2").await;
    assert_eq!(second["operations"].as_array().unwrap().len(), 1);
    assert_eq!(second["cursor"], Value::Null);
    let entry = &second["operations"][0];
    assert_eq!((&entry["by"], &entry["seq"]), (&json!("anonymous"), &json!(3)));
    let request = entry["request"].as_str().unwrap();
    assert!(request.contains("\"scripted\"") && request.contains("\"c\""), "{request}");
    assert_eq!(page("&after=3").await, json!({"operations": [], "cursor": null}));
}

#[tokio::test]
async fn a_repair_is_in_the_journal_and_in_the_audit_once_however_often_it_is_repeated() {
    let guarded = guarded().await;
    let api = &guarded.api;
    let new = json!({"id": "c", "agent": "demo"});
    assert_eq!(guarded.send("backend", "POST", "/v1/conversations", new).await.status, 201);
    let repair = async |verb: &str, body: Value, key: Option<&str>| {
        let path = format!("/admin/actors/c/{verb}");
        admin(api, Some("operator"), ("POST", &path), body, key).await
    };
    for _ in 0..2 {
        let retried = repair("retry", json!({"reason": "hangs"}), Some("k1")).await;
        assert_eq!((retried.status, retried.body), (200, json!({"retried": []})));
        let killed = repair("kill", Value::Null, Some("k2")).await;
        assert_eq!(killed.status, 202, "{}", killed.body);
    }
    assert_eq!(repair("retry", json!({"reason": "other"}), Some("k1")).await.status, 422);
    let cancelled = repair("cancel", Value::Null, None).await;
    assert_eq!((cancelled.status, cancelled.body), (200, json!({"cancelled": false})));
    assert_eq!(repair("release", json!({"force": true}), None).await.status, 200);

    let journal = guarded.get("backend", "/v1/conversations/c/journal").await.body;
    let events = journal["events"].as_array().unwrap();
    let operated: Vec<_> = events.iter().filter(|event| event["type"] == "operated").collect();
    let verbs: Vec<_> = operated.iter().map(|event| &event["data"]["verb"]).collect();
    assert_eq!(verbs, ["retry", "kill", "cancel", "release"], "{journal}");
    let first = &operated[0]["data"];
    assert_eq!((&first["by"], &first["reason"]), (&json!("key:operator"), &json!("hangs")));
    assert_eq!(first["identity"]["key_id"], "operator");
    let entries = chain(api, Some("auditor"), "").await;
    let expected = ["retry", "kill", "cancel", "release"].map(|it| format!("conversation.{it}"));
    let found: Vec<_> = entries.iter().map(|entry| entry["operation"].as_str().unwrap()).collect();
    assert_eq!(found, expected);
    let snapshot = guarded.get("backend", "/v1/conversations/c").await.body;
    assert_eq!(snapshot["state"], "idle");
    let messages = guarded.get("backend", "/v1/conversations/c/messages").await.body;
    assert_eq!(messages["messages"], json!([]));
}

#[tokio::test]
async fn a_failed_call_is_journalled_with_who_failed_it() {
    let guarded = guarded().await;
    let sent = json!({"agent": "demo", "text": "write a mail"});
    let path = "/v1/conversations/c/messages";
    assert_eq!(guarded.send("backend", "POST", path, sent).await.status, 202);
    let waiting = async {
        loop {
            let snapshot = guarded.get("backend", "/v1/conversations/c").await.body;
            if let Some(call) = snapshot["pending"][0]["call_id"].as_str() {
                return call.to_owned();
            }
            tokio::task::yield_now().await;
        }
    };
    let call = tokio::time::timeout(crate::api::DEADLINE, waiting).await.unwrap();
    let path = format!("/admin/actors/c/calls/{call}/fail");
    for _ in 0..2 {
        let body = json!({"error": "gone"});
        let failed = admin(&guarded.api, Some("operator"), ("POST", &path), body, Some("k")).await;
        assert_eq!((failed.status, &failed.body["status"]), (200, &json!("failed")));
    }
    let journal = guarded.get("backend", "/v1/conversations/c/journal").await.body;
    let of = |kind: &str| -> Vec<Value> {
        let events = journal["events"].as_array().unwrap().iter();
        events.filter(|event| event["type"] == kind).map(|event| event["data"].clone()).collect()
    };
    let (operated, resolutions) = (of("operated"), of("resolution"));
    assert_eq!((operated.len(), resolutions.len()), (1, 1), "{journal}");
    assert_eq!((&operated[0]["verb"], &operated[0]["reason"]), (&json!("fail"), &json!("gone")));
    assert_eq!(resolutions[0]["identity"]["key_id"], "operator");
}

#[tokio::test]
async fn what_is_refused_or_missing_leaves_no_entry() {
    let api = Api::start().await;
    let post =
        async |path: &str, body: Value| admin(&api, None, ("POST", path), body, None).await.status;
    assert_eq!(post("/admin/actors/nobody/retry", Value::Null).await, 404);
    assert_eq!(post("/admin/nodes/nobody/drain", Value::Null).await, 404);
    let new = json!({"id": "c", "agent": "demo"});
    assert_eq!(api.post("/v1/conversations", new).await.status, 201);
    for reason in ["".to_owned(), "x".repeat(501)] {
        assert_eq!(post("/admin/actors/c/kill", json!({"reason": reason})).await, 422);
    }
    let blob = format!("/admin/blobs/blob_{}", "0".repeat(64));
    assert_eq!(admin(&api, None, ("DELETE", &blob), Value::Null, None).await.status, 404);
    assert_eq!(chain(&api, None, "").await, [Value::Null; 0]);
    assert_eq!(post("/admin/nodes/n1/drain", Value::Null).await, 202);
    assert_eq!(names(&chain(&api, None, "").await), [("node.drain", "n1")]);
}
