//! The key-value state of a conversation over HTTP.

use axum::Router;
use axum::routing::post;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::api::Api;

fn key(name: &str) -> String {
    format!("/v1/conversations/c/state/{name}")
}

async fn with_conversation() -> Api {
    let api = Api::start().await;
    let new = json!({"id": "c", "agent": "demo"});
    assert_eq!(api.post("/v1/conversations", new).await.status, 201);
    api
}

#[tokio::test]
async fn a_key_is_set_read_replaced_and_removed() {
    let api = with_conversation().await;
    api.get(&key("cart")).await.is_problem(404, "not-found");
    for value in [json!({"items": [1]}), json!("text"), json!(0), json!(false), json!([])] {
        assert_eq!(api.put(&key("cart"), value.clone()).await.status, 204);
        let read = api.get(&key("cart")).await;
        assert_eq!((read.status, read.body), (200, value));
    }
    let last = |snapshot: Value| snapshot["last_seq"].as_u64().unwrap();
    let before = last(api.get("/v1/conversations/c").await.body);
    assert_eq!(api.put(&key("cart"), json!([])).await.status, 204);
    assert_eq!(last(api.get("/v1/conversations/c").await.body), before, "nothing changed");
    assert_eq!(api.delete(&key("cart")).await.status, 204);
    assert_eq!(api.delete(&key("cart")).await.status, 204);
    api.get(&key("cart")).await.is_problem(404, "not-found");
    let missing = api.put("/v1/conversations/nobody/state/cart", json!(1)).await;
    missing.is_problem(404, "not-found");
}

#[tokio::test]
async fn what_is_wrong_with_a_state_is_told_by_its_field_and_changes_nothing() {
    let api = with_conversation().await;
    api.put(&key("a%20b"), json!(1)).await.names("key: ");
    api.put(&key(&"k".repeat(129)), json!(1)).await.names("key: ");
    api.put(&key("a"), Value::Null).await.names("value: ");
    for (body, field) in [("18446744073709551616", "value: "), ("[{\"n\": 1N}]", "value.0.n: ")] {
        let request = api.request("PUT", &key("a")).header("Content-Type", "application/json");
        let long = body.replace('N', "8446744073709551616");
        api.send(request.body(long)).await.names(&format!("{field}must fit into 64 bits"));
    }
    api.delete(&key("a%20b")).await.names("key: ");
    let half = "x".repeat(40 << 10);
    assert_eq!(api.put(&key("a"), json!(half)).await.status, 204);
    api.put(&key("b"), json!(half)).await.names("state: ");
    assert_eq!(api.get(&key("a")).await.body, json!(half));
    api.get(&key("b")).await.is_problem(404, "not-found");
}

#[tokio::test]
async fn a_repeat_under_the_same_key_is_done_once_and_another_body_is_refused() {
    let api = with_conversation().await;
    let put = async |value: Value| api.keyed("k", "PUT", &key("n"), value).await;
    assert_eq!(put(json!(1)).await.status, 204);
    assert_eq!(api.put(&key("n"), json!(2)).await.status, 204);
    assert_eq!(put(json!(1)).await.status, 204);
    assert_eq!(api.get(&key("n")).await.body, 2, "the repeat set nothing");
    put(json!(3)).await.names("Idempotency-Key: ");
}

#[tokio::test]
async fn a_fork_has_the_state_of_its_prefix() {
    let api = with_conversation().await;
    assert_eq!(api.put(&key("n"), json!(1)).await.status, 204);
    let fork = json!({"id": "f"});
    assert_eq!(api.post("/v1/conversations/c/fork", fork).await.status, 201);
    assert_eq!(api.put(&key("n"), json!(2)).await.status, 204);
    assert_eq!(api.get("/v1/conversations/f/state/n").await.body, 1);
}

#[tokio::test]
async fn a_tool_reads_the_state_and_changes_it_with_its_result() {
    let api = with_conversation().await;
    let counts = |body: axum::Json<Value>| async move {
        let seen = body["state"]["seen"].as_u64().unwrap_or_default();
        let state = json!({"seen": seen + 1, "old": null});
        axum::Json(json!({"ok": true, "result": seen, "state": state}))
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let app = Router::new().fallback(post(counts));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let definition = json!({
        "tools": [{"name": "count", "run": {"http": {"url": url}}, "audience": "all"}],
        "model": {"provider": "scripted", "script": [{"text": "hi"}]},
    });
    assert_eq!(api.put("/v1/agents/counter", definition).await.status, 201);
    let new = json!({"id": "d", "agent": "counter"});
    assert_eq!(api.post("/v1/conversations", new).await.status, 201);
    let put = api.put("/v1/conversations/d/state/old", json!(1)).await;
    assert_eq!(put.status, 204);
    for seen in 0..2 {
        let call = json!({"tool": "count", "input": {}});
        let done = api.post("/v1/conversations/d/dispatch", call).await;
        assert_eq!(done.body["result"], seen, "{done:?}");
    }
    assert_eq!(api.get("/v1/conversations/d/state/seen").await.body, 2);
    api.get("/v1/conversations/d/state/old").await.is_problem(404, "not-found");
}
