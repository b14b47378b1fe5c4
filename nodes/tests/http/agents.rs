//! Agents over HTTP: define, list, read, delete.

use futures::future::join_all;
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
async fn definitions_that_are_put_at_once_are_all_stored_one_after_the_other() {
    const DEFINITIONS: u64 = 16;
    let api = Api::start().await;
    let put = async |steps: u64| {
        let mut agent = echo();
        agent["max_steps"] = json!(steps);
        api.put("/v1/agents/echo", agent).await
    };
    let answers = join_all((1..=DEFINITIONS).map(put)).await;
    let mut statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses.pop().unwrap(), 201, "{statuses:?}");
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    let history = api.get("/v1/agents/echo/revisions").await.body["revisions"].clone();
    assert_eq!(history.as_array().unwrap().len() as u64, DEFINITIONS, "{history}");
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
async fn a_retention_is_shown_and_one_that_cannot_be_meant_is_refused() {
    let api = Api::start().await;
    let mut kept = echo();
    kept["retention"] = json!({"idle": "90d"});
    assert_eq!(api.put("/v1/agents/echo", kept.clone()).await.status, 201);
    assert_eq!(api.get("/v1/agents/echo").await.body["retention"], json!({"idle": "90d"}));
    for wrong in [json!("0s"), json!("59s"), json!("3653d"), json!("soon"), json!(90)] {
        kept["retention"]["idle"] = wrong.clone();
        let refused = api.put("/v1/agents/echo", kept.clone()).await;
        let told = refused.body.to_string();
        assert!(refused.status == 422 && told.contains("retention.idle"), "{wrong}: {refused:?}");
    }
    kept["retention"] = json!({"active": "90d"});
    assert_eq!(api.put("/v1/agents/echo", kept).await.status, 422);
    assert_eq!(api.get("/v1/agents/echo").await.body["retention"], json!({"idle": "90d"}));
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

#[tokio::test]
async fn a_definition_that_cannot_work_as_it_seems_is_warned_of() {
    let api = Api::start().await;
    let put = async |name: &str, tools: Value, permissions: Value| {
        let mut agent = echo();
        (agent["tools"], agent["permissions"]) = (tools, permissions);
        let answer = api.put(&format!("/v1/agents/{name}"), agent).await;
        assert!(answer.status < 300, "{}", answer.body);
        answer.body["warnings"].clone()
    };
    let asks = |agent: &str| json!([{"name": "ask", "run": {"agent": agent}}]);
    let missing = json!(["tool ask: run.agent: there is no agent nobody"]);
    assert_eq!(put("boss", asks("nobody"), json!({})).await, missing);
    assert_eq!(put("boss", asks("boss"), json!({})).await, json!([]));
    put("nobody", json!([]), json!({})).await;
    assert_eq!(put("boss", asks("nobody"), json!({})).await, json!([]));

    let run = json!({"http": {"url": "http://127.0.0.1:9/"}});
    let gated = json!([{"builtin": ["bash"]},
        {"name": "pay", "run": run, "approval": "requires_approval"}]);
    for network in [json!(true), json!({"ports": [443]})] {
        let warnings = put("payer", gated.clone(), json!({"network": network})).await;
        let warning = warnings[0].as_str().unwrap();
        assert!(warning.starts_with("permissions.network: bash may use TCP, and pay"), "{warning}");
    }
    assert_eq!(put("payer", gated, json!({"network": false})).await, json!([]));
}

#[tokio::test]
async fn a_workspace_is_where_the_operator_permits_it() {
    let mut agent = echo();
    agent["workspace"] = json!({"root": "/srv/docs/a", "shared": true});
    let closed = Api::start().await;
    let refused = closed.put("/v1/agents/echo", agent.clone()).await;
    refused.names("workspace.root");
    assert_eq!(refused.body["errors"][0]["field"], "workspace.root");
    let open = Api::start_with(&["--workspace-roots", "/srv/code,/srv/docs"]).await;
    assert_eq!(open.put("/v1/agents/echo", agent.clone()).await.status, 201);
    agent["workspace"]["root"] = json!("/srv/docs/../etc");
    open.put("/v1/agents/echo", agent).await.names("workspace.root");
}

/// The process of these tests is that of the node.
#[tokio::test]
async fn a_node_hides_its_memory_and_its_environment() {
    let _api = Api::start().await;
    let behavior = rustix::process::dumpable_behavior().unwrap();
    assert_eq!(behavior, rustix::process::DumpableBehavior::NotDumpable);
}
