//! Forks over HTTP.

use serde_json::{Value, json};

use crate::api::Api;

#[tokio::test]
async fn a_fork_is_made_once_under_its_key_and_shows_where_it_came_from() {
    let api = Api::start().await;
    api.post("/v1/conversations", json!({"id": "x", "agent": "demo"})).await;
    let keyed = |body: Value| api.keyed("k-1", "POST", "/v1/conversations/x/fork", body);
    let made = keyed(json!({"at_seq": 1})).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(keyed(json!({"at_seq": 1})).await.body, made.body);
    keyed(json!({})).await.is_problem(422, "invalid-request");
    let id = made.body["id"].as_str().unwrap();
    let journal = api.get(&format!("/v1/conversations/{id}/journal")).await.body;
    let original = api.get("/v1/conversations/x/journal").await.body;
    let created_at = &original["events"][0]["at"];
    let from = json!({"conversation_id": "x", "at_seq": 1, "created_at": created_at});
    assert_eq!(journal["events"][0]["data"]["fork"], from);
    assert_eq!(journal["events"][1]["type"], "forked");
    assert_eq!(journal["last_seq"], 2);
    let snapshot = api.get(&format!("/v1/conversations/{id}")).await.body;
    assert_eq!(snapshot["state"], "idle");
}

#[tokio::test]
async fn a_wrong_fork_is_refused_and_names_its_field() {
    let api = Api::start().await;
    api.post("/v1/conversations", json!({"id": "x", "agent": "demo"})).await;
    for (body, field) in [
        (json!({"at_seq": 0}), "at_seq"),
        (json!({"at_seq": 2}), "at_seq"),
        (json!({"at_seq": -1}), "at_seq"),
        (json!({"at_seq": "1"}), "at_seq"),
        (json!({"id": "a b"}), "id"),
        (json!({"seq": 1}), "seq"),
    ] {
        let refused = api.post("/v1/conversations/x/fork", body.clone()).await;
        assert!(matches!(refused.status, 400 | 422), "{body}: {refused:?}");
        assert!(refused.body["detail"].as_str().unwrap().contains(field), "{body}: {refused:?}");
    }
    let taken = api.post("/v1/conversations/x/fork", json!({"id": "x"})).await;
    taken.is_problem(409, "conversation-exists");
    let nobody = api.post("/v1/conversations/nobody/fork", json!({})).await;
    nobody.is_problem(404, "not-found");
    let listed = api.get("/v1/conversations").await.body;
    assert_eq!(
        listed["conversations"].as_array().unwrap().len(),
        1,
        "a refused fork leaves a conversation"
    );
}
