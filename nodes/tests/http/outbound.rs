//! What a tenant's agents may reach and name: judged when an agent is defined, and again at every use.

use std::path::Path;

use axum::Router;
use axum::routing::post;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::access::{GuardedApi, key, key_line};
use crate::api::ApiResponse;
use crate::stream::Stream;

const ACME: [&str; 4] = ["author", "backend", "user", "approver"];

/// A file in which `acme` may reach and name these, and `default` what a tenant may by itself.
fn file(hosts: &Value, variables: &Value) -> Value {
    let line = |id: &str, tenant: &str| {
        let mut line = key_line(id, &ACME);
        line["tenant"] = json!(tenant);
        line
    };
    json!({"keys": [line("mine", "default"), line("theirs", "acme")],
        "tenants": {"default": {}, "acme": {"allowed_hosts": hosts, "variables": variables}}})
}

/// A server of tools, hooks and models on this machine: whatever is posted is answered with 1.
async fn server() -> String {
    let app = Router::new().fallback(post(|| async { axum::Json(json!(1)) }));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

fn scripted(script: Value) -> Value {
    json!({"provider": "scripted", "script": script})
}

/// An agent whose model calls a tool of this server, and then says that it is done.
fn caller(url: &str) -> Value {
    json!({
        "model": scripted(json!([{"calls": [{"name": "t", "args": {}}]}, {"text": "Done."}])),
        "tools": [{"name": "t", "approval": "auto", "run": {"http": {"url": url}}}],
    })
}

async fn define(guarded: &GuardedApi, who: &str, name: &str, agent: Value) -> ApiResponse {
    guarded.send(who, "PUT", &format!("/v1/agents/{name}"), agent).await
}

/// What the last event of this kind says after a turn with the agent in a new conversation.
async fn after_turn(guarded: &GuardedApi, who: &str, agent: &str, kind: &str) -> Value {
    let new = guarded.send(who, "POST", "/v1/conversations", json!({"agent": agent})).await;
    let path = format!("/v1/conversations/{}", new.body["id"].as_str().unwrap());
    let message = json!({"text": "go"});
    let sent = guarded.send(who, "POST", &format!("{path}/messages"), message).await;
    assert_eq!(sent.status, 202, "{sent:?}");
    let events = guarded.api.request("GET", &format!("{path}/events?after=0"));
    let mut stream = Stream::open(events.bearer_auth(key(who))).await;
    let turn = sent.body["turn_id"].clone();
    loop {
        let frame = stream.next().await.unwrap();
        if frame.event.starts_with("turn_") && frame.event != "turn_started" {
            assert_eq!(frame.data["turn_id"], turn);
            break;
        }
    }
    let journal = guarded.get(who, &format!("{path}/journal")).await.body;
    let events = journal["events"].as_array().unwrap();
    let found = events.iter().rfind(|event| event["type"] == kind);
    found.unwrap_or_else(|| panic!("no {kind}: {journal:#}"))["data"].clone()
}

#[tokio::test]
async fn a_definition_that_reaches_or_names_too_much_is_refused_with_its_fields() {
    let guarded = GuardedApi::start(&file(&json!(["10.0.0.1:80"]), &json!(["ACME_*"]))).await;
    let model = |more: Value| {
        let mut model = json!({"provider": "openai", "name": "m", "api_key_env": "ACME_KEY",
            "base_url": "http://10.0.0.1/v1"});
        model.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"model": model})
    };
    let with = |more: Value| {
        let mut agent = model(json!({}));
        agent.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        agent
    };
    let tool = |http: Value| with(json!({"tools": [{"name": "t", "run": {"http": http}}]}));
    let here = "http://10.0.0.1/";
    for (agent, field) in [
        (model(json!({"base_url": "http://10.0.0.1:81/v1"})), "model.base_url"),
        (model(json!({"api_key_env": "OTHER_KEY"})), "model.api_key_env"),
        (with(json!({"model": {"provider": "openai", "name": "m"}})), "model.api_key_env"),
        (with(json!({"model": {"provider": "ollama", "name": "m"}})), "model.base_url"),
        (
            with(json!({"summary": {"model": {"provider": "ollama", "name": "m",
                "base_url": "http://10.0.0.2"}}, "working_budget": 9_000})),
            "summary.model.base_url",
        ),
        (tool(json!({"url": "https://example.com/"})), "run.http.url"),
        (tool(json!({"url": here, "headers_env": {"x-a": "KEY"}})), "run.http.headers_env.x-a"),
        (tool(json!({"url": here, "signing_secret_env": "KEY"})), "run.http.signing_secret_env"),
        (
            with(json!({"hooks": [{"name": "h", "on": "pre", "http": {"url": "http://a.b/"}}]})),
            "hooks[0].http.url",
        ),
        (
            with(json!({"mcp_servers": {"docs": {"url": "http://a.b/mcp"}},
                "tools": [{"mcp": "docs"}]})),
            "mcp_servers.docs.url",
        ),
        (
            with(json!({"mcp_servers": {"docs": {"url": here, "headers_env": {"x-a": "KEY"}}},
                "tools": [{"mcp": "docs"}]})),
            "mcp_servers.docs.headers_env.x-a",
        ),
        (
            with(json!({"permissions": {"allowed_hosts": ["10.0.0.2"]}})),
            "permissions.allowed_hosts",
        ),
    ] {
        let refused = define(&guarded, "theirs", "a", agent.clone()).await;
        refused.is_problem(422, "invalid-request");
        assert_eq!(refused.body["errors"][0]["field"], field, "{agent}: {refused:?}");
        assert_eq!(refused.body["errors"].as_array().unwrap().len(), 1, "{refused:?}");
    }
    guarded.get("theirs", "/v1/agents/a").await.is_problem(404, "not-found");
    let permitted = with(json!({"tools": [{"name": "t", "run": {"http": {"url": here,
        "headers_env": {"x-a": "ACME_A"}}}}], "permissions": {"allowed_hosts": ["10.0.0.1:80"]}}));
    assert_eq!(define(&guarded, "theirs", "a", permitted).await.status, 201);
}

