//! Two tenants on one node, with the same ids, names and keys: what one sees with the other beside it is
//! what it sees alone.

use reqwest::Method;
use serde_json::{Value, json};

use crate::access::{GuardedApi, key, key_line};
use crate::api::ApiResponse;
use crate::stream::Stream;

const EVERYTHING: [&str; 6] = ["user", "approver", "backend", "author", "tenant-admin", "auditor"];

/// Only in `default`.
const SECRET: &str = "the plans of default";

/// A node with an agent `a` and a key for each of two tenants: `mine` for `default`, `theirs` for `acme`.
async fn two_tenants() -> GuardedApi {
    let line = |id, tenant| {
        let mut line = key_line(id, &EVERYTHING);
        line["tenant"] = json!(tenant);
        line
    };
    let keys =
        [line("mine", "default"), line("theirs", "acme"), key_line("operator", &["operator"])];
    let document = json!({"keys": keys, "tokens": {"keys": ["file:token.pem"]},
        "tenants": {"default": {}, "acme": {}}});
    let guarded = GuardedApi::start(&document).await;
    for (who, text) in [("mine", SECRET), ("theirs", "the plans of acme")] {
        define(&guarded, who, "a", agent(text)).await;
    }
    guarded
}

fn agent(text: &str) -> Value {
    let script = json!([{"calls": [{"id": "ask", "name": "ask", "args": {}}]}, {"text": text}]);
    json!({
        "model": {"provider": "scripted", "script": script},
        "tools": [{"name": "ask", "executor": "client",
            // A tenant is one program here, which asks and approves.
            "approval": {"by": {"services": true, "not": []}},
            "strict": false, "requires_response": false, "default_result": "done"}],
        "audit": {"ttl": "1h"},
    })
}

async fn define(guarded: &GuardedApi, who: &str, name: &str, agent: Value) {
    let defined = guarded.send(who, "PUT", &format!("/v1/agents/{name}"), agent).await;
    assert_eq!(defined.status, 201, "{defined:?}");
}

async fn say(guarded: &GuardedApi, who: &str, id: &str, text: &str) {
    let message = json!({"agent": "a", "text": text});
    let path = format!("/v1/conversations/{id}/messages");
    let sent = guarded.send(who, "POST", &path, message).await;
    assert_eq!(sent.status, 202, "{sent:?}");
    while guarded.get(who, &format!("/v1/conversations/{id}")).await.body["state"]
        != "awaiting_input"
    {
        tokio::task::yield_now().await;
    }
}

async fn stream(guarded: &GuardedApi, who: &str, id: &str) -> Stream {
    let path = format!("/v1/conversations/{id}/events");
    Stream::open(guarded.api.request("GET", &path).bearer_auth(key(who))).await
}

async fn store_blob(guarded: &GuardedApi, who: &str, bytes: &str) -> ApiResponse {
    let request = guarded.api.request("POST", "/v1/blobs").bearer_auth(key(who));
    guarded.api.send(request.header("Content-Type", "text/plain").body(bytes.to_owned())).await
}

/// Sends a request to the operators' API.
async fn admin(guarded: &GuardedApi, who: &str, method: &str, path: &str) -> (u16, Value) {
    let url = format!("http://{}/admin{path}", guarded.api.node.admin);
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let sent = reqwest::Client::new().request(method, url).bearer_auth(key(who)).send().await;
    let answer = sent.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap_or_default())
}

/// One of everything in the tenant `default`. Returns the ids of a blob, a key and a decision.
async fn everything_of_mine(guarded: &GuardedApi) -> [String; 3] {
    define(guarded, "mine", "secret", agent(SECRET)).await;
    say(guarded, "mine", "c", SECRET).await;
    say(guarded, "mine", "d", SECRET).await;
    let approve = json!({"approved": true, "remember": {"scope": "agent", "for": "1h"}});
    let path = "/v1/conversations/d/calls/ask/resolution";
    let approved = guarded.send("mine", "POST", path, approve).await;
    assert_eq!(approved.status, 200, "{approved:?}");
    let decision = loop {
        let decisions = guarded.get("mine", "/v1/agents/a/decisions").await.body;
        if let Some(decision) = decisions["decisions"].get(0) {
            break decision["id"].clone();
        }
        tokio::task::yield_now().await;
    };
    let blob = store_blob(guarded, "mine", SECRET).await.body["id"].clone();
    let new = json!({"name": "k", "roles": ["user"]});
    let made = guarded.send("mine", "POST", "/v1/keys", new).await.body["id"].clone();
    [blob, made, decision].map(|id| id.as_str().unwrap().to_owned())
}

