//! Rollouts: a share of the conversations of an agent runs on another revision than the newest one.

use serde_json::{Value, json};

use crate::access::{GuardedApi, key_line};
use crate::api::Api;

const ROLLOUT: &str = "/v1/agents/echo/rollout";

fn echo(text: &str) -> Value {
    json!({"model": {"provider": "scripted", "script": [{"text": text}]}})
}

async fn put(api: &Api, definition: Value) -> String {
    let answer = api.put("/v1/agents/echo", definition).await;
    assert!(answer.status < 300, "{answer:?}");
    answer.body["revision"].as_str().unwrap().to_owned()
}

/// What the agent answers in this conversation.
async fn answer(api: &Api, id: &str) -> String {
    let message = json!({"agent": "echo", "text": "hi"});
    let said = api.post(&format!("/v1/conversations/{id}/messages?wait=30s"), message).await;
    assert_eq!(said.status, 200, "{said:?}");
    let text = said.body["message"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("{said:?}")).to_owned()
}

/// Those of forty conversations that the canary answers.
async fn answered_by_canary(api: &Api) -> Vec<u32> {
    let mut by_canary = Vec::new();
    for number in 0..40 {
        let id = format!("c{number}");
        let is_canary = answer(api, &id).await == "canary";
        let seen = api.get(&format!("/v1/conversations/{id}")).await.body;
        assert_eq!(seen["canary"] == true, is_canary, "{seen}");
        if is_canary {
            by_canary.push(number);
        }
    }
    by_canary
}

#[tokio::test]
async fn a_share_of_the_conversations_runs_on_the_revision_and_a_larger_one_only_adds_some() {
    let api = Api::start().await;
    let canary = put(&api, echo("canary")).await;
    let newest = put(&api, echo("newest")).await;
    api.get(ROLLOUT).await.is_problem(404, "not-found");
    assert_eq!(answered_by_canary(&api).await, [0; 0]);
    let mut before = Vec::new();
    for percent in [10, 40, 100] {
        let body = json!({"revision": canary, "percent": percent});
        let rolled = api.put(ROLLOUT, body.clone()).await;
        let view = json!({"revision": canary, "percent": percent, "newest": newest});
        assert_eq!((rolled.status, &rolled.body), (200, &view));
        assert_eq!(api.get(ROLLOUT).await.body, view);
        let now = answered_by_canary(&api).await;
        assert!(before.iter().all(|number| now.contains(number)), "{before:?} {now:?}");
        before = now;
    }
    assert_eq!(before.len(), 40);
    let body = json!({"revision": canary, "percent": 0});
    assert_eq!(api.put(ROLLOUT, body.clone()).await.body["percent"], 0);
    assert_eq!(answered_by_canary(&api).await, [0; 0]);
    api.get(ROLLOUT).await.is_problem(404, "not-found");
    api.delete(ROLLOUT).await.is_problem(404, "not-found");
    assert_eq!(api.put(ROLLOUT, body).await.status, 200, "there is nothing to end");
}

