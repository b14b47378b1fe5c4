//! Tests against a real server that speaks the wire format, well or badly.
#![allow(clippy::unwrap_used)]

mod body;
mod hosted;

use std::sync::Arc;
use std::time::Duration;

use abide_conversation::message::{ProviderMessage, StopReason};
use abide_conversation::usage::Usage;
use serde_json::{Value, json};

use crate::model::http::{HttpModel, HttpTimeouts};
use crate::model::test_server::{
    FixedClock, TestResponse, TestServer, all_ok, collect_reply, event, request, settings,
};
use crate::model::{
    ModelError, ModelRequest, ModelSettings, ModelToolCall, Provider, ReplyChunk, ReplyEnd, Retry,
};

const KEY: &str = "AIza-test-0123456789";

fn gemini() -> HttpModel {
    let lookup = |name: &str| (name == "A_KEY").then(|| KEY.to_owned());
    HttpModel::new(Arc::new(FixedClock), HttpTimeouts::default(), lookup)
}

fn request_to(server: &TestServer) -> ModelRequest {
    request(ModelSettings {
        name: "gemini-3-pro".to_owned(),
        base_url: Some(server.url.clone()),
        ..settings(Provider::Gemini)
    })
}

async fn reply(pieces: Vec<String>) -> Vec<Result<ReplyChunk, ModelError>> {
    let server = TestServer::start([TestResponse::stream(pieces)]).await;
    collect_reply(&gemini(), request_to(&server)).await
}