/// What the other tenant tries with these ids; nothing of it leaves anything.
fn attempts([blob, made, decision]: &[String; 3]) -> Vec<(&'static str, String, Value)> {
    let c = |rest: &str| format!("/v1/conversations/c{rest}");
    let own = || "/v1/conversations/own/messages".to_owned();
    let block = json!({"type": "document", "source": {"type": "blob", "blobId": blob}});
    vec![
        ("GET", c(""), Value::Null),
        ("GET", c("/messages"), Value::Null),
        ("GET", c("/messages?before=9"), Value::Null),
        ("GET", c("/journal"), Value::Null),
        ("GET", c("/events"), Value::Null),
        ("GET", c("/events?after=3"), Value::Null),
        ("GET", c("/decisions"), Value::Null),
        ("DELETE", c(&format!("/decisions/{decision}")), Value::Null),
        ("POST", c("/messages"), json!({"text": "hi"})),
        ("POST", c("/cancel"), Value::Null),
        ("POST", c("/dispatch"), json!({"tool": "ask", "input": {}})),
        ("POST", c("/calls/ask/resolution"), json!({"approved": true})),
        ("POST", c("/fork"), json!({})),
        ("POST", c("/fork"), json!({"id": "stolen", "at_seq": 1})),
        ("DELETE", c(""), Value::Null),
        ("POST", "/v1/conversations".to_owned(), json!({"id": "own", "agent": "secret"})),
        ("POST", own(), json!({"agent": "secret", "text": "hi"})),
        ("POST", own(), json!({"agent": "a", "content": [block]})),
        ("GET", "/v1/conversations".to_owned(), Value::Null),
        ("GET", "/v1/pending".to_owned(), Value::Null),
        ("GET", "/v1/pending?conversation=c".to_owned(), Value::Null),
        ("GET", "/v1/agents".to_owned(), Value::Null),
        ("GET", "/v1/agents/secret".to_owned(), Value::Null),
        ("DELETE", "/v1/agents/secret".to_owned(), Value::Null),
        ("GET", "/v1/agents/secret/decisions".to_owned(), Value::Null),
        ("GET", "/v1/agents/a/decisions".to_owned(), Value::Null),
        ("DELETE", format!("/v1/agents/a/decisions/{decision}"), Value::Null),
        ("GET", format!("/v1/blobs/{blob}"), Value::Null),
        ("GET", "/v1/keys".to_owned(), Value::Null),
        ("DELETE", format!("/v1/keys/{made}"), Value::Null),
        ("POST", "/v1/keys".to_owned(), json!({"name": "k", "roles": ["user"], "replaces": made})),
        (
            "POST",
            "/v1/tokens".to_owned(),
            json!({"subject": "u", "conversation": "c", "scope": ["read"]}),
        ),
        ("POST", "/v1/tokens".to_owned(), json!({"subject": "u", "calls": ["c/ask/1"]})),
    ]
}

#[tokio::test]
async fn what_a_tenant_sees_beside_another_is_what_it_sees_alone() {
    let (beside, alone) = (two_tenants().await, two_tenants().await);
    let ids = everything_of_mine(&beside).await;
    let before = beside.get("mine", "/v1/conversations/c/journal").await.body;
    for (method, path, body) in attempts(&ids) {
        let seen = async |guarded: &GuardedApi| {
            let mut answer = guarded.send("theirs", method, &path, body.clone()).await;
            if let Some(members) = answer.body.as_object_mut() {
                members.remove("instance");
            }
            (answer.status, answer.body)
        };
        let (beside, alone) = (seen(&beside).await, seen(&alone).await);
        assert_eq!(beside, alone, "{method} {path} {body}");
        assert!(alone.0 == 200 || (404..=422).contains(&alone.0), "{method} {path}: {alone:?}");
    }
    for (method, path) in [("GET", "/audit/c".to_owned()), ("DELETE", format!("/blobs/{}", ids[0]))]
    {
        let seen = async |guarded: &GuardedApi| {
            let (status, mut body) = admin(guarded, "theirs", method, &path).await;
            body.as_object_mut().unwrap().remove("instance");
            (status, body)
        };
        let alone = seen(&alone).await;
        assert_eq!((alone.0, seen(&beside).await), (404, alone), "{method} {path}");
    }
    // And what was tried has changed nothing.
    assert_eq!(beside.get("mine", "/v1/conversations/c/journal").await.body, before);
    assert_eq!(beside.get("mine", "/v1/agents/secret").await.status, 200);
    assert_eq!(store_blob(&beside, "mine", SECRET).await.status, 200, "the blob is still there");
    let keys = beside.get("mine", "/v1/keys").await.body;
    assert_eq!(keys["keys"][0]["id"], *ids[1]);
}

