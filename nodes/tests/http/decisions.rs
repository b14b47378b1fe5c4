//! Decisions that hold for later calls: remembered with an approval, listed, revoked.

use serde_json::{Value, json};

use crate::api::Api;

async fn agent(api: &Api) {
    let call = |id: &str, name: &str| json!({"id": id, "name": name, "args": {"n": 1}});
    let calls = json!([call("a", "ask_me"), call("b", "vault")]);
    let run = json!({"native": "send_email"});
    let tool = |name: &str, strict: bool| {
        json!({"name": name, "executor": "client", "approval": "requires_approval",
               "requires_response": false, "default_result": run, "strict": strict})
    };
    let definition = json!({
        "model": {"provider": "scripted", "script": [{"calls": calls}, {"text": "Done."}]},
        "tools": [tool("ask_me", false), tool("vault", true)],
    });
    assert_eq!(api.put("/v1/agents/asker", definition).await.status, 201);
}

/// Sends a message to a conversation of that agent; the calls that wait then.
async fn say(api: &Api, id: &str) -> Vec<Value> {
    let body = json!({"text": "go", "agent": "asker"});
    assert_eq!(api.post(&format!("/v1/conversations/{id}/messages"), body).await.status, 202);
    let mut stream = api.stream(&format!("/v1/conversations/{id}/events")).await;
    let first = stream.until("snapshot").await.data;
    if first["state"] != "awaiting_input" {
        stream.until("suspended").await;
    }
    let snapshot = api.get(&format!("/v1/conversations/{id}")).await.body;
    snapshot["pending"].as_array().unwrap().clone()
}

fn tools(pending: &[Value]) -> Vec<&str> {
    pending.iter().map(|open| open["tool"].as_str().unwrap()).collect()
}

fn resolution(id: &str, call: &Value) -> String {
    format!("/v1/conversations/{id}/calls/{}/resolution", call["call_id"].as_str().unwrap())
}

async fn settle(api: &Api, id: &str, pending: &[Value], remember: Value) {
    for call in pending {
        let mut body = json!({"approved": true});
        if call["tool"] == "ask_me" {
            body["remember"] = remember.clone();
        }
        assert_eq!(api.post(&resolution(id, call), body).await.status, 200);
    }
    let mut stream = api.stream(&format!("/v1/conversations/{id}/events?after=0")).await;
    stream.until("turn_completed").await;
}

#[tokio::test]
async fn a_conversations_decision_is_kept_listed_and_revoked() {
    let api = Api::start().await;
    agent(&api).await;
    let pending = say(&api, "c").await;
    assert_eq!(tools(&pending), ["ask_me", "vault"]);
    settle(&api, "c", &pending, json!({"for": "1h"})).await;
    let pending = say(&api, "c").await;
    assert_eq!(tools(&pending), ["vault"], "nobody is asked for the first again");
    let listed = api.get("/v1/conversations/c/decisions").await.body;
    let decision = &listed["decisions"][0];
    assert_eq!((&decision["tool"], &decision["match"]), (&json!("ask_me"), &json!("exact")));
    assert_eq!((&decision["approved"], &decision["by"]), (&json!(true), &json!("anonymous")));
    let at = format!("/v1/conversations/c/decisions/{}", decision["id"].as_str().unwrap());
    assert_eq!(api.keyed("k", "DELETE", &at, json!(null)).await.status, 204);
    assert_eq!(api.keyed("k", "DELETE", &at, json!(null)).await.status, 204);
    api.delete(&at).await.is_problem(404, "not-found");
    let listed = api.get("/v1/conversations/c/decisions").await.body;
    assert_eq!(listed, json!({"decisions": []}));
    settle(&api, "c", &pending, json!(null)).await;
    assert_eq!(tools(&say(&api, "c").await), ["ask_me", "vault"]);
}

#[tokio::test]
async fn an_agents_decision_holds_in_all_of_its_conversations() {
    let api = Api::start().await;
    agent(&api).await;
    let pending = say(&api, "one").await;
    settle(&api, "one", &pending, json!({"scope": "agent", "match": "tool", "for": "1h"})).await;
    let mut stream = api.stream("/v1/conversations/one/events?after=0").await;
    stream.until("snapshot").await;
    let kept = async {
        loop {
            let listed = api.get("/v1/agents/asker/decisions").await.body;
            if let Some(decision) = listed["decisions"].get(0) {
                return decision["id"].as_str().unwrap().to_owned();
            }
            tokio::task::yield_now().await;
        }
    };
    let id = tokio::time::timeout(crate::api::DEADLINE, kept).await.unwrap();
    assert_eq!(tools(&say(&api, "two").await), ["vault"]);
    let own = api.get("/v1/conversations/one/decisions").await.body;
    assert_eq!(own, json!({"decisions": []}));
    let at = format!("/v1/agents/asker/decisions/{id}");
    assert_eq!(api.keyed("k", "DELETE", &at, json!(null)).await.status, 204);
    assert_eq!(api.keyed("k", "DELETE", &at, json!(null)).await.status, 204);
    api.delete(&at).await.is_problem(404, "not-found");
    assert_eq!(tools(&say(&api, "three").await), ["ask_me", "vault"]);
}

#[tokio::test]
async fn what_cannot_be_remembered_is_refused_and_the_call_stays_open() {
    let api = Api::start().await;
    agent(&api).await;
    let pending = say(&api, "c").await;
    let (ask, vault) = (resolution("c", &pending[0]), resolution("c", &pending[1]));
    let hour = json!({"for": "1h"});
    for (at, body, field) in [
        (&vault, json!({"approved": true, "remember": hour}), "remember"),
        (&ask, json!({"approved": true, "remember": {}}), "remember"),
        (&ask, json!({"approved": true, "remember": {"for": "never"}}), "remember.for"),
        (&ask, json!({"approved": true, "remember": {"for": "1h", "scope": "all"}}), "scope"),
        (&ask, json!({"result": 1, "remember": hour}), "remember"),
    ] {
        api.post(at, body).await.names(field);
    }
    api.get("/v1/agents/nobody/decisions").await.is_problem(404, "not-found");
    api.get("/v1/conversations/nobody/decisions").await.is_problem(404, "not-found");
    settle(&api, "c", &pending, hour).await;
}
