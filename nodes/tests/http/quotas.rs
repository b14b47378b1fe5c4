//! Quotas of tenants, and what a tenant has used.

use serde_json::{Value, json};
use tokio::time::timeout;

use crate::access::{GuardedApi, key, key_line};
use crate::api::{Api, ApiResponse, DEADLINE};
use crate::stream::Stream;

const EVERYTHING: [&str; 5] = ["user", "backend", "author", "tenant-admin", "approver"];
const USAGE: [&str; 6] = ["turns", "steps", "calls", "input_tokens", "output_tokens", "cost_usd"];

/// A file with a key for each of two tenants, `mine` for `default`, which has these quotas, and `theirs`
/// for `acme`, which has none.
fn document(quotas: &Value) -> Value {
    let line = |id, tenant| {
        let mut line = key_line(id, &EVERYTHING);
        line["tenant"] = json!(tenant);
        line
    };
    json!({"keys": [line("mine", "default"), line("theirs", "acme"), key_line("ops", &["operator"])],
        "tenants": {"default": {"quotas": quotas}, "acme": {}}})
}

/// A node with the quotas, and with an agent `a` in each tenant, of which a turn makes one call and uses
/// tokens.
async fn limited(quotas: Value) -> GuardedApi {
    let guarded = GuardedApi::start(&document(&json!({}))).await;
    let usage = json!({"input_tokens": 40, "output_tokens": 2});
    let script = json!([
        {"calls": [{"id": "ask", "name": "ask", "args": {}}], "usage": usage},
        {"text": "done", "usage": usage},
    ]);
    let agent = json!({
        "model": {"provider": "scripted", "script": script},
        "tools": [{"name": "ask", "executor": "client"}],
    });
    for who in ["mine", "theirs"] {
        let defined = guarded.send(who, "PUT", "/v1/agents/a", agent.clone()).await;
        assert_eq!(defined.status, 201, "{defined:?}");
    }
    set_quotas(&guarded, quotas).await;
    guarded
}

/// Puts other quotas in force.
async fn set_quotas(guarded: &GuardedApi, quotas: Value) {
    // A key that only the new file has tells when it is in force.
    let mut document = document(&quotas);
    let id = format!("probe{}", quotas.to_string().bytes().map(u64::from).sum::<u64>());
    document["keys"].as_array_mut().unwrap().push(key_line(&id, &["operator"]));
    guarded.replace(&document, &id).await;
}

fn assert_exceeded(refused: &ApiResponse, quota: &str) -> u64 {
    refused.is_problem(429, "quota-exceeded");
    assert_eq!(refused.body["quota"], quota);
    let seconds = refused.body["retry_after"].as_u64().unwrap();
    assert!(seconds > 0);
    assert_eq!(refused.headers["retry-after"], seconds.to_string());
    seconds
}

async fn create(guarded: &GuardedApi, who: &str, id: &str) -> ApiResponse {
    guarded.send(who, "POST", "/v1/conversations", json!({"id": id, "agent": "a"})).await
}

async fn say(guarded: &GuardedApi, who: &str, id: &str) -> ApiResponse {
    let path = format!("/v1/conversations/{id}/messages");
    guarded.send(who, "POST", &path, json!({"agent": "a", "text": "hi"})).await
}

/// Asks until there is an answer, and no longer than anything here takes.
async fn until_some<T>(mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = ask().await {
                return found;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, found).await.unwrap()
}

async fn until(guarded: &GuardedApi, who: &str, id: &str, state: &str) {
    let path = format!("/v1/conversations/{id}");
    until_some(async || (guarded.get(who, &path).await.body["state"] == state).then_some(())).await;
}

/// A turn from its message to its end.
async fn turn(guarded: &GuardedApi, who: &str, id: &str) {
    let sent = say(guarded, who, id).await;
    assert_eq!(sent.status, 202, "{sent:?}");
    until(guarded, who, id, "awaiting_input").await;
    answer(guarded, who, id).await;
    until(guarded, who, id, "idle").await;
}

async fn answer(guarded: &GuardedApi, who: &str, id: &str) {
    let pending = guarded.get(who, &format!("/v1/pending?conversation={id}")).await.body;
    let call = pending["pending"][0]["call_id"].as_str().unwrap().to_owned();
    let path = format!("/v1/conversations/{id}/calls/{call}/resolution");
    let answered = guarded.send(who, "POST", &path, json!({"result": 1})).await;
    assert_eq!(answered.status, 200, "{answered:?}");
}