#[tokio::test]
async fn the_same_id_in_two_tenants_is_two_conversations() {
    let guarded = two_tenants().await;
    say(&guarded, "mine", "c", "mine").await;
    say(&guarded, "theirs", "c", "theirs").await;
    let resolution = "/v1/conversations/c/calls/ask/resolution";
    let approved = guarded.send("theirs", "POST", resolution, json!({"approved": true})).await;
    assert_eq!(approved.status, 200, "{approved:?}");
    while guarded.get("theirs", "/v1/conversations/c").await.body["state"] != "idle" {
        tokio::task::yield_now().await;
    }
    let messages = guarded.get("theirs", "/v1/conversations/c/messages").await.body.to_string();
    assert!(messages.contains("the plans of acme") && !messages.contains("mine"), "{messages}");
    for path in ["/v1/conversations/c", "/v1/conversations/c/journal", "/v1/conversations"] {
        let shown = guarded.get("theirs", path).await.body.to_string();
        assert!(!shown.contains("acme/"), "clients know local ids: {shown}");
    }
    let mine = guarded.get("mine", "/v1/conversations/c").await.body;
    assert_eq!(mine["state"], "awaiting_input", "the other call waits on");
    assert_eq!(mine["id"], "c");
    let identity = &guarded.get("theirs", "/v1/conversations/c/journal").await.body["events"][1];
    assert_eq!(identity["data"]["identity"]["tenant"], "acme");
    let deleted = guarded.send("theirs", "DELETE", "/v1/conversations/c", Value::Null).await;
    assert_eq!(deleted.status, 204);
    assert_eq!(guarded.get("mine", "/v1/conversations/c").await.body, mine);
}

#[tokio::test]
async fn an_idempotency_key_is_one_of_its_tenant() {
    let guarded = two_tenants().await;
    let mut ids = Vec::new();
    for who in ["mine", "theirs", "mine", "theirs"] {
        let request = guarded.api.request("POST", "/v1/conversations").bearer_auth(key(who));
        let request = request.header("Idempotency-Key", "k-1").json(&json!({"agent": "a"}));
        let created = guarded.api.send(request).await;
        assert_eq!(created.status, 201, "{created:?}");
        ids.push(created.body["id"].as_str().unwrap().to_owned());
    }
    assert_eq!(ids[..2], ids[2..], "a repeat finds its own");
    assert_ne!(ids[0], ids[1]);
    guarded
        .get("theirs", &format!("/v1/conversations/{}", ids[0]))
        .await
        .is_problem(404, "not-found");
    for (who, text) in [("mine", "one"), ("theirs", "two")] {
        let request = guarded.api.request("POST", "/v1/conversations/c/messages");
        let request = request.bearer_auth(key(who)).header("Idempotency-Key", "k-2");
        let body = json!({"agent": "a", "text": text, "message_id": "m"});
        let sent = guarded.api.send(request.json(&body)).await;
        assert_eq!((sent.status, &sent.body["seq"]), (202, &json!(2)), "{who}: {sent:?}");
    }
}

#[tokio::test]
async fn a_cursor_of_another_tenant_is_one_that_no_list_returned() {
    let guarded = two_tenants().await;
    for id in ["c", "d"] {
        say(&guarded, "mine", id, "go").await;
    }
    for path in ["/v1/conversations", "/v1/pending"] {
        let page = guarded.get("mine", &format!("{path}?limit=1")).await.body;
        let cursor = page["cursor"].as_str().unwrap();
        let next = format!("{path}?limit=1&cursor={cursor}");
        assert_eq!(guarded.get("mine", &next).await.status, 200);
        guarded.get("theirs", &next).await.names("cursor: ");
    }
}

