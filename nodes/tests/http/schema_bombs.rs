//! Schemas that once stopped a node are refused where they enter, and the node goes on answering.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::api::Api;

/// The node answers a probe within this, whatever else it is asked.
const MAX_PROBE_TIME: Duration = Duration::from_millis(100);

/// Definitions that each lead to the next.
fn chain(links: usize, link: impl Fn(Value) -> Value) -> Value {
    let next = |at: usize| json!({"$ref": format!("#/definitions/d{}", at + 1)});
    let named = (0..links).map(|at| (format!("d{at}"), link(next(at))));
    let mut definitions: Map<_, _> = named.collect();
    definitions.insert(format!("d{links}"), json!({"type": "string"}));
    json!({"type": "object", "properties": {"a": {"$ref": "#/definitions/d0"}},
        "definitions": definitions})
}

/// Schemas of at most 64 KiB, so that a message may have them.
fn bombs() -> Vec<Value> {
    let class = |at: usize| json!({"pattern": format!("(?i)[\\p{{L}}\\p{{N}}]{{1{at:02}}}")});
    vec![
        chain(900, |next| next),
        chain(900, |next| json!({"allOf": [next]})),
        chain(45, |next| json!({"allOf": [next, next]})),
        json!({"type": "object", "allOf": (0..60).map(class).collect::<Vec<_>>()}),
        json!({"type": "object", "not": {"$ref": "#"}}),
    ]
}

fn agent(parameters: &Value) -> Value {
    let run = json!({"http": {"url": "http://127.0.0.1:1/x"}});
    json!({"model": {"provider": "scripted", "script": [{"text": "hi"}]},
        "tools": [{"name": "t", "parameters": parameters, "run": run}]})
}

async fn is_alive(api: &Api) {
    let asked = Instant::now();
    assert_eq!(api.get("/v1/agents").await.status, 200);
    // The slowest build of the slowest machine has ten times as long.
    assert!(asked.elapsed() < MAX_PROBE_TIME * 10, "{:?}", asked.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bomb_is_refused_with_its_field_wherever_it_enters() {
    let api = Api::start().await;
    for bomb in bombs() {
        api.put("/v1/agents/bomb", agent(&bomb)).await.names("parameters");
        let mut answered = agent(&json!({"type": "object"}));
        answered["response_format"] = bomb.clone();
        api.put("/v1/agents/bomb", answered).await.names("response_format");
        let own = json!({"name": "ask", "executor": "client", "result_schema": bomb});
        let body = json!({"agent": "demo", "tools": [own]});
        api.post("/v1/conversations", body).await.names("result_schema");
        let body = json!({"text": "hi", "agent": "demo", "schema": bomb});
        api.post("/v1/conversations/b/messages", body).await.names("schema");
        is_alive(&api).await;
    }
    let long = chain(12_000, |next| json!({"allOf": [next]}));
    api.put("/v1/agents/bomb", agent(&long)).await.names("parameters");
    is_alive(&api).await;
}

#[tokio::test]
async fn a_condition_that_names_what_it_has_not_is_refused() {
    let api = Api::start().await;
    let mut gated = agent(&json!({"type": "object"}));
    gated["tools"][0]["approval"] = json!({"when": "nosuch(args)"});
    api.put("/v1/agents/gated", gated).await.names("approval.when");
}
