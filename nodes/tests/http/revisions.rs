//! The revisions of agents: listed, read, compared, and one of them made the newest again.

use serde_json::{Value, json};

use crate::access::{GuardedApi, key_line};
use crate::api::Api;

fn echo(max_steps: u32) -> Value {
    json!({"model": {"provider": "scripted", "script": [{"text": "{{ user }}"}]},
        "max_steps": max_steps})
}

/// Puts an agent, and returns its revision.
async fn put(api: &Api, name: &str, definition: Value) -> String {
    let answer = api.put(&format!("/v1/agents/{name}"), definition).await;
    assert!(answer.status < 300, "{answer:?}");
    answer.body["revision"].as_str().unwrap().to_owned()
}

async fn listed(api: &Api) -> Vec<(String, bool)> {
    let list = api.get("/v1/agents/echo/revisions").await;
    assert_eq!(list.status, 200, "{list:?}");
    let row = |row: &Value| {
        assert!(row["put_at"].is_string(), "{row}");
        (row["revision"].as_str().unwrap().to_owned(), row["newest"].as_bool().unwrap())
    };
    list.body["revisions"].as_array().unwrap().iter().map(row).collect()
}

#[tokio::test]
async fn a_rollback_makes_an_earlier_revision_the_newest() {
    let api = Api::start().await;
    let first = put(&api, "echo", echo(3)).await;
    let second = put(&api, "echo", echo(4)).await;
    assert_eq!(listed(&api).await, [(second.clone(), true), (first.clone(), false)]);
    let body = json!({"revision": first});
    let back = api.keyed("k", "POST", "/v1/agents/echo/rollback", body.clone()).await;
    assert_eq!((back.status, &back.body["revision"]), (200, &json!(first)));
    assert_eq!(api.get("/v1/agents/echo").await.body["max_steps"], 3);
    assert_eq!(listed(&api).await, [(first, true), (second.clone(), false)]);
    // A repeat changes nothing.
    put(&api, "echo", echo(4)).await;
    let again = api.keyed("k", "POST", "/v1/agents/echo/rollback", body).await;
    assert_eq!((again.status, again.body), (200, back.body));
    assert_eq!(listed(&api).await[0], (second, true));
}

#[tokio::test]
async fn a_revision_is_read_as_it_was_given_also_of_a_deleted_agent() {
    let api = Api::start().await;
    let first = put(&api, "echo", echo(3)).await;
    put(&api, "echo", echo(4)).await;
    let path = format!("/v1/agents/echo/revisions/{first}");
    assert_eq!(api.get(&path).await.body["max_steps"], 3);
    assert_eq!(api.delete("/v1/agents/echo").await.status, 204);
    assert_eq!(api.get(&path).await.body["max_steps"], 3);
    assert!(listed(&api).await.iter().all(|(_, newest)| !newest));
    let back = api.post("/v1/agents/echo/rollback", json!({"revision": first})).await;
    assert_eq!(back.status, 200);
    assert_eq!(api.get("/v1/agents/echo").await.body["max_steps"], 3);
}

#[tokio::test]
async fn two_revisions_are_compared() {
    let api = Api::start().await;
    let first = put(&api, "echo", echo(3)).await;
    let mut other = echo(4);
    other["description"] = json!("Says it again.");
    let second = put(&api, "echo", other).await;
    let path = format!("/v1/agents/echo/revisions/{first}/diff/{second}");
    let changes = api.get(&path).await.body["changes"].clone();
    let expected = json!([
        {"path": ["description"], "change": "added", "to": "Says it again."},
        {"path": ["max_steps"], "change": "changed", "from": 3, "to": 4},
    ]);
    assert_eq!(changes, expected);
}

#[tokio::test]
async fn what_is_no_revision_of_the_agent_is_refused() {
    let api = Api::start().await;
    let own = put(&api, "echo", echo(3)).await;
    let others = put(&api, "other", echo(3)).await;
    api.get("/v1/agents/nobody/revisions").await.is_problem(404, "not-found");
    let paths = |revision: &str| {
        [
            format!("/v1/agents/echo/revisions/{revision}"),
            format!("/v1/agents/echo/revisions/{revision}/diff/{own}"),
            format!("/v1/agents/echo/revisions/{own}/diff/{revision}"),
        ]
    };
    for revision in [others.as_str(), "0123456789abcdef"] {
        for path in paths(revision) {
            api.get(&path).await.is_problem(404, "not-found");
        }
        let body = json!({"revision": revision});
        api.post("/v1/agents/echo/rollback", body).await.is_problem(404, "not-found");
    }
    for revision in ["0", "acme%2F01234567890", "0123456789ABCDEF", "0123456789abcdef0"] {
        for path in paths(revision) {
            api.get(&path).await.names("16 hex digits");
        }
    }
    for body in [json!({"revision": "x"}), json!({"revision": 1}), json!({}), json!({"x": 1})] {
        api.post("/v1/agents/echo/rollback", body).await.is_problem(422, "invalid-request");
    }
    assert_eq!(listed(&api).await, [(own, true)]);
}

#[tokio::test]
async fn a_rollback_is_checked_as_a_definition_is() {
    let document = |policy: &str, keys: &[&str]| {
        let keys: Vec<Value> = keys.iter().map(|key| key_line(key, &["author"])).collect();
        json!({"keys": keys, "tenants": {"default": {"agents_over_http": policy}}})
    };
    let guarded = GuardedApi::start(&document("all", &["author"])).await;
    let mut definition = echo(3);
    definition["tools"] = json!([{"builtin": ["read", "bash"]}]);
    let path = "/v1/agents/echo";
    let first = guarded.send("author", "PUT", path, definition).await;
    assert_eq!(first.status, 201, "{first:?}");
    guarded.send("author", "PUT", path, echo(3)).await;
    let back = json!({"revision": first.body["revision"]});
    let path = "/v1/agents/echo/rollback";
    for (policy, status) in [("data", 422), ("off", 403)] {
        guarded.replace(&document(policy, &["author", policy]), policy).await;
        let refused = guarded.send("author", "POST", path, back.clone()).await;
        assert_eq!(refused.status, status, "{policy}: {refused:?}");
    }
    guarded.replace(&document("all", &["author", "again"]), "again").await;
    assert_eq!(guarded.send("author", "POST", path, back).await.status, 200);
}
