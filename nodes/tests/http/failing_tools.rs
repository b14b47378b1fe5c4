//! Tools that fail, that are limited, and that hooks want approved, over HTTP.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::post;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::api::{Api, DEADLINE};

/// A server that answers with these in turn and then with 1, and stores keys and attempts.
#[derive(Clone, Default)]
struct ToolServer {
    answers: Arc<Mutex<VecDeque<(u16, Value)>>>,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
}

impl ToolServer {
    async fn start(answers: &[(u16, Value)]) -> (String, Self) {
        let server = Self::default();
        *server.answers.lock().unwrap() = answers.iter().cloned().collect();
        let app = Router::new().fallback(post(Self::answer)).with_state(server.clone());
        (serve(app).await, server)
    }

    async fn answer(
        State(server): State<Self>,
        headers: HeaderMap,
        body: axum::Json<Value>,
    ) -> impl IntoResponse {
        let key = headers["idempotency-key"].to_str().unwrap().to_owned();
        server.requests.lock().unwrap().push((key, body["attempt"].clone()));
        let answer = server.answers.lock().unwrap().pop_front();
        let (status, body) = answer.unwrap_or((200, json!(1)));
        (StatusCode::from_u16(status).unwrap(), axum::Json(body))
    }
}

async fn serve(app: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/tool", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

/// An agent whose model makes these calls of one tool in one step.
fn agent(tool: Value, calls: usize, more: Value) -> Value {
    let calls: Vec<Value> =
        (1..=calls).map(|n| json!({"id": format!("c{n}"), "name": "pay", "args": {}})).collect();
    let mut agent = json!({"tools": [tool],
        "model": {"provider": "scripted", "script": [{"calls": calls}, {"text": "Done."}]}});
    for (key, value) in more.as_object().unwrap() {
        agent[key] = value.clone();
    }
    agent
}

async fn begin(api: &Api, definition: Value) {
    let defined = api.put("/v1/agents/payer", definition).await;
    assert_eq!(defined.status, 201, "{defined:?}");
    let sent = api.post("/v1/conversations/c/messages", json!({"agent": "payer", "text": "go"}));
    assert_eq!(sent.await.status, 202);
}

async fn until(api: &Api, frame: &str) -> Value {
    api.stream("/v1/conversations/c/events?after=0").await.until(frame).await.data
}

async fn journal(api: &Api, kind: &str) -> Vec<Value> {
    let page = api.get("/v1/conversations/c/journal?limit=1000").await.body;
    let events = page["events"].as_array().unwrap().iter();
    events.filter(|event| event["type"] == kind).map(|event| event["data"].clone()).collect()
}

#[tokio::test]
async fn a_failed_attempt_is_followed_by_another_under_the_same_key() {
    let api = Api::start().await;
    let busy = json!({"error": "the printer is out of paper"});
    let (url, server) = ToolServer::start(&[(503, busy), (429, json!({}))]).await;
    let retry = json!({"max_attempts": 3, "base": "10ms", "on": ["5xx", 429]});
    let tool = json!({"name": "pay", "retry": retry, "run": {"http": {"url": url}}});
    begin(&api, agent(tool, 1, json!({}))).await;
    until(&api, "turn_completed").await;
    let requests = server.requests.lock().unwrap().clone();
    let attempts: Vec<&Value> = requests.iter().map(|(_, attempt)| attempt).collect();
    assert_eq!(attempts, [&json!(1), &json!(2), &json!(3)]);
    assert!(requests.iter().all(|(key, _)| *key == requests[0].0), "{requests:?}");
    let failed = journal(&api, "tool_attempt_failed").await;
    let errors: Vec<&Value> = failed.iter().map(|data| &data["error"]).collect();
    assert_eq!(
        errors,
        [
            &json!("the tool answered 503: the printer is out of paper"),
            &json!("the tool answered 429: {}")
        ]
    );
    assert_eq!(journal(&api, "tool_result").await[0]["result"], 1);
}

#[tokio::test]
async fn the_last_failure_is_the_result_and_the_model_is_told_what_it_says() {
    let api = Api::start().await;
    let busy = (503, json!({"error": "closed"}));
    let (url, server) = ToolServer::start(&[busy.clone(), busy.clone(), busy]).await;
    let retry = json!({"max_attempts": 2, "base": "10ms"});
    let tool = json!({"name": "pay", "retry": retry, "run": {"http": {"url": url}}});
    begin(&api, agent(tool, 1, json!({}))).await;
    until(&api, "turn_completed").await;
    assert_eq!(server.requests.lock().unwrap().len(), 2);
    let result = &journal(&api, "tool_result").await[0];
    assert_eq!(result["error"], "the tool answered 503: closed");
}

#[tokio::test]
async fn a_tool_that_must_not_run_twice_is_not_attempted_again_after_a_500() {
    let api = Api::start().await;
    let (url, server) = ToolServer::start(&[(429, json!({})), (500, json!({}))]).await;
    let tool = json!({"name": "pay", "retry": {"base": "10ms"}, "on_interrupt": "fail",
        "run": {"http": {"url": url}}});
    begin(&api, agent(tool, 1, json!({}))).await;
    until(&api, "turn_completed").await;
    assert_eq!(server.requests.lock().unwrap().len(), 2, "the 429 was repeated, the 500 was not");
    assert_eq!(journal(&api, "tool_result").await[0]["ok"], false);
}

#[tokio::test]
async fn a_call_that_waits_for_its_next_attempt_says_so_and_can_be_cancelled() {
    let api = Api::start().await;
    let (url, _server) = ToolServer::start(&[(503, json!({"error": "closed"}))]).await;
    let retry = json!({"base": "1h", "max": "1h"});
    let tool = json!({"name": "pay", "retry": retry, "run": {"http": {"url": url}}});
    begin(&api, agent(tool, 1, json!({}))).await;
    let failed = async {
        while journal(&api, "tool_attempt_failed").await.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, failed).await.unwrap();
    let why = why(&api, "c").await;
    let waits_for = why["waits_for"].as_str().unwrap();
    assert!(waits_for.starts_with("another attempt at pay (c1) after attempt 1"), "{why}");
    assert!(why["next_at"].is_string(), "{why}");
    assert_eq!(api.send(api.request("POST", "/v1/conversations/c/cancel")).await.status, 200);
    until(&api, "turn_cancelled").await;
}

/// An operator's `why`.
async fn why(api: &Api, id: &str) -> Value {
    let url = format!("http://{}/admin/actors/{id}", api.node.admin);
    let answer: Value = reqwest::get(url).await.unwrap().json().await.unwrap();
    answer["why"].clone()
}

/// A server that counts how many of its requests run at once, and lets them end one by one.
#[derive(Clone)]
struct Gate {
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    may_end: Arc<Semaphore>,
}

#[tokio::test]
async fn no_more_calls_run_at_once_than_the_limit_and_the_rest_wait_in_order() {
    let api = Api::start().await;
    let gate = Gate {
        running: Arc::default(),
        most: Arc::default(),
        may_end: Arc::new(Semaphore::new(0)),
    };
    let answer = async |State(gate): State<Gate>| {
        let running = gate.running.fetch_add(1, Ordering::SeqCst) + 1;
        gate.most.fetch_max(running, Ordering::SeqCst);
        gate.may_end.acquire().await.unwrap().forget();
        gate.running.fetch_sub(1, Ordering::SeqCst);
        axum::Json(json!(1))
    };
    let url = serve(Router::new().fallback(post(answer)).with_state(gate.clone())).await;
    let tool = json!({"name": "pay", "limits": {"concurrency": 2}, "run": {"http": {"url": url}}});
    begin(&api, agent(tool, 5, json!({}))).await;
    let full = async {
        loop {
            let why = why(&api, "c").await;
            let waits_for = why["waits_for"].as_str().unwrap().to_owned();
            if waits_for.starts_with("a place of pay") {
                return waits_for;
            }
            tokio::task::yield_now().await;
        }
    };
    let waits_for = tokio::time::timeout(DEADLINE, full).await.unwrap();
    assert!(waits_for.ends_with("2 at once, per node"), "{waits_for}");
    gate.may_end.add_permits(5);
    until(&api, "turn_completed").await;
    assert_eq!(gate.most.load(Ordering::SeqCst), 2);
    let ended = journal(&api, "tool_result").await;
    assert_eq!(ended.iter().filter(|result| result["ok"] == true).count(), 5);
}

#[tokio::test]
async fn a_hook_sends_a_call_to_an_approval_and_never_loosens_a_denial() {
    let api = Api::start().await;
    let reason = "more than the weekly budget";
    let asks = move || async move { axum::Json(json!({"ask": reason})) };
    let asking = serve(Router::new().fallback(post(asks))).await;
    let (url, server) = ToolServer::start(&[]).await;
    let tool = json!({"name": "pay", "run": {"http": {"url": url}}});
    let hooks = json!([{"on": "PreToolUse", "name": "guard", "http": {"url": asking,
        "headers_env": {"x-token": "PATH"}}}]);
    begin(&api, agent(tool.clone(), 1, json!({"hooks": hooks}))).await;
    let suspended = until(&api, "suspended").await;
    assert_eq!((&suspended["kind"], &suspended["tool"]), (&json!("approval"), &json!("pay")));
    assert!(suspended["message"].as_str().unwrap().ends_with(reason), "{suspended}");
    assert!(server.requests.lock().unwrap().is_empty());
    let rule = journal(&api, "tool_call").await[0]["gate"]["rule"].clone();
    assert_eq!(rule, json!(format!("hook guard: {reason}")));
    let call = "/v1/conversations/c/calls/c1/resolution";
    assert_eq!(api.post(call, json!({"approved": true})).await.status, 200);
    until(&api, "turn_completed").await;
    assert_eq!(server.requests.lock().unwrap().len(), 1);
    let permissions = json!({"disallowed_tools": ["pay"]});
    let denied = agent(tool, 1, json!({"hooks": hooks, "permissions": permissions}));
    assert_eq!(api.put("/v1/agents/denied", denied).await.status, 201);
    let message = json!({"agent": "denied", "text": "go"});
    assert_eq!(api.post("/v1/conversations/d/messages", message).await.status, 202);
    let mut stream = api.stream("/v1/conversations/d/events?after=0").await;
    let failed = stream.until("tool_call_errored").await.data;
    assert_eq!(failed["result"]["error_type"], "PERMISSION_DENIED", "{failed}");
}

#[tokio::test]
async fn a_dispatch_that_a_hook_wants_approved_needs_the_callers_approval() {
    let api = Api::start().await;
    let asks = || async { axum::Json(json!({"ask": "it costs money"})) };
    let asking = serve(Router::new().fallback(post(asks))).await;
    let (url, server) = ToolServer::start(&[]).await;
    let tool = json!({"name": "pay", "audience": "all", "run": {"http": {"url": url}}});
    let hooks = json!([{"on": "PreToolUse", "http": {"url": asking}}]);
    let definition = agent(tool, 1, json!({"hooks": hooks}));
    assert_eq!(api.put("/v1/agents/payer", definition).await.status, 201);
    let new = json!({"id": "c", "agent": "payer"});
    assert_eq!(api.post("/v1/conversations", new).await.status, 201);
    let path = "/v1/conversations/c/dispatch";
    let refused = api.post(path, json!({"tool": "pay", "input": {}})).await;
    assert_eq!(refused.status, 409, "{refused:?}");
    assert!(server.requests.lock().unwrap().is_empty());
    let done = api.post(path, json!({"tool": "pay", "input": {}, "approved": true})).await;
    assert_eq!((done.status, &done.body["result"]), (200, &json!(1)));
}

#[tokio::test]
async fn what_is_wrong_with_a_retry_or_a_limit_is_told_by_its_field() {
    let api = Api::start().await;
    let run = json!({"http": {"url": "http://127.0.0.1:1/"}});
    for (more, field) in [
        (json!({"retry": {"on": ["4xx"]}}), "pay: retry.on:"),
        (json!({"retry": {"on": []}}), "pay: retry.on:"),
        (json!({"retry": {"max_attempts": 0}}), "pay: retry.max_attempts:"),
        (json!({"retry": {"base": "2m", "max": "1m"}}), "pay: retry.max:"),
        (json!({"retry": {"max": "25h"}}), "pay: retry.max:"),
        (json!({"limits": {}}), "pay: limits:"),
        (json!({"limits": {"rate": "100"}}), "pay: limits.rate:"),
        (json!({"limits": {"rate": "0/1m"}}), "pay: limits.rate:"),
        (json!({"limits": {"rate": "1/25h"}}), "pay: limits.rate:"),
        (json!({"limits": {"concurrency": 0}}), "pay: limits.concurrency:"),
        (json!({"limits": {"concurrency": 1, "per": "tool"}}), "pay: limits.per:"),
        (json!({"run": {"agent": "demo"}, "retry": {}}), "pay: retry:"),
        (json!({"run": null, "executor": "human", "limits": {"rate": "1/1s"}}), "pay: limits:"),
    ] {
        let mut tool = json!({"name": "pay", "run": run});
        for (key, value) in more.as_object().unwrap() {
            tool[key] = value.clone();
        }
        let refused = api.put("/v1/agents/payer", agent(tool, 1, json!({}))).await;
        assert_eq!(refused.status, 422, "{more}");
        assert!(refused.body.to_string().contains(field), "{more}: {refused:?}");
    }
}
