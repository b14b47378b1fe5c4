//! HTTP hooks, as their server and the client see them.

use abide_tests::node::Site;
use abide_tests::request_log::Request;
use abide_tests::tool_server::ToolServer;
use axum::http::{HeaderMap, HeaderName};
use serde_json::json;
use standardwebhooks::Webhook;

use crate::ABIDE;
use crate::agents::{calls_once, http};

const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// Fails unless the request was signed with the secret.
fn check_signed(request: &Request) {
    let header = |(name, value): &(String, String)| {
        (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())
    };
    let headers: HeaderMap = request.headers.iter().map(header).collect();
    let body = request.body.to_string();
    Webhook::new(SECRET).unwrap().verify(body.as_bytes(), &headers).unwrap();
}

#[tokio::test]
async fn signed_hooks_are_asked_before_a_call_and_told_of_the_end_of_its_turn() {
    let site = Site::new(ABIDE).with_env("HOOK_SECRET", SECRET);
    let tools = ToolServer::start().await;
    let _node = site.start().await;
    let hook = |on: &str, path: &str| json!({"on": on, "http": {"url": tools.url(path), "signing_secret_env": "HOOK_SECRET"}});
    let mut agent = calls_once(vec![http("send", &tools, "/answer", json!({}))]);
    agent["hooks"] = json!([hook("PreToolUse", "/deny"), hook("Stop", "/echo")]);
    site.client.define("a", &agent).await;
    site.client.send_message("c", "a", "go").await;
    let journal = site.client.wait_until_settled("c", 1).await;
    let denied = "permission denied: send is refused by hook PreToolUse_0: not today";
    assert_eq!(journal.result("send")["error"], denied);
    let (question, notification) = (tools.requests.nth(1).await, tools.requests.nth(2).await);
    for (request, path, on) in
        [(&question, "/deny", "PreToolUse"), (&notification, "/echo", "Stop")]
    {
        check_signed(request);
        assert_eq!((request.path.as_str(), &request.body["on"]), (path, &json!(on)));
        assert_eq!(request.body["conversation_id"], "c");
    }
    assert_eq!(notification.body["event"]["data"]["outcome"], "completed");
    assert_eq!(tools.requests.all().len(), 2, "the tool never ran");
}