fn parts(parts: Value) -> String {
    event(json!({"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}]}))
}

fn finish(reason: &str) -> String {
    event(json!({"candidates": [{"finishReason": reason, "index": 0}]}))
}

fn text(text: &str) -> ReplyChunk {
    ReplyChunk::Text(text.to_owned())
}

fn call(id: &str, name: &str, args: Result<Value, String>) -> ReplyChunk {
    ReplyChunk::Call(ModelToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        args,
        provider_result: None,
    })
}

fn done(stop: StopReason) -> ReplyChunk {
    ReplyChunk::Done(ReplyEnd { stop: Some(stop), ..ReplyEnd::default() })
}

fn verbatim(items: Value) -> Option<ProviderMessage> {
    let (provider, model) = ("gemini".to_owned(), "gemini-3-pro".to_owned());
    Some(ProviderMessage { provider, model, items: items.as_array().unwrap().clone() })
}

fn failure(mut parts: Vec<Result<ReplyChunk, ModelError>>) -> ModelError {
    parts.pop().unwrap().unwrap_err()
}

#[tokio::test]
async fn text_streams_and_all_that_is_counted_is_usage() {
    let usage = json!({"promptTokenCount": 10, "cachedContentTokenCount": 4,
        "toolUsePromptTokenCount": 3, "candidatesTokenCount": 5, "thoughtsTokenCount": 7,
        "totalTokenCount": 25});
    let last = json!({"candidates": [{"content": {"parts": [{"text": " Gott"}]},
        "finishReason": "STOP"}], "usageMetadata": usage});
    let first = json!({"candidates": [{"content": {"parts": [{"text": "Grüß"}]}}],
        "usageMetadata": {"promptTokenCount": 10}});
    let pieces = vec![event(first), ": keep-alive\n\n".to_owned(), event(last)];
    let usage = Usage { input_tokens: 13, output_tokens: 12, cached_tokens: 4, ..Usage::default() };
    let end = ReplyEnd { usage: Some(usage), stop: Some(StopReason::End), verbatim: None };
    assert_eq!(all_ok(reply(pieces).await), [text("Grüß"), text(" Gott"), ReplyChunk::Done(end)]);
}

#[tokio::test]
async fn signed_text_stays_separate_and_the_rest_is_joined() {
    let first =
        json!({"functionCall": {"name": "f", "args": {"n": 1}}, "thoughtSignature": "c2ln"});
    let second = json!({"functionCall": {"id": "b", "name": "g"}});
    let pieces = vec![
        parts(json!([{"text": "Hm", "thought": true}])),
        parts(json!([{"text": ".", "thought": true}, {"text": "I "}])),
        parts(json!([{"text": "look"}, {"text": ""}])),
        parts(json!([{"text": ".", "thoughtSignature": "dGV4dA=="}])),
        parts(json!([{"text": "", "thoughtSignature": "ZW1wdHk="}])),
        parts(json!([first, second])),
        finish("STOP"),
    ];
    let thinking = |text: &str| ReplyChunk::Thinking(text.to_owned());
    let items = json!([
        {"text": "Hm.", "thought": true},
        {"text": "I look"},
        {"text": ".", "thoughtSignature": "dGV4dA=="},
        {"text": "", "thoughtSignature": "ZW1wdHk="},
        first,
        second,
    ]);
    let end =
        ReplyEnd { stop: Some(StopReason::ToolCalls), verbatim: verbatim(items), usage: None };
    let expected = [
        thinking("Hm"),
        thinking("."),
        text("I "),
        text("look"),
        text("."),
        call("", "f", Ok(json!({"n": 1}))),
        call("b", "g", Ok(json!({}))),
        ReplyChunk::Done(end),
    ];
    assert_eq!(all_ok(reply(pieces).await), expected);
}

#[tokio::test]
async fn a_message_of_text_and_calls_is_not_kept_verbatim() {
    let large = r#"{"id": 12345678901234567890123}"#;
    let raw = parts(json!([{"functionCall": {"name": "f", "args": {"id": 7}}}]));
    let raw = raw.replace(r#"{"id":7}"#, large);
    let pieces = vec![parts(json!([{"text": "So:"}])), raw, finish("STOP")];
    let expected = [text("So:"), call("", "f", Err(large.to_owned())), done(StopReason::ToolCalls)];
    assert_eq!(all_ok(reply(pieces).await), expected);
}

#[tokio::test]
async fn generated_media_are_described() {
    let image = json!({"inlineData": {"mimeType": "image/png", "data": "AAEC"},
        "thoughtSignature": "c2ln"});
    let parts = all_ok(reply(vec![parts(json!([image])), finish("STOP")]).await);
    assert_eq!(parts, [text("[image/png, 3 B]"), done(StopReason::End)]);
}

#[tokio::test]
async fn every_reason_to_end_has_its_meaning() {
    for (reason, stop) in [
        ("STOP", Some(StopReason::End)),
        ("MAX_TOKENS", Some(StopReason::MaxTokens)),
        ("SAFETY", Some(StopReason::Refusal)),
        ("RECITATION", Some(StopReason::Refusal)),
        ("PROHIBITED_CONTENT", Some(StopReason::Refusal)),
        ("OTHER", None),
        ("FINISH_REASON_OF_TOMORROW", None),
    ] {
        let chunks = all_ok(reply(vec![parts(json!([{"text": "So"}])), finish(reason)]).await);
        let end = ReplyChunk::Done(ReplyEnd { stop, ..ReplyEnd::default() });
        assert_eq!(chunks, [text("So"), end], "{reason}");
    }
    for (reason, retry) in [
        ("SAFETY", Retry::Never),
        ("BLOCKLIST", Retry::Never),
        ("MISSING_THOUGHT_SIGNATURE", Retry::Never),
        ("OTHER", Retry::After(None)),
        ("MALFORMED_FUNCTION_CALL", Retry::After(None)),
        ("UNEXPECTED_TOOL_CALL", Retry::After(None)),
    ] {
        let end = json!({"finishReason": reason, "finishMessage": "for a\nreason"});
        let failed = failure(reply(vec![event(json!({"candidates": [end]}))]).await);
        assert_eq!(failed.retry, retry, "{reason}");
        assert!(failed.message.ends_with(&format!("{reason}: for a reason")), "{failed}");
    }
    assert_eq!(all_ok(reply(vec![finish("STOP")]).await), [done(StopReason::End)]);
}

#[tokio::test]
async fn a_blocked_prompt_is_not_retried() {
    let blocked = json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"},
        "usageMetadata": {"promptTokenCount": 9}});
    let failed = failure(reply(vec![event(blocked)]).await);
    let message = "the model's provider refused to answer: PROHIBITED_CONTENT";
    assert_eq!(failed, ModelError::permanent(message));
}

#[tokio::test]
async fn an_error_says_whether_a_retry_may_help() {
    let error = |code: u16, status: &str, message: &str| {
        json!({"error": {"code": code, "status": status, "message": message, "details": [
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}]}})
    };
    let long = "The input token count (1200000) exceeds the maximum number of tokens allowed \
                (1048576).";
    let wait = Retry::After(Some(Duration::from_secs(7)));
    for (error, retry, streamed) in [
        (error(429, "RESOURCE_EXHAUSTED", "Quota."), wait, Retry::After(None)),
        (error(503, "UNAVAILABLE", "Overloaded."), wait, Retry::After(None)),
        (error(400, "INVALID_ARGUMENT", "No."), Retry::Never, Retry::Never),
        (error(400, "INVALID_ARGUMENT", long), Retry::Shorter, Retry::Shorter),
    ] {
        let status = u16::try_from(error["error"]["code"].as_u64().unwrap()).unwrap();
        let body = json!([error]).to_string().into();
        let answer = TestResponse { status, pieces: vec![body], ..TestResponse::error(status, "") };
        let server = TestServer::start([answer]).await;
        let failed = failure(collect_reply(&gemini(), request_to(&server)).await);
        assert_eq!(failed.retry, retry, "{failed}");
        let pieces = vec![parts(json!([{"text": "So"}])), event(error)];
        assert_eq!(failure(reply(pieces).await).retry, streamed);
    }
}