async fn store_blob(guarded: &GuardedApi, who: &str, bytes: &str) -> ApiResponse {
    let request = guarded.api.request("POST", "/v1/blobs").bearer_auth(key(who));
    guarded.api.send(request.header("Content-Type", "text/plain").body(bytes.to_owned())).await
}

#[tokio::test]
async fn requests_are_counted_by_the_minute_and_those_of_another_tenant_are_not() {
    let metrics = abide::start_metrics().unwrap();
    let guarded = limited(json!({"requests_per_minute": 3})).await;
    for _ in 0..3 {
        assert_eq!(guarded.get("mine", "/v1/agents").await.status, 200);
    }
    let seconds = assert_exceeded(&guarded.get("mine", "/v1/agents").await, "requests_per_minute");
    assert!(seconds <= 20, "{seconds}");
    // Whatever is asked, and whether it is allowed or there is such a thing.
    for path in ["/v1/conversations/nothing", "/v1/pending", "/v1/usage"] {
        assert_exceeded(&guarded.get("mine", path).await, "requests_per_minute");
    }
    assert_eq!(guarded.get("mine", "/v1/me").await.status, 200);
    assert_eq!(guarded.get("theirs", "/v1/agents").await.status, 200);
    set_quotas(&guarded, json!({"requests_per_minute": 1000})).await;
    assert_eq!(guarded.get("mine", "/v1/agents").await.status, 200);
    set_quotas(&guarded, json!({"requests_per_minute": 0})).await;
    assert_exceeded(&guarded.get("mine", "/v1/agents").await, "requests_per_minute");
    assert_eq!(guarded.get("theirs", "/v1/agents").await.status, 200);
    let metrics = metrics.render();
    let line = metrics.lines().find(|line| line.starts_with("abide_quota_refusals_total{"));
    assert!(line.is_some_and(|line| line.contains("quota=\"requests_per_minute\"")), "{line:?}");
}

#[tokio::test]
async fn streams_beyond_the_quota_are_refused_until_one_ends() {
    let guarded = limited(json!({"open_streams": 1})).await;
    create(&guarded, "mine", "c").await;
    create(&guarded, "theirs", "c").await;
    let path = "/v1/conversations/c/events";
    let request = |who| guarded.api.request("GET", path).bearer_auth(key(who));
    let open = Stream::open(request("mine")).await;
    assert_exceeded(&guarded.get("mine", path).await, "open_streams");
    let _theirs = Stream::open(request("theirs")).await;
    drop(open);
    until_some(async || (request("mine").send().await.unwrap().status() == 200).then_some(()))
        .await;
}

#[tokio::test]
async fn a_tenant_has_so_many_conversations_and_a_deletion_gives_one_back() {
    let guarded = limited(json!({"conversations": 2})).await;
    for id in ["c", "d"] {
        assert_eq!(create(&guarded, "mine", id).await.status, 201);
    }
    assert_exceeded(&create(&guarded, "mine", "e").await, "conversations");
    assert_exceeded(&say(&guarded, "mine", "e").await, "conversations");
    let fork = guarded.send("mine", "POST", "/v1/conversations/c/fork", json!({"id": "e"})).await;
    assert_exceeded(&fork, "conversations");
    // What exists is no new one.
    create(&guarded, "mine", "c").await.is_problem(409, "conversation-exists");
    turn(&guarded, "mine", "c").await;
    for id in ["c", "d", "e"] {
        assert_eq!(create(&guarded, "theirs", id).await.status, 201);
    }
    let deleted = guarded.send("mine", "DELETE", "/v1/conversations/d", Value::Null).await;
    assert_eq!(deleted.status, 204);
    assert_eq!(create(&guarded, "mine", "e").await.status, 201);
    assert_exceeded(&create(&guarded, "mine", "f").await, "conversations");
    // Below what there is: nothing is created, and what there is goes on.
    set_quotas(&guarded, json!({"conversations": 1})).await;
    assert_exceeded(&create(&guarded, "mine", "f").await, "conversations");
    turn(&guarded, "mine", "e").await;
    set_quotas(&guarded, json!({"conversations": 3})).await;
    assert_eq!(create(&guarded, "mine", "f").await.status, 201);
}

