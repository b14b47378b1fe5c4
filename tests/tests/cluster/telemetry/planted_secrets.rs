//! Secrets and content that are planted in every input must not appear in any telemetry.

use abide_tests::collector::Collector;
use abide_tests::model_server::{ModelServer, Piece};
use abide_tests::node::Site;
use abide_tests::redis::Redis;
use abide_tests::tool_server::ToolServer;
use axum::Router;
use axum::http::StatusCode;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::ABIDE;
use crate::agents::{agent, http, human};

const PASSWORD: &str = "PLANTED-redis-password";
const API_KEY: &str = "PLANTED-api-key";
/// A webhook secret, whose base64 is planted text.
const WEBHOOK: &str = "whsec_UExBTlRFRC13ZWJob29rLXNlY3JldC1zZWNyZXQ=";

/// Secrets, which never appear, whatever is switched on.
const SECRETS: [&str; 7] = [
    PASSWORD,
    API_KEY,
    WEBHOOK,
    "UExBTlRFRC13ZWJob29r",
    "PLANTED-cluster-secret-that-nobody-guesses",
    "PLANTED-authorization",
    "PLANTED-idempotency-key",
];
/// Content that spans contain when that is switched on.
const CONTENT: [&str; 6] = [
    "PLANTED-system-prompt",
    "PLANTED-message",
    "PLANTED-answer",
    "PLANTED-tool-args",
    "PLANTED-resolution",
    "PLANTED-last-words",
];
/// Content that never appears.
const HIDDEN_CONTENT: [&str; 6] = [
    "PLANTED-assigns",
    "PLANTED-metadata",
    "PLANTED-message-id",
    "PLANTED-not-json",
    "PLANTED-dispatch",
    "PLANTED-reason",
];

/// Everything that a node emitted.
struct Telemetry {
    log: String,
    metrics: String,
    spans: String,
}

/// Starts a provider that repeats the request in its error.
async fn start_echoing_provider() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let refuse = async |body: String| {
        (StatusCode::BAD_REQUEST, axum::Json(json!({"error": {"message": body}})))
    };
    let router = Router::new().fallback(refuse);
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    format!("http://{address}/v1")
}

fn definition(model: &ModelServer, tools: &ToolServer) -> Value {
    let mut spoken = model.model();
    spoken["api_key_env"] = "MODEL_KEY".into();
    let signed = json!({"run": {"http": {"url": tools.url("/echo"),
        "headers": {"Authorization": "Bearer PLANTED-authorization"},
        "signing_secret_env": "WEBHOOK_SECRET"}}});
    let broken = http("broken", tools, "/drop", json!({}));
    let mut agent = agent(spoken, vec![crate::agents::tool("send", signed), broken, human("ask")]);
    agent["system_prompt"] = "PLANTED-system-prompt".into();
    agent["assigns"] = json!({"who": "PLANTED-assigns"});
    agent["hooks"] = json!([{"on": "Stop", "http": {"url": tools.url("/echo"),
        "signing_secret_env": "WEBHOOK_SECRET"}}]);
    agent
}