#[tokio::test]
async fn a_stream_that_ends_before_its_message_is_a_failure() {
    let ended = failure(reply(vec![parts(json!([{"text": "So"}]))]).await);
    assert_eq!(ended, ModelError::transient("the model's reply ended before it was complete"));
    for unreadable in
        ["data: {\n\n", "data: {\"candidates\": [{\"content\": {\"parts\": [7]}}]}\n\n"]
    {
        let unreadable = failure(reply(vec![unreadable.to_owned()]).await);
        assert_eq!(unreadable.message, "the model's provider sent something unreadable");
    }
}

#[tokio::test]
async fn too_many_calls_or_parts_are_refused() {
    let many = |part: Value, count: usize| vec![parts(vec![part; count].into()), finish("STOP")];
    let call = json!({"functionCall": {"name": "f"}});
    let calls = all_ok(reply(many(call.clone(), 256)).await);
    assert_eq!(calls.len(), 257);
    let most = "the model's reply has more than 256 calls";
    assert_eq!(failure(reply(many(call, 257)).await), ModelError::permanent(most));
    let begun = json!({"executableCode": {}});
    assert_eq!(failure(reply(many(begun, 257)).await), ModelError::permanent(most));
    let signed = json!({"thoughtSignature": ""});
    let failed = failure(reply(many(signed, 16_385)).await);
    assert!(failed.message.contains("more than 16777216 bytes"), "{failed}");
}

#[tokio::test]
async fn a_key_is_sent_in_its_header_and_the_name_in_the_address() {
    let answers =
        [TestResponse::stream([finish("STOP")]), TestResponse::error(400, &format!("bad {KEY}"))];
    let server = TestServer::start(answers).await;
    let mut request = request_to(&server);
    request.settings.api_key_env = Some("A_KEY".to_owned());
    all_ok(collect_reply(&gemini(), request.clone()).await);
    request.settings.name = "tunedModels/mine".to_owned();
    let failed = failure(collect_reply(&gemini(), request).await);
    assert!(failed.message.ends_with("bad [key]"), "{failed}");
    let requests = server.requests();
    assert_eq!(requests[0].headers["x-goog-api-key"], KEY);
    assert_eq!(requests[0].headers.get("authorization"), None);
    assert_eq!(requests[0].path, "/v1/models/gemini-3-pro:streamGenerateContent?alt=sse");
    assert_eq!(requests[1].path, "/v1/tunedModels/mine:streamGenerateContent?alt=sse");
}
