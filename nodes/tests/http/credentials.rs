//! API keys and conversation tokens that the node makes, and streams that end with them.

use base64::prelude::{BASE64_STANDARD, Engine};
use jsonwebtoken::EncodingKey;
use serde_json::{Value, json};

use crate::access::{GuardedApi, TOKEN_KEY, key_line};
use crate::api::{ApiResponse, DEADLINE};
use crate::stream::Stream;

async fn guarded() -> GuardedApi {
    let keys: Vec<Value> =
        ["tenant-admin admin", "backend backend", "user ada", "user bob", "author author"]
            .iter()
            .filter_map(|line| line.split_once(' '))
            .map(|(role, id)| key_line(id, &[role]))
            .collect();
    let document = json!({"keys": keys, "tokens": {"keys": ["file:token.pem"]}});
    GuardedApi::start(&document).await
}

async fn with(
    guarded: &GuardedApi,
    credential: &str,
    method: &str,
    path: &str,
    body: Value,
) -> ApiResponse {
    let request = guarded.api.request(method, path).bearer_auth(credential);
    let request = if body.is_null() { request } else { request.json(&body) };
    guarded.api.send(request).await
}

async fn minted(guarded: &GuardedApi, who: &str, body: Value) -> String {
    let answer = guarded.send(who, "POST", "/v1/tokens", body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.body["token"].as_str().unwrap().to_owned()
}

async fn created(guarded: &GuardedApi, who: &str, id: &str) {
    let body = json!({"id": id, "agent": "demo"});
    assert_eq!(guarded.send(who, "POST", "/v1/conversations", body).await.status, 201);
}

#[tokio::test]
async fn a_key_that_was_made_is_accepted_until_it_is_revoked() {
    let guarded = guarded().await;
    let new = json!({"name": "shop", "roles": ["backend"], "expires_in": "720h"});
    let made = guarded.send("admin", "POST", "/v1/keys", new).await;
    assert_eq!(made.status, 201, "{made:?}");
    let (key, id) = (made.body["key"].as_str().unwrap(), made.body["id"].as_str().unwrap());
    let me = with(&guarded, key, "GET", "/v1/me", Value::Null).await.body;
    assert_eq!((&me["subject"], &me["name"]), (&json!(format!("key:{id}")), &json!("shop")));
    assert_eq!(me["expires_at"], made.body["expires_at"]);
    let rows = guarded.get("admin", "/v1/keys").await.body;
    assert_eq!(rows["keys"][0]["id"], id);
    assert_eq!(rows["keys"][0]["owner"], "key:admin");
    assert!(!rows.to_string().contains(key), "the key is shown once");
    let wrong = format!("{key}x");
    with(&guarded, &wrong, "GET", "/v1/me", Value::Null).await.is_problem(401, "unauthorized");
    let path = format!("/v1/keys/{id}");
    assert_eq!(guarded.send("admin", "DELETE", &path, Value::Null).await.status, 204);
    with(&guarded, key, "GET", "/v1/me", Value::Null).await.is_problem(401, "unauthorized");
    guarded.send("admin", "DELETE", &path, Value::Null).await.is_problem(404, "not-found");
}

#[tokio::test]
async fn a_key_that_replaces_another_leaves_it_for_a_while() {
    let guarded = guarded().await;
    let new = |name: &str| json!({"name": name, "roles": ["user"]});
    let old = guarded.send("admin", "POST", "/v1/keys", new("old")).await.body;
    let mut body = new("new");
    body["replaces"] = old["id"].clone();
    body["overlap"] = json!("1h");
    let newer = guarded.send("admin", "POST", "/v1/keys", body.clone()).await;
    assert_eq!(newer.status, 201);
    for key in [&old["key"], &newer.body["key"]] {
        let me = with(&guarded, key.as_str().unwrap(), "GET", "/v1/me", Value::Null).await;
        assert_eq!(me.status, 200);
    }
    let rows = guarded.get("admin", "/v1/keys").await.body;
    let old_row = &rows["keys"][0];
    assert!(old_row["expires_at"].as_str() < old["expires_at"].as_str(), "{old_row}");
    body["replaces"] = json!("nobody");
    guarded.send("admin", "POST", "/v1/keys", body).await.names("replaces: ");
}

#[tokio::test]
async fn a_key_that_was_made_ends_with_its_tenant() {
    let mut admin = key_line("acme-admin", &["tenant-admin"]);
    admin["tenant"] = json!("acme");
    let guarded =
        GuardedApi::start(&json!({"keys": [admin], "tenants": {"default": {}, "acme": {}}})).await;
    let new = json!({"name": "shop", "roles": ["backend"]});
    let made = guarded.send("acme-admin", "POST", "/v1/keys", new).await.body;
    let made = made["key"].as_str().unwrap();
    let me = async || with(&guarded, made, "GET", "/v1/me", Value::Null).await;
    assert_eq!(me().await.body["tenant"], "acme");
    guarded.replace(&json!({"keys": [key_line("new", &["user"])]}), "new").await;
    me().await.is_problem(401, "unauthorized");
}

#[tokio::test]
async fn a_wrong_field_of_a_key_is_named() {
    let guarded = guarded().await;
    for (field, body) in [
        ("name: ", json!({"name": "", "roles": ["user"]})),
        ("roles: ", json!({"name": "a", "roles": []})),
        ("roles: ", json!({"name": "a", "roles": ["operator"]})),
        ("roles[0]: ", json!({"name": "a", "roles": ["king"]})),
        ("expires_in: ", json!({"name": "a", "roles": ["user"], "expires_in": "9000h"})),
        ("overlap: ", json!({"name": "a", "roles": ["user"], "overlap": "1h"})),
    ] {
        guarded.send("admin", "POST", "/v1/keys", body).await.names(field);
    }
    let request = guarded.api.request("POST", "/v1/keys").bearer_auth(crate::access::key("admin"));
    let request = request.header("Idempotency-Key", "k");
    let refused = guarded.api.send(request.json(&json!({"name": "a", "roles": ["user"]}))).await;
    refused.names("Idempotency-Key: ");
}

#[tokio::test]
async fn a_token_permits_its_scopes_in_its_conversation() {
    let guarded = guarded().await;
    created(&guarded, "ada", "c").await;
    created(&guarded, "ada", "d").await;
    let body = json!({"subject": "u_17", "name": "Ada", "conversation": "c",
        "scope": ["read", "send"], "ttl": "1m"});
    let token = minted(&guarded, "backend", body).await;
    let me = with(&guarded, &token, "GET", "/v1/me", Value::Null).await.body;
    assert_eq!(
        (&me["auth"], &me["subject"], &me["name"]),
        (&json!("token"), &json!("u_17"), &json!("Ada"))
    );
    let send = |id: &str| format!("/v1/conversations/{id}/messages");
    let message = || json!({"text": "hi"});
    let sent = with(&guarded, &token, "POST", &send("c"), message()).await;
    assert_eq!(sent.status, 202, "{sent:?}");
    with(&guarded, &token, "POST", &send("d"), message()).await.is_problem(404, "not-found");
    let cancel = "/v1/conversations/c/cancel";
    let refused = with(&guarded, &token, "POST", cancel, Value::Null).await;
    assert_eq!((refused.status, &refused.body["needs"]), (403, &json!("cancel")));
    for path in ["/v1/conversations", "/v1/agents", "/v1/keys", "/v1/pending"] {
        with(&guarded, &token, "GET", path, Value::Null).await.is_problem(403, "forbidden");
    }
    let journal = guarded.get("ada", "/v1/conversations/c/journal").await.body;
    assert_eq!(journal["events"][1]["data"]["identity"]["sub"], "u_17");
    assert_eq!(journal["events"][1]["data"]["identity"]["auth"], "token");
    let minter = json!({"iss": "abide", "sub": "key:backend", "key_id": "backend"});
    assert_eq!(journal["events"][1]["data"]["identity"]["minted_by"], minter);
}

#[tokio::test]
async fn a_token_for_oneself_keeps_what_conditions_ask_for_and_permits_its_scopes_alone() {
    let guarded = guarded().await;
    created(&guarded, "backend", "c").await;
    let body = |subject: &str| json!({"subject": subject, "conversation": "c", "scope": ["read"]});
    let me = async |subject: &str| {
        let token = minted(&guarded, "backend", body(subject)).await;
        let cancel = "/v1/conversations/c/cancel";
        let refused = with(&guarded, &token, "POST", cancel, Value::Null).await;
        assert_eq!((refused.status, &refused.body["needs"]), (403, &json!("cancel")));
        with(&guarded, &token, "POST", "/v1/tokens", body("u")).await.is_problem(403, "forbidden");
        with(&guarded, &token, "GET", "/v1/me", Value::Null).await.body
    };
    assert_eq!(me("key:backend").await["roles"], json!(["backend"]));
    assert_eq!(me("u_17").await["roles"], json!([]));
}

#[tokio::test]
async fn who_waits_with_a_token_learns_what_it_may_answer() {
    let guarded = guarded().await;
    let ask = json!({"name": "ask", "description": "Asks.", "executor": "human"});
    let model = json!({"provider": "scripted",
        "script": [{"calls": [{"id": "a", "name": "ask", "args": {}}]}, {"text": "Done."}]});
    let agent = json!({"model": model, "tools": [ask]});
    assert_eq!(guarded.send("author", "PUT", "/v1/agents/asker", agent).await.status, 201);
    let body = json!({"id": "c", "agent": "asker"});
    assert_eq!(guarded.send("ada", "POST", "/v1/conversations", body).await.status, 201);
    let body = json!({"subject": "u_17", "conversation": "c",
        "scope": ["read", "send", "answer:human"]});
    let token = minted(&guarded, "backend", body).await;
    let send = "/v1/conversations/c/messages?wait=30s";
    let waited = with(&guarded, &token, "POST", send, json!({"text": "go"})).await;
    assert_eq!(waited.body["outcome"], "awaiting_input", "{waited:?}");
    let pending = &waited.body["pending"][0];
    assert_eq!((&pending["call_id"], &pending["may_answer"]), (&json!("a"), &json!(true)));
}

#[tokio::test]
async fn a_token_is_not_for_a_conversation_that_was_made_anew() {
    let guarded = guarded().await;
    created(&guarded, "ada", "c").await;
    let body = json!({"subject": "u", "conversation": "c", "scope": ["read"]});
    let token = minted(&guarded, "backend", body).await;
    let get = async || with(&guarded, &token, "GET", "/v1/conversations/c", Value::Null).await;
    assert_eq!(get().await.status, 200);
    let deleted = guarded.send("ada", "DELETE", "/v1/conversations/c", Value::Null).await;
    assert_eq!(deleted.status, 204);
    created(&guarded, "ada", "c").await;
    get().await.is_problem(404, "not-found");
}

#[tokio::test]
async fn a_token_for_a_prefix_creates_what_it_may() {
    let guarded = guarded().await;
    let body = json!({"subject": "u", "conversation_prefix": "u.", "agent": "demo",
        "scope": ["create", "send", "read"]});
    let token = minted(&guarded, "backend", body).await;
    let message = json!({"agent": "demo", "text": "hi"});
    let sent = with(&guarded, &token, "POST", "/v1/conversations/u.1/messages", message).await;
    assert_eq!(sent.status, 202, "{sent:?}");
    let snapshot = with(&guarded, &token, "GET", "/v1/conversations/u.1", Value::Null).await;
    assert_eq!(snapshot.body["owner"], "u");
    for (id, agent) in [("v.1", "demo"), ("u.2", "other")] {
        let body = json!({"id": id, "agent": agent});
        let refused = with(&guarded, &token, "POST", "/v1/conversations", body).await;
        refused.is_problem(403, "forbidden");
    }
}

#[tokio::test]
async fn a_token_is_minted_by_those_who_have_what_it_permits() {
    let guarded = guarded().await;
    created(&guarded, "ada", "c").await;
    let body = |subject: &str, id: &str, scope: &str| json!({"subject": subject, "conversation": id, "scope": [scope]});
    minted(&guarded, "ada", body("key:ada", "c", "read")).await;
    for (who, body, status) in [
        ("ada", body("u_17", "c", "read"), 403),
        ("ada", body("key:ada", "c", "approve"), 403),
        ("bob", body("key:bob", "c", "read"), 404),
        ("backend", body("u", "nowhere", "read"), 404),
        ("backend", body("u", "nowhere", "create"), 201),
        ("ada", json!({"subject": "key:ada", "conversation_prefix": "a", "scope": ["read"]}), 403),
        ("backend", json!({"subject": "u", "calls": ["c/call_1/1"]}), 409),
    ] {
        let answer = guarded.send(who, "POST", "/v1/tokens", body.clone()).await;
        assert_eq!(answer.status, status, "{who} {body}: {answer:?}");
    }
    for (field, body) in [
        ("subject: ", body("system", "c", "read")),
        ("scope", body("u", "c", "everything")),
        ("scope: ", json!({"subject": "u", "conversation": "c"})),
        ("ttl: ", json!({"subject": "u", "conversation": "c", "scope": ["read"], "ttl": "2h"})),
        ("conversation: ", json!({"subject": "u", "scope": ["read"]})),
        ("calls: ", json!({"subject": "u", "calls": ["c/call_1"]})),
        ("agent: ", json!({"subject": "u", "conversation": "c", "scope": ["read"], "agent": "a"})),
    ] {
        guarded.send("backend", "POST", "/v1/tokens", body).await.names(field);
    }
}

#[tokio::test]
async fn a_token_does_what_its_scope_says_also_where_no_conversation_is_named() {
    let guarded = guarded().await;
    created(&guarded, "ada", "c").await;
    let body = json!({"subject": "u", "conversation": "c", "scope": ["read"]});
    let token = minted(&guarded, "backend", body).await;
    for (path, body) in [
        ("/v1/conversations", json!({"id": "d", "agent": "demo"})),
        ("/v1/blobs", json!({"text": "stored"})),
    ] {
        let refused = with(&guarded, &token, "POST", path, body).await;
        assert_eq!(refused.status, 403, "{path}: {refused:?}");
    }
}

#[tokio::test]
async fn what_our_key_signed_as_something_else_is_no_token() {
    let guarded = guarded().await;
    created(&guarded, "ada", "c").await;
    let body = json!({"subject": "u", "conversation": "c", "scope": ["read"]});
    let token = minted(&guarded, "backend", body).await;
    let claims = jsonwebtoken::dangerous::insecure_decode::<Value>(&token).unwrap().claims;
    let der = BASE64_STANDARD.decode(TOKEN_KEY.lines().nth(1).unwrap()).unwrap();
    let key = EncodingKey::from_ed_der(&der);
    for (typ, status) in [(Some("abide+jwt"), 200), (Some("JWT"), 401), (None, 401)] {
        let mut header = jsonwebtoken::decode_header(&token).unwrap();
        header.typ = typ.map(str::to_owned);
        let signed = jsonwebtoken::encode(&header, &claims, &key).unwrap();
        let read = with(&guarded, &signed, "GET", "/v1/conversations/c", Value::Null).await;
        assert_eq!(read.status, status, "{typ:?}: {read:?}");
    }
}

#[tokio::test]
async fn a_reply_link_answers_its_call_once_and_does_nothing_else() {
    let guarded = guarded().await;
    let mail = json!({"agent": "demo", "text": "Please send a mail"});
    let path = "/v1/conversations/c/messages";
    assert_eq!(guarded.send("ada", "POST", path, mail).await.status, 202);
    while guarded.get("ada", "/v1/conversations/c").await.body["state"] != "awaiting_input" {
        tokio::task::yield_now().await;
    }
    let body = json!({"subject": "boss@example.com", "calls": ["c/call_1_1/1"]});
    let answer = guarded.send("backend", "POST", "/v1/tokens", body).await;
    let pending = guarded.get("ada", "/v1/pending").await.body;
    let deadline = pending["pending"][0]["expires_at"].as_str().unwrap();
    assert_eq!(answer.body["expires_at"].as_str().unwrap()[..19], deadline[..19]);
    let link = answer.body["token"].as_str().unwrap();
    for path in ["/v1/conversations/c", "/v1/conversations/c/events"] {
        with(&guarded, link, "GET", path, Value::Null).await.is_problem(404, "not-found");
    }
    let resolution = "/v1/conversations/c/calls/call_1_1/resolution";
    let approve = || json!({"approved": true});
    let accepted = with(&guarded, link, "POST", resolution, approve()).await;
    assert_eq!(accepted.status, 200, "{accepted:?}");
    let again = with(&guarded, link, "POST", resolution, approve()).await;
    again.is_problem(409, "call-not-open");
}

#[tokio::test]
async fn a_token_that_is_older_than_its_conversation_is_not_for_that_of_somebody_else() {
    let guarded = guarded().await;
    let scope = json!(["create", "read", "send"]);
    let body = json!({"subject": "eve", "conversation": "late", "scope": scope});
    let token = minted(&guarded, "backend", body).await;
    let new = json!({"id": "late", "agent": "demo"});
    let made = with(&guarded, &token, "POST", "/v1/conversations", new).await;
    assert_eq!(made.status, 201, "{made:?}");
    let (path, messages) = ("/v1/conversations/late", "/v1/conversations/late/messages");
    assert_eq!(with(&guarded, &token, "GET", path, Value::Null).await.status, 200);
    let hello = || json!({"text": "hello"});
    assert_eq!(with(&guarded, &token, "POST", messages, hello()).await.status, 202);
    assert_eq!(guarded.send("backend", "DELETE", path, Value::Null).await.status, 204);
    created(&guarded, "ada", "late").await;
    with(&guarded, &token, "GET", path, Value::Null).await.is_problem(404, "not-found");
    with(&guarded, &token, "POST", messages, hello()).await.is_problem(404, "not-found");
}

#[tokio::test]
async fn a_stream_ends_with_its_credential() {
    let guarded = guarded().await;
    let new = json!({"name": "page", "roles": ["backend"]});
    let made = guarded.send("admin", "POST", "/v1/keys", new).await.body;
    created(&guarded, "ada", "c").await;
    let body = json!({"subject": "u", "conversation": "c", "scope": ["read"], "ttl": "2s"});
    let token = minted(&guarded, "backend", body).await;
    let open = async |credential: &str| {
        let path = "/v1/conversations/c/events";
        Stream::open(guarded.api.request("GET", path).bearer_auth(credential)).await
    };
    let mut by_token = open(&token).await;
    let mut by_key = open(made["key"].as_str().unwrap()).await;
    by_key.until("snapshot").await;
    by_token.until("snapshot").await;
    // A stream in the words of another protocol does, too.
    let slow = json!({"model": {"provider": "scripted",
        "script": [{"text": "late", "delay": "60s"}]}});
    assert_eq!(guarded.send("author", "PUT", "/v1/agents/slow", slow).await.status, 201);
    let body =
        json!({"model": "slow", "stream": true, "messages": [{"role": "user", "content": "go"}]});
    let completion = guarded.api.request("POST", "/openai/v1/chat/completions");
    let completion = completion.bearer_auth(made["key"].as_str().unwrap()).json(&body);
    let completion = completion.send().await.unwrap();
    assert_eq!(completion.status(), 200);
    let path = format!("/v1/keys/{}", made["id"].as_str().unwrap());
    assert_eq!(guarded.send("admin", "DELETE", &path, Value::Null).await.status, 204);
    for stream in [&mut by_key, &mut by_token] {
        assert_eq!(stream.until("credential_ended").await.data, json!({}));
        assert!(stream.next().await.is_none(), "the stream ends");
    }
    let completion = tokio::time::timeout(DEADLINE, completion.text()).await.unwrap().unwrap();
    assert!(completion.contains("the credential has ended"), "{completion}");
}