/// Runs messages, calls, questions, failures and refusals, all with planted words.
async fn run_scenario(format: &str, content: &str) -> Telemetry {
    let (redis, collector) = (Redis::own().await, Collector::start().await);
    let (model, tools) = (ModelServer::start().await, ToolServer::start().await);
    redis.ask::<()>(&["CONFIG", "SET", "requirepass", PASSWORD]).await;
    let site = Site::new(ABIDE)
        .with_store(&format!("redis://:{PASSWORD}@{}", redis.address()))
        .with(&["--durability", "os", "--otlp", &collector.url(), "--log-format", format])
        .with_env("RUST_LOG", "trace")
        .with_env("ABIDE_TELEMETRY_CONTENT", content)
        .with_env("ABIDE_CLUSTER_SECRET", "PLANTED-cluster-secret-that-nobody-guesses")
        .with_env("MODEL_KEY", API_KEY)
        .with_env("WEBHOOK_SECRET", WEBHOOK);
    let mut node = site.start().await;
    let client = &site.client;
    client.define("a", &definition(&model, &tools)).await;
    let refusing =
        json!({"provider": "openai", "name": "test", "base_url": start_echoing_provider().await});
    client.define("b", &agent(refusing, vec![])).await;

    let args = json!({"to": "PLANTED-tool-args"});
    model.reply(vec![
        Piece::Text("PLANTED-answer"),
        Piece::Call("send", "send", args.clone()),
        Piece::Call("broken", "broken", args),
        Piece::Call("ask", "ask", json!({})),
    ]);
    model.reply(vec![Piece::Text("PLANTED-last-words")]);
    let created = json!({"id": "c", "agent": "a", "metadata": {"is": "PLANTED-metadata"}});
    client.post("/v1/conversations", &created).await.expect(201);
    let url = format!("http://{}/v1/conversations/c/messages", client.public_address());
    let body = json!({"text": "PLANTED-message", "message_id": "PLANTED-message-id"});
    let message = reqwest::Client::new().post(url).json(&body);
    let message = message.header("Idempotency-Key", "PLANTED-idempotency-key");
    let message = message.header("Authorization", "Bearer PLANTED-authorization");
    assert_eq!(message.send().await.unwrap().status(), 202);
    client.wait_for_pending("c", "ask", "elicitation").await;
    client.resolve("c", "ask", json!({"result": "PLANTED-resolution"})).await.expect(200);
    client.wait_until_settled("c", 1).await;

    client.send_message("d", "b", "PLANTED-message").await;
    let failed = client.wait_until_settled("d", 1).await;
    assert!(format!("{failed:?}").contains("answered 400"), "{failed:#?}");
    let wrong = json!({"PLANTED-not-json": "PLANTED-not-json"});
    let refused = client.post("/v1/conversations/c/messages", &wrong).await;
    assert!((400..500).contains(&refused.status), "{refused:?}");
    client.resolve("c", "ask", json!({"approved": false, "reason": "PLANTED-reason"})).await;
    let own = json!({"tool": "send", "input": {"to": "PLANTED-dispatch"}});
    client.post("/v1/conversations/c/dispatch", &own).await.expect(200);
    let metrics = client.admin(Method::GET, "/metrics").await.expect(200);
    node.terminate();
    assert!(node.wait_for_exit().await.success());
    let sent = [model.requests.nth(1).await, tools.requests.nth(1).await];
    assert!(sent[0].header("authorization").contains(API_KEY), "the key was used");
    Telemetry {
        log: site.log(),
        metrics: metrics.to_string(),
        spans: String::from_utf8_lossy(&collector.bytes()).into_owned(),
    }
}

fn assert_hidden(words: &[&str], source: &str, text: &str) {
    for word in words {
        let line = text.lines().find(|line| line.contains(word));
        assert!(line.is_none(), "{word} is in the {source}: {}", line.unwrap());
    }
    assert!(!text.is_empty(), "the {source} is empty");
}

#[tokio::test]
async fn no_content_and_no_secret_is_in_logs_metrics_or_traces() {
    for format in ["json", "text"] {
        let telemetry = run_scenario(format, "false").await;
        assert!(telemetry.spans.contains("execute_tool send"), "{}", telemetry.spans);
        for (source, text) in
            [("log", &telemetry.log), ("metrics", &telemetry.metrics), ("spans", &telemetry.spans)]
        {
            assert_hidden(&SECRETS, source, text);
            assert_hidden(&CONTENT, source, text);
            assert_hidden(&HIDDEN_CONTENT, source, text);
            assert_hidden(&["PLANTED"], source, text);
        }
    }
}

#[tokio::test]
async fn content_is_on_spans_when_that_is_switched_on_and_secrets_never_are() {
    let telemetry = run_scenario("json", "true").await;
    for word in CONTENT {
        assert!(telemetry.spans.contains(word), "{word} is not in the spans: {}", telemetry.spans);
    }
    for (source, text) in
        [("log", &telemetry.log), ("metrics", &telemetry.metrics), ("spans", &telemetry.spans)]
    {
        assert_hidden(&SECRETS, source, text);
    }
    assert_hidden(&["PLANTED"], "metrics", &telemetry.metrics);
}