#[tokio::test]
async fn a_repeat_of_a_creation_gets_its_answer_when_there_is_no_more_room() {
    let guarded = limited(json!({"conversations": 1})).await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let request = guarded.api.request("POST", "/v1/conversations").bearer_auth(key("mine"));
        let request = request.header("Idempotency-Key", "k").json(&json!({"agent": "a"}));
        let created = guarded.api.send(request).await;
        assert_eq!(created.status, 201, "{created:?}");
        ids.push(created.body["id"].clone());
    }
    assert_eq!(ids[0], ids[1]);
}

#[tokio::test]
async fn a_tenant_stores_so_many_bytes_and_a_deletion_gives_them_back() {
    let guarded = limited(json!({"blob_bytes": "4KiB"})).await;
    let (one, two) = ("1".repeat(3_000), "2".repeat(2_000));
    let stored = store_blob(&guarded, "mine", &one).await;
    assert_eq!(stored.status, 201);
    assert_exceeded(&store_blob(&guarded, "mine", &two).await, "blob_bytes");
    assert_eq!(store_blob(&guarded, "mine", &one).await.status, 200, "it is there already");
    assert_eq!(store_blob(&guarded, "theirs", &two).await.status, 201);
    // The media of a message count, too.
    let data = "QUFB".repeat(600);
    let source = json!({"type": "base64", "mimeType": "image/png", "data": data});
    let message = json!({"agent": "a", "content": [{"type": "image", "source": source}]});
    let path = "/v1/conversations/c/messages";
    let refused = guarded.send("mine", "POST", path, message.clone()).await;
    assert_exceeded(&refused, "blob_bytes");
    guarded.get("mine", "/v1/conversations/c").await.is_problem(404, "not-found");
    let admin = guarded.api.node.admin.clone();
    let url = format!("http://{admin}/admin/blobs/{}", stored.body["id"].as_str().unwrap());
    let deleted = reqwest::Client::new().delete(url).bearer_auth(key("mine")).send().await.unwrap();
    assert_eq!(deleted.status(), 204);
    assert_eq!(store_blob(&guarded, "mine", &two).await.status, 201);
    assert_eq!(guarded.send("mine", "POST", path, message).await.status, 202);
}

#[tokio::test]
async fn when_the_tokens_of_the_day_are_used_new_messages_are_refused_and_turns_end() {
    let guarded = limited(json!({"tokens_per_day": 10})).await;
    let request = || {
        let request = guarded.api.request("POST", "/v1/conversations/c/messages");
        request
            .bearer_auth(key("mine"))
            .json(&json!({"agent": "a", "text": "hi", "message_id": "m"}))
    };
    let sent = guarded.api.send(request()).await;
    assert_eq!(sent.status, 202, "{sent:?}");
    until(&guarded, "mine", "c", "awaiting_input").await;
    // Close to the quota, what was read is at most a second old.
    let refused = until_some(async || {
        Some(say(&guarded, "mine", "d").await).filter(|refused| refused.status == 429)
    })
    .await;
    assert!(assert_exceeded(&refused, "tokens_per_day") <= 86_400);
    // A repeat of what was accepted gets the answer to that; an answer is accepted; the turn ends.
    assert_eq!(guarded.api.send(request()).await.body, sent.body);
    answer(&guarded, "mine", "c").await;
    until(&guarded, "mine", "c", "idle").await;
    assert_exceeded(&say(&guarded, "mine", "c").await, "tokens_per_day");
    assert_eq!(create(&guarded, "mine", "e").await.status, 201, "a conversation uses no tokens");
    turn(&guarded, "theirs", "c").await;
    set_quotas(&guarded, json!({"tokens_per_day": 1_000_000})).await;
    turn(&guarded, "mine", "c").await;
}

async fn usage(guarded: &GuardedApi, who: &str, query: &str) -> Value {
    let usage = guarded.get(who, &format!("/v1/usage{query}")).await;
    assert_eq!(usage.status, 200, "{usage:?}");
    usage.body
}

fn counted(counts: &Value) -> [f64; 6] {
    USAGE.map(|name| counts[name].as_f64().unwrap_or(-1.0))
}

