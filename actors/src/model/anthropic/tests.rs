//! Tests of what only this format has; the rest is in the conformance suite.
#![allow(clippy::unwrap_used)]

mod body;
mod reply;

use std::sync::Arc;

use abide_conversation::message::{Message, MessageRole, ProviderMessage, text_block};
use abide_conversation::{CallId, MessageId};
use serde_json::{Value, json};

use crate::model::http::{HttpModel, HttpTimeouts};
use crate::model::test_server::{
    FixedClock, TestResponse, TestServer, all_ok, collect_reply, message, request, settings,
};
use crate::model::{ModelRequest, ModelSettings, Provider, Retry};

fn http_model() -> HttpModel {
    HttpModel::new(Arc::new(FixedClock), HttpTimeouts::default(), |_| Some("key".to_owned()))
}

fn sample_request(messages: Vec<Message>) -> ModelRequest {
    let settings = ModelSettings { name: "some-model".to_owned(), ..settings(Provider::Anthropic) };
    ModelRequest { messages, ..request(settings) }
}

fn user_text(id: &str, text: &str) -> Message {
    message(id, MessageRole::User, vec![text_block(text)])
}

fn assistant_text(id: &str, text: &str) -> Message {
    message(id, MessageRole::Assistant, vec![text_block(text)])
}

fn result(id: &str) -> Message {
    Message {
        tool_call_id: Some(CallId::new(id)),
        ..message(&format!("result_{id}"), MessageRole::Tool, vec![text_block("found")])
    }
}

/// The verbatim form of a message.
fn verbatim_entry(id: &str, items: Value) -> (MessageId, ProviderMessage) {
    let (provider, model) = ("anthropic".to_owned(), "some-model".to_owned());
    let items = items.as_array().unwrap().clone();
    (MessageId::new(id), ProviderMessage { provider, model, items })
}

fn event(event: Value) -> String {
    format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())
}

/// The frames of a message with these blocks, each with its deltas.
fn message_frames(blocks: &[(Value, &[Value])], end: Value) -> Vec<String> {
    let mut events = vec![event(json!({"type": "message_start", "message": {}}))];
    for (index, (block, deltas)) in blocks.iter().enumerate() {
        events.push(event(
            json!({"type": "content_block_start", "index": index, "content_block": block}),
        ));
        events.extend(deltas.iter().map(|delta| {
            event(json!({"type": "content_block_delta", "index": index, "delta": delta}))
        }));
        events.push(event(json!({"type": "content_block_stop", "index": index})));
    }
    events.push(event(json!({"type": "message_delta", "delta": end})));
    events.push(event(json!({"type": "message_stop"})));
    events
}

#[tokio::test]
async fn the_version_the_key_and_betas_are_sent_in_headers() {
    let answer = message_frames(&[], json!({"stop_reason": "end_turn"}));
    let server = TestServer::start([TestResponse::stream(answer)]).await;
    let mut request = sample_request(vec![user_text("1", "go")]);
    request.settings.base_url = Some(server.url.clone());
    request.settings.api_key_env = Some("A_KEY".to_owned());
    let binding = json!({"type": "adaptive", "block_binding": {}});
    request.settings.options.insert("betas".to_owned(), json!(["one", "two"]));
    request.settings.options.insert("thinking".to_owned(), binding.clone());
    all_ok(collect_reply(&http_model(), request).await);
    let request = server.requests().remove(0);
    assert_eq!(request.path, "/v1/messages");
    assert_eq!(request.headers["x-api-key"], "key");
    assert_eq!(request.headers["anthropic-version"], "2023-06-01");
    let betas = "one,two,thinking-binding-controls-2026-08-01";
    assert_eq!(request.headers["anthropic-beta"], betas);
    assert_eq!((&request.body["thinking"], request.body.get("betas")), (&binding, None));
}

#[tokio::test]
async fn thinking_that_the_provider_refuses_is_left_out() {
    let refusal = "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound \
                to a different conversation.";
    let answer = message_frames(&[], json!({"stop_reason": "end_turn"}));
    let server =
        TestServer::start([TestResponse::error(400, refusal), TestResponse::stream(answer)]).await;
    let mut request =
        sample_request(vec![user_text("1", "go"), assistant_text("2", "Hm"), user_text("3", "on")]);
    request.settings.base_url = Some(server.url.clone());
    let thinking = json!({"type": "thinking", "thinking": "x", "signature": "s"});
    let text = json!({"type": "text", "text": "Hm"});
    request.verbatim = [verbatim_entry("2", json!([thinking, text]))].into();
    let chunks = all_ok(collect_reply(&http_model(), request.clone()).await);
    assert_eq!(chunks.len(), 1);
    let requests = server.requests();
    assert_eq!(requests[0].body["messages"][1]["content"], json!([thinking, text]));
    assert_eq!(requests[1].body["messages"][1]["content"], json!([text]));

    // Without thinking there is nothing to leave out.
    let server = TestServer::start([TestResponse::error(400, refusal)]).await;
    request.settings.base_url = Some(server.url.clone());
    request.verbatim.clear();
    let error = collect_reply(&http_model(), request).await.remove(0).unwrap_err();
    assert_eq!((error.retry, server.requests().len()), (Retry::Never, 1));
}