#[tokio::test]
async fn a_rollout_is_shown_with_the_agent_and_its_revisions() {
    let api = Api::start().await;
    let canary = put(&api, echo("canary")).await;
    put(&api, echo("newest")).await;
    api.put(ROLLOUT, json!({"revision": canary, "percent": 25})).await;
    let shares = async || {
        let list = api.get("/v1/agents/echo/revisions").await.body;
        let rows = list["revisions"].as_array().unwrap().iter();
        rows.map(|row| row["rollout_percent"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(shares().await, [Value::Null, json!(25)]);
    let header = async || {
        let answer = api.request("GET", "/v1/agents/echo").send().await.unwrap();
        answer.headers().get("abide-rollout").map(|it| it.to_str().unwrap().to_owned())
    };
    assert_eq!(header().await, Some(format!("{canary} 25")));
    assert_eq!(api.delete(ROLLOUT).await.status, 204);
    assert_eq!((header().await, shares().await), (None, vec![Value::Null, Value::Null]));
}

#[tokio::test]
async fn a_turn_that_began_on_the_canary_ends_on_it_and_the_next_begins_on_the_newest() {
    let api = Api::start().await;
    let asking = |text: &str| {
        let script = json!([{"calls": [{"id": "ask", "name": "ask", "args": {}}]}, {"text": text}]);
        json!({"model": {"provider": "scripted", "script": script},
            "tools": [{"name": "ask", "executor": "client", "requires_response": true}]})
    };
    let canary = put(&api, asking("canary")).await;
    let newest = put(&api, asking("newest")).await;
    api.put(ROLLOUT, json!({"revision": canary, "percent": 100})).await;
    let turn = async || {
        let message = json!({"agent": "echo", "text": "hi"});
        let sent = api.post("/v1/conversations/c/messages?wait=30s", message).await;
        assert_eq!(sent.body["outcome"], "awaiting_input", "{sent:?}");
        let call = sent.body["pending"][0]["call_id"].as_str().unwrap().to_owned();
        (call, api.get("/v1/conversations/c").await.body)
    };
    let end = async |call: &str| {
        let path = format!("/v1/conversations/c/calls/{call}/resolution?wait=30s");
        api.post(&path, json!({"result": 1})).await.body["message"]["content"][0]["text"].clone()
    };
    let (call, seen) = turn().await;
    assert_eq!((&seen["revision"], &seen["canary"]), (&json!(canary), &json!(true)));
    assert_eq!(api.delete(ROLLOUT).await.status, 204);
    let seen = api.get("/v1/conversations/c").await.body;
    assert_eq!((&seen["revision"], &seen["canary"]), (&json!(canary), &Value::Null));
    assert_eq!(end(&call).await, "canary");
    let (call, seen) = turn().await;
    assert_eq!(seen["revision"], json!(newest));
    assert_eq!(end(&call).await, "newest");
}

#[tokio::test]
async fn a_put_leaves_a_rollout_and_a_rollback_to_its_revision_ends_it() {
    let api = Api::start().await;
    let canary = put(&api, echo("canary")).await;
    put(&api, echo("newest")).await;
    api.put(ROLLOUT, json!({"revision": canary, "percent": 100})).await;
    let third = put(&api, echo("third")).await;
    let view = json!({"revision": canary, "percent": 100, "newest": third});
    assert_eq!(api.get(ROLLOUT).await.body, view);
    assert_eq!(answer(&api, "a").await, "canary");
    let back = api.post("/v1/agents/echo/rollback", json!({"revision": canary})).await;
    assert_eq!(back.status, 200);
    api.get(ROLLOUT).await.is_problem(404, "not-found");
    assert_eq!(api.put(ROLLOUT, json!({"revision": third, "percent": 100})).await.status, 200);
    assert_eq!(answer(&api, "a").await, "third");
    assert_eq!(api.delete("/v1/agents/echo").await.status, 204);
    let on_deleted = json!({"revision": third, "percent": 10});
    api.get(ROLLOUT).await.is_problem(404, "not-found");
    api.put(ROLLOUT, on_deleted).await.is_problem(404, "not-found");
    api.delete(ROLLOUT).await.is_problem(404, "not-found");
    put(&api, echo("newest")).await;
    api.get(ROLLOUT).await.is_problem(404, "not-found");
}

#[tokio::test]
async fn what_cannot_be_rolled_out_is_refused_and_changes_nothing() {
    let api = Api::start().await;
    let canary = put(&api, echo("canary")).await;
    let newest = put(&api, echo("newest")).await;
    let others = api.put("/v1/agents/other", echo("canary")).await.body["revision"].clone();
    for percent in [json!(101), json!(-1), json!(1.5), json!("10"), Value::Null, json!([10])] {
        let refused = api.put(ROLLOUT, json!({"revision": canary, "percent": percent})).await;
        refused.names("percent");
        refused.is_problem(422, "invalid-request");
    }
    for (revision, status) in
        [(json!(newest), 422), (json!("x"), 422), (json!(1), 422), (others, 404)]
    {
        let refused = api.put(ROLLOUT, json!({"revision": revision, "percent": 10})).await;
        assert_eq!(refused.status, status, "{refused:?}");
    }
    for body in [json!({}), json!({"revision": canary}), json!({"percent": 1}), json!([])] {
        api.put(ROLLOUT, body).await.is_problem(422, "invalid-request");
    }
    let more = json!({"revision": canary, "percent": 10, "more": 1});
    api.put(ROLLOUT, more).await.names("more");
    let body = json!({"revision": canary, "percent": 10});
    api.put("/v1/agents/nobody/rollout", body.clone()).await.is_problem(404, "not-found");
    api.put("/v1/agents/A/rollout", body).await.names("name");
    api.get("/v1/agents/nobody/rollout").await.is_problem(404, "not-found");
    api.get(ROLLOUT).await.is_problem(404, "not-found");
    assert_eq!(answered_by_canary(&api).await, [0; 0]);
}

#[tokio::test]
async fn a_repeated_key_changes_no_rollout_again() {
    let api = Api::start().await;
    let canary = put(&api, echo("canary")).await;
    put(&api, echo("newest")).await;
    let ten = json!({"revision": canary, "percent": 10});
    let first = api.keyed("k", "PUT", ROLLOUT, ten.clone()).await;
    api.put(ROLLOUT, json!({"revision": canary, "percent": 20})).await;
    let again = api.keyed("k", "PUT", ROLLOUT, ten).await;
    assert_eq!((again.status, again.body), (200, first.body));
    assert_eq!(api.get(ROLLOUT).await.body["percent"], 20);
    let other = json!({"revision": canary, "percent": 30});
    api.keyed("k", "PUT", ROLLOUT, other).await.names("Idempotency-Key");
    assert_eq!(api.keyed("d", "DELETE", ROLLOUT, Value::Null).await.status, 204);
    api.put(ROLLOUT, json!({"revision": canary, "percent": 20})).await;
    assert_eq!(api.keyed("d", "DELETE", ROLLOUT, Value::Null).await.status, 204);
    assert_eq!(api.get(ROLLOUT).await.body["percent"], 20);
}

#[tokio::test]
async fn a_rollout_is_checked_as_a_definition_is_and_is_in_the_audit() {
    let document = |policy: &str, keys: &[&str]| {
        let mut keys: Vec<Value> = keys.iter().map(|key| key_line(key, &["author"])).collect();
        let mut theirs = key_line("theirs", &["author"]);
        theirs["tenant"] = json!("acme");
        keys.extend([theirs, key_line("operator", &["operator"])]);
        let default = json!({"agents_over_http": policy});
        json!({"keys": keys, "tenants": {"default": default, "acme": {}}})
    };
    let guarded = GuardedApi::start(&document("all", &["author"])).await;
    let mut definition = echo("canary");
    definition["tools"] = json!([{"builtin": ["read", "bash"]}]);
    let first = guarded.send("author", "PUT", "/v1/agents/echo", definition).await;
    guarded.send("author", "PUT", "/v1/agents/echo", echo("newest")).await;
    let body = json!({"revision": first.body["revision"], "percent": 10});
    guarded.send("theirs", "PUT", ROLLOUT, body.clone()).await.is_problem(404, "not-found");
    for (policy, status) in [("data", 422), ("off", 403)] {
        guarded.replace(&document(policy, &["author", policy]), policy).await;
        let refused = guarded.send("author", "PUT", ROLLOUT, body.clone()).await;
        assert_eq!(refused.status, status, "{policy}: {refused:?}");
    }
    guarded.replace(&document("all", &["author", "again"]), "again").await;
    assert_eq!(guarded.send("author", "PUT", ROLLOUT, body).await.status, 200);
    assert_eq!(guarded.send("author", "DELETE", ROLLOUT, Value::Null).await.status, 204);
    let names = crate::operations::operation_names(&guarded.api, "operator").await;
    assert_eq!(names[names.len() - 2..], ["agent.rollout", "agent.rollout_end"]);
}