#[tokio::test]
async fn a_stream_shows_its_tenants_conversation_wherever_it_begins() {
    let guarded = two_tenants().await;
    say(&guarded, "theirs", "c", "theirs").await;
    say(&guarded, "mine", "c", SECRET).await;
    let mut streams = vec![stream(&guarded, "theirs", "c").await];
    for last in ["0", "1", "99"] {
        let request = guarded.api.request("GET", "/v1/conversations/c/events");
        let request = request.bearer_auth(key("theirs")).header("Last-Event-ID", last);
        streams.push(Stream::open(request).await);
    }
    for id in ["c", "d"] {
        let cancel = format!("/v1/conversations/{id}/cancel");
        guarded.send("mine", "POST", &cancel, Value::Null).await;
    }
    let cancel = "/v1/conversations/c/cancel";
    assert_eq!(guarded.send("theirs", "POST", cancel, Value::Null).await.status, 200);
    for stream in &mut streams {
        let frames = stream.all_until("turn_cancelled").await;
        assert!(!format!("{frames:?}").contains(SECRET), "{frames:?}");
    }
}

#[tokio::test]
async fn a_token_is_for_its_tenants_conversation_and_ends_with_it() {
    let guarded = two_tenants().await;
    for who in ["mine", "theirs"] {
        say(&guarded, who, "c", who).await;
    }
    let body = json!({"subject": "u", "conversation": "c", "scope": ["read"]});
    let minted = guarded.send("theirs", "POST", "/v1/tokens", body).await;
    let token = minted.body["token"].as_str().unwrap();
    let read = async || {
        let request = guarded.api.request("GET", "/v1/conversations/c/messages");
        guarded.api.send(request.bearer_auth(token)).await
    };
    let messages = read().await.body.to_string();
    assert!(messages.contains("theirs") && !messages.contains("mine"), "{messages}");
    let deleted = guarded.send("theirs", "DELETE", "/v1/conversations/c", Value::Null).await;
    assert_eq!(deleted.status, 204);
    read().await.is_problem(404, "not-found");
    say(&guarded, "theirs", "c", "anew").await;
    read().await.is_problem(404, "not-found");
}

#[tokio::test]
async fn a_workspace_is_its_tenants() {
    let guarded = two_tenants().await;
    let files = json!({"model": {"provider": "scripted", "script": [{"text": "hi"}]},
        "tools": [{"builtin": ["read", "write"]}]});
    let dispatch = async |who: &str, tool: &str, input: Value| {
        let body = json!({"tool": tool, "input": input});
        guarded.send(who, "POST", "/v1/conversations/w/dispatch", body).await.body
    };
    for who in ["mine", "theirs"] {
        define(&guarded, who, "files", files.clone()).await;
        let new = json!({"id": "w", "agent": "files"});
        assert_eq!(guarded.send(who, "POST", "/v1/conversations", new).await.status, 201);
    }
    let wrote = dispatch("mine", "write", json!({"path": "plan.txt", "content": SECRET})).await;
    assert_eq!(wrote["ok"], true, "{wrote}");
    let read = dispatch("theirs", "read", json!({"path": "plan.txt"})).await;
    assert_eq!(read["ok"], false, "{read}");
    assert!(!read.to_string().contains(SECRET), "{read}");
    let read = dispatch("mine", "read", json!({"path": "plan.txt"})).await;
    assert!(read.to_string().contains(SECRET), "{read}");
}

#[tokio::test]
async fn a_key_of_one_tenant_is_made_and_revoked_by_it_alone() {
    let guarded = two_tenants().await;
    let made = json!({"name": "k", "roles": ["user"]});
    let made = guarded.send("mine", "POST", "/v1/keys", made).await.body;
    let with_it = async || {
        let request = guarded.api.request("GET", "/v1/me");
        guarded.api.send(request.bearer_auth(made["key"].as_str().unwrap())).await
    };
    assert_eq!(with_it().await.body["tenant"], "default");
    let path = format!("/v1/keys/{}", made["id"].as_str().unwrap());
    guarded.send("theirs", "DELETE", &path, Value::Null).await.is_problem(404, "not-found");
    assert_eq!(with_it().await.status, 200);
    let theirs =
        guarded.send("theirs", "POST", "/v1/keys", json!({"name": "t", "roles": ["user"]}));
    assert_eq!(theirs.await.status, 201);
    let mine = guarded.get("mine", "/v1/keys").await.body;
    assert_eq!(mine["keys"].as_array().unwrap().len(), 1, "{mine}");
}