#[tokio::test]
async fn without_a_list_a_tenant_reaches_the_public_web_and_names_no_variable() {
    let guarded = GuardedApi::start(&file(&json!(null), &json!([]))).await;
    for who in ["mine", "theirs"] {
        for url in
            ["http://127.0.0.1/", "http://[::1]/", "http://169.254.169.254/", "http://localhost/"]
        {
            let refused = define(&guarded, who, "a", caller(url)).await;
            assert_eq!(refused.body["errors"][0]["field"], "run.http.url", "{url}: {refused:?}");
        }
        let named = json!({"model": {"provider": "openai", "name": "m"}});
        define(&guarded, who, "a", named).await.names("model.api_key_env: ");
        let defined = define(&guarded, who, "a", caller("https://example.com/t")).await;
        assert_eq!(defined.status, 201, "{defined:?}");
    }
}

#[tokio::test]
async fn a_use_that_is_permitted_no_longer_fails_and_the_rest_goes_on() {
    let host = json!(["127.0.0.1"]);
    let guarded = GuardedApi::start(&file(&host, &json!([]))).await;
    let url = server().await;
    let model = json!({"provider": "ollama", "name": "m", "base_url": url});
    let hook = json!([{"name": "h", "on": "pre", "http": {"url": url}}]);
    let hooked = json!({"model": scripted(json!([{"text": "hi"}])), "hooks": hook});
    for (name, agent) in
        [("tool", caller(&url)), ("model", json!({"model": model})), ("hook", hooked)]
    {
        let defined = define(&guarded, "theirs", name, agent).await;
        assert_eq!(defined.status, 201, "{defined:?}");
    }
    let result = after_turn(&guarded, "theirs", "tool", "tool_result").await;
    assert_eq!((&result["ok"], &result["result"]), (&json!(true), &json!(1)), "{result}");
    // The server is no model: what it answers is a failure of another kind.
    let failed = after_turn(&guarded, "theirs", "model", "turn_ended").await;
    assert!(!failed["reason"].as_str().unwrap().contains("permitted"), "{failed}");

    std::fs::write(guarded.file(), file(&json!(["example.com"]), &json!([])).to_string()).unwrap();
    guarded.api.node.auth_reloader().reload();
    while define(&guarded, "theirs", "probe", caller(&url)).await.status != 422 {
        tokio::task::yield_now().await;
    }
    let result = after_turn(&guarded, "theirs", "tool", "tool_result").await;
    assert_eq!(result["ok"], false, "{result}");
    let why = "the tool may not be called: its host is not permitted to the tenant";
    assert_eq!(result["error"], why, "{result}");
    let failed = after_turn(&guarded, "theirs", "model", "turn_ended").await;
    let why = "the model may not be called: its host is not permitted to the tenant";
    assert_eq!(failed["reason"], why);
    let halted = after_turn(&guarded, "theirs", "hook", "turn_ended").await;
    assert_eq!(halted["reason"], "hook h failed");
}

#[tokio::test]
async fn the_operators_definitions_reach_and_name_everything() {
    let url = server().await;
    let directory = tempfile::TempDir::new().unwrap();
    let write = |name: &str, text: &str| {
        let mut agent = caller(&url);
        agent["name"] = json!(name);
        agent["description"] = json!(text);
        std::fs::write(directory.path().join(format!("{name}.json")), agent.to_string()).unwrap();
    };
    write("theirs", "as it came");
    let agents = |path: &Path| ["--agents".to_owned(), path.to_str().unwrap().to_owned()];
    let document = file(&json!(null), &json!([]));
    let guarded = GuardedApi::start_with(&document, &agents(directory.path())).await;
    let result = after_turn(&guarded, "mine", "theirs", "tool_result").await;
    assert_eq!(result["result"], 1, "{result}");
    // An author may not write the same under another name.
    define(&guarded, "mine", "mine", caller(&url)).await.names("tool t: run.http.url: ");
}
