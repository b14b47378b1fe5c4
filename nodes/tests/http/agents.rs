//! Agents over HTTP: define, list, read, delete.

use serde_json::{Value, json};

use crate::api::Api;

fn echo() -> Value {
    json!({"description": "Says it again.",
        "model": {"provider": "scripted", "script": [{"text": "{{ user }}"}]}})
}

#[tokio::test]
async fn an_agent_is_created_then_revised() {
    let api = Api::start().await;
    let first = api.put("/v1/agents/echo", echo()).await;
    assert_eq!((first.status, &first.body["name"]), (201, &json!("echo")));
    assert_eq!(first.body["warnings"], json!([]));
    assert_eq!(first.body["revision"].as_str().unwrap().len(), 16);
    let mut other = echo();
    other["max_steps"] = json!(3);
    // The document must know that it may be false.
    other["summary"] = json!(false);
    let second = api.put("/v1/agents/echo", other).await;
    assert_eq!(second.status, 200);
    assert_ne!(first.body["revision"], second.body["revision"]);
    let list = api.get("/v1/agents").await.body["agents"].clone();
    let row = json!({"name": "echo", "revision": second.body["revision"],
        "description": "Says it again."});
    assert!(list.as_array().unwrap().contains(&row), "{list}");
    assert_eq!(api.get("/v1/agents/echo").await.body["max_steps"], 3);
    assert_eq!(api.delete("/v1/agents/echo").await.status, 204);
    api.get("/v1/agents/echo").await.is_problem(404, "not-found");
    api.delete("/v1/agents/echo").await.is_problem(404, "not-found");
}

#[tokio::test]
async fn a_definition_may_be_yaml() {
    let api = Api::start().await;
    let yaml = "model: {provider: scripted, script: [{text: hello}]}\n";
    let request = api.request("PUT", "/v1/agents/yaml").header("Content-Type", "application/yaml");
    assert_eq!(api.send(request.body(yaml)).await.status, 201);
}

#[tokio::test]
async fn a_refused_definition_names_tool_and_field() {
    let api = Api::start().await;
    let mut wrong = echo();
    wrong["tools"] = json!([{"name": "t", "executor": "human", "approval": "requires_approval"}]);
    let refused = api.put("/v1/agents/echo", wrong).await;
    refused.names("approval");
    assert_eq!(refused.body["errors"][0]["tool"], "t");
    assert_eq!(refused.body["errors"][0]["field"], "approval");
    for (body, field) in [
        (json!({"model": {"provider": "nobody"}}), "model.provider: "),
        (json!({"model": {"provider": "openai", "temperature": "hot"}}), "model.temperature: "),
        (json!({"model": {"name": "gpt-5"}}), "provider"),
        (json!({"model": 1}), "model: "),
        (json!({"tools": [{"name": "a b"}], "model": echo()["model"]}), "tool a b: name: "),
        (json!({"surprise": 1, "model": echo()["model"]}), "surprise"),
        (json!({"name": "other", "model": echo()["model"]}), "name"),
        (json!([]), "object"),
    ] {
        api.put("/v1/agents/echo", body).await.names(field);
    }
    api.get("/v1/agents/echo").await.is_problem(404, "not-found");
}

#[tokio::test]
async fn a_name_that_cannot_be_is_refused() {
    let api = Api::start().await;
    for name in ["Echo", "-a", "a%20b", "a.b", &"a".repeat(65), "%F0%9F%98%80"] {
        api.put(&format!("/v1/agents/{name}"), echo()).await.names("name");
        api.get(&format!("/v1/agents/{name}")).await.names("name");
    }
}

#[tokio::test]
async fn a_repeated_definition_gets_the_first_answer() {
    let api = Api::start().await;
    let first = api.keyed("k", "PUT", "/v1/agents/echo", echo()).await;
    let again = api.keyed("k", "PUT", "/v1/agents/echo", echo()).await;
    assert_eq!((first.status, &first.body), (201, &again.body));
    assert_eq!(again.status, 201);
    let mut other = echo();
    other["max_steps"] = json!(3);
    api.keyed("k", "PUT", "/v1/agents/echo", other).await.names("Idempotency-Key");
}

#[tokio::test]
async fn a_repeated_delete_gets_the_first_answer() {
    let api = Api::start().await;
    let path = "/v1/agents/echo";
    for _ in 0..2 {
        api.keyed("early", "DELETE", path, Value::Null).await.is_problem(404, "not-found");
    }
    api.put(path, echo()).await;
    for _ in 0..2 {
        assert_eq!(api.keyed("k", "DELETE", path, Value::Null).await.status, 204);
    }
}