#[tokio::test]
async fn operators_see_the_conversations_of_all_tenants_without_their_content() {
    let guarded = two_tenants().await;
    for who in ["mine", "theirs"] {
        say(&guarded, who, "c", SECRET).await;
    }
    let (_, rows) = admin(&guarded, "operator", "GET", "/actors").await;
    let ids = rows["actors"].as_array().unwrap().iter().map(|row| &row["conversation_id"]);
    assert!(ids.eq(["acme/c", "c"]), "{rows}");
    let (status, row) = admin(&guarded, "operator", "GET", "/actors/acme%2Fc").await;
    assert_eq!((status, &row["conversation_id"]), (200, &json!("acme/c")));
    assert!(!row.to_string().contains(SECRET), "{row}");
    let (status, _) = admin(&guarded, "operator", "POST", "/actors/acme%2Fc/cancel").await;
    assert_eq!(status, 200);
    let mine = guarded.get("mine", "/v1/conversations/c").await.body;
    assert_eq!(mine["state"], "awaiting_input", "the other goes on");
    for id in ["default%2Fc", "acme%2Fd", "globex%2Fc", "a%2Fb%2Fc"] {
        let (status, _) = admin(&guarded, "operator", "GET", &format!("/actors/{id}")).await;
        assert_eq!(status, 404, "{id}");
    }
    // A tenant's auditor names the tenant's own conversations, and no others.
    for (who, id, expected) in
        [("mine", "c", 200), ("theirs", "c", 200), ("mine", "acme%2Fc", 404), ("theirs", "d", 404)]
    {
        let (status, entries) = admin(&guarded, who, "GET", &format!("/audit/{id}")).await;
        assert_eq!(status, expected, "{who} {id}");
        let is_mine = entries.to_string().contains(SECRET);
        assert!(!is_mine || who == "mine" || id == "c", "{who} {id}");
    }
}

#[tokio::test]
async fn a_blob_of_one_tenant_is_deleted_by_its_administrators_and_by_operators() {
    let guarded = two_tenants().await;
    let mut ids = Vec::new();
    for who in ["mine", "theirs"] {
        let stored = store_blob(&guarded, who, "the same bytes").await;
        assert_eq!(stored.status, 201, "new for each tenant: {stored:?}");
        ids.push(stored.body["id"].as_str().unwrap().to_owned());
    }
    assert_eq!(ids[0], ids[1]);
    let id = &ids[0];
    let read = async |who: &str| {
        let request = guarded.api.request("GET", &format!("/v1/blobs/{id}"));
        request.bearer_auth(key(who)).send().await.unwrap().status().as_u16()
    };
    assert_eq!(admin(&guarded, "theirs", "DELETE", &format!("/blobs/{id}")).await.0, 204);
    assert_eq!((read("mine").await, read("theirs").await), (200, 404));
    assert_eq!(admin(&guarded, "mine", "DELETE", &format!("/blobs/acme%2F{id}")).await.0, 404);
    store_blob(&guarded, "theirs", "the same bytes").await;
    assert_eq!(admin(&guarded, "operator", "DELETE", &format!("/blobs/acme%2F{id}")).await.0, 204);
    assert_eq!((read("mine").await, read("theirs").await), (200, 404));
}

#[tokio::test]
async fn a_message_shows_a_blob_of_its_tenant() {
    let guarded = two_tenants().await;
    let stored = store_blob(&guarded, "theirs", "of acme").await.body;
    let block = json!({"type": "document", "source": {"type": "blob", "blobId": stored["id"]}});
    let message = json!({"agent": "a", "content": [block]});
    let sent =
        guarded.send("theirs", "POST", "/v1/conversations/c/messages", message.clone()).await;
    assert_eq!(sent.status, 202, "{sent:?}");
    let messages = guarded.get("theirs", "/v1/conversations/c/messages").await.body;
    let source = &messages["messages"][0]["content"][0]["source"];
    assert_eq!((&source["blobId"], &source["size"]), (&stored["id"], &json!(7)), "{messages}");
    let refused = guarded.send("mine", "POST", "/v1/conversations/c/messages", message).await;
    refused.names("content[0].source.blobId: blob not found");
}