#[tokio::test]
async fn usage_is_shown_by_agent_and_by_owner() {
    let guarded = limited(json!({})).await;
    turn(&guarded, "mine", "c").await;
    turn(&guarded, "mine", "d").await;
    let owner = json!({"id": "e", "agent": "a", "owner": "ann"});
    assert_eq!(guarded.send("mine", "POST", "/v1/conversations", owner).await.status, 201);
    turn(&guarded, "mine", "e").await;
    turn(&guarded, "theirs", "c").await;
    let one = [1.0, 2.0, 1.0, 80.0, 4.0, 0.0];
    let by_agent = usage(&guarded, "mine", "").await;
    assert_eq!(by_agent["by"], "agent");
    assert_eq!(by_agent["usage"].as_array().unwrap().len(), 1);
    assert_eq!(by_agent["usage"][0]["agent"], "a");
    assert_eq!(counted(&by_agent["usage"][0]), one.map(|number| 3.0 * number));
    let by_owner = usage(&guarded, "mine", "?by=owner").await;
    let rows: Vec<_> = by_owner["usage"].as_array().unwrap().iter().collect();
    assert_eq!(rows.iter().map(|row| &row["owner"]).collect::<Vec<_>>(), ["ann", "key:mine"]);
    assert_eq!(counted(rows[0]), one);
    assert_eq!(counted(rows[1]), one.map(|number| 2.0 * number));
    assert_eq!((&by_owner["total"], &by_owner["cursor"]), (&by_agent["total"], &Value::Null));
    // A page, and the next one.
    let first = usage(&guarded, "mine", "?by=owner&limit=1").await;
    assert_eq!((&first["usage"][0]["owner"], &first["total"]), (&json!("ann"), &by_agent["total"]));
    let cursor = first["cursor"].as_str().unwrap();
    let next = usage(&guarded, "mine", &format!("?by=owner&limit=1&cursor={cursor}")).await;
    assert_eq!((&next["usage"][0]["owner"], &next["cursor"]), (&json!("key:mine"), &Value::Null));
    let stolen = guarded.get("theirs", &format!("/v1/usage?by=owner&cursor={cursor}")).await;
    assert!(stolen.is_problem(422, "invalid-request").starts_with("cursor: "));
    assert_eq!(counted(&usage(&guarded, "theirs", "").await["total"]), one);
    // What was used stays used.
    for id in ["c", "d", "e"] {
        let path = format!("/v1/conversations/{id}");
        assert_eq!(guarded.send("mine", "DELETE", &path, Value::Null).await.status, 204);
    }
    assert_eq!(usage(&guarded, "mine", "?by=owner").await, by_owner);
    let past = usage(&guarded, "mine", "?from=2020-01-01&to=2020-01-31").await;
    assert_eq!((&past["usage"], counted(&past["total"])), (&json!([]), [0.0; 6]));
}

#[tokio::test]
async fn a_fork_uses_nothing_of_what_it_copies() {
    let guarded = limited(json!({})).await;
    turn(&guarded, "mine", "c").await;
    let before = usage(&guarded, "mine", "").await;
    let fork = guarded.send("mine", "POST", "/v1/conversations/c/fork", json!({"id": "f"})).await;
    assert_eq!(fork.status, 201, "{fork:?}");
    assert_eq!(usage(&guarded, "mine", "").await, before);
    turn(&guarded, "mine", "f").await;
    assert_eq!(usage(&guarded, "mine", "").await["total"]["turns"], 2);
}

#[tokio::test]
async fn usage_that_cannot_be_asked_for_names_its_parameter() {
    let guarded = limited(json!({})).await;
    for (query, parameter) in [
        ("from=2027-02-01&to=2027-01-31", "from"),
        ("from=yesterday", "from"),
        ("to=2027-02-30", "to"),
        ("from=20270101", "from"),
        ("from=2027-01-01T00:00:00Z", "from"),
        ("from=2017-01-01&to=2027-01-01", "to"),
        ("from=", "from"),
        ("by=model", "by"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("cursor=xyz", "cursor"),
        ("cursor=7b7d", "cursor"),
        ("day=2027-01-01", "day"),
    ] {
        let refused = guarded.get("mine", &format!("/v1/usage?{query}")).await;
        let detail = refused.is_problem(422, "invalid-request");
        assert!(detail.contains(parameter), "{query}: {detail}");
    }
}

#[tokio::test]
async fn a_node_without_authentication_counts_usage_too() {
    let open = Api::start().await;
    let usage = open.get("/v1/usage?by=owner").await;
    assert_eq!((usage.status, &usage.body["usage"]), (200, &json!([])));
    assert_eq!(counted(&usage.body["total"]), [0.0; 6]);
}
