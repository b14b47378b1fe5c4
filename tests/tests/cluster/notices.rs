//! Notices outlive the process that owes them.

use abide_tests::node::Site;
use abide_tests::request_log::Request;
use abide_tests::tool_server::ToolServer;
use axum::http::{HeaderMap, HeaderName};
use reqwest::Method;
use serde_json::json;
use standardwebhooks::Webhook;

use crate::ABIDE;
use crate::agents::agent;

/// Fails unless the official library accepts the request.
fn check_signed(request: &Request, secret: &str) {
    let header = |(name, value): &(String, String)| {
        (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())
    };
    let headers: HeaderMap = request.headers.iter().map(header).collect();
    let body = request.body.to_string();
    Webhook::new(secret).unwrap().verify(body.as_bytes(), &headers).unwrap();
}

#[tokio::test]
async fn a_notice_that_was_owed_when_its_node_was_killed_is_told_by_the_next_in_order() {
    let (site, receiver) = (Site::new(ABIDE), ToolServer::start().await);
    let node = site.start().await;
    let model = json!({"provider": "scripted", "script": [{"text": "Done."}]});
    site.client.define("a", &agent(model, vec![])).await;
    let body = json!({"url": receiver.url("/hold"), "events": "all"});
    let put = site.client.ask(Method::PUT, "/v1/webhooks/ops", None, Some(&body)).await.unwrap();
    let secret = put.expect(201)["secret"].as_str().unwrap().to_owned();
    site.client.send_message("c", "a", "one").await;
    let journal = site.client.wait_until_settled("c", 1).await;
    receiver.requests.nth(1).await;
    node.kill().await;

    let _node = site.start().await;
    let again = receiver.requests.nth(2).await;
    receiver.release();
    let last = receiver.requests.nth(3).await;
    let ended = journal.of("turn_ended").last().unwrap()["seq"].as_u64().unwrap();
    let all = receiver.requests.all();
    let told: Vec<_> = all.iter().map(|it| (it.header("webhook-id"), &it.body["type"])).collect();
    let (created, completed) = (json!("conversation.created"), json!("turn.completed"));
    let end_id = format!("c:{ended}:ops");
    assert_eq!(told, [("c:1:ops", &created), ("c:1:ops", &created), (&*end_id, &completed)]);
    assert_eq!(again.body, all[0].body, "every attempt says the same");
    all.iter().for_each(|request| check_signed(request, &secret));
    assert_eq!(last.body["data"]["conversation_id"], "c");
}
