//! Tests of what only this format has; the rest is in the conformance suite.
#![allow(clippy::unwrap_used)]

mod body;

use std::sync::Arc;

use abide_conversation::event::Executor;
use abide_conversation::message::{
    CallRef, Message, MessageRole, ProviderMessage, StopReason, text_block,
};
use abide_conversation::{CallId, MessageId};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::reply::OllamaDecoder;
use crate::model::http;
use crate::model::http::{Frame, HttpModel, HttpTimeouts, MAX_REPLY_BYTES};
use crate::model::test_server::{
    FixedClock, TestResponse, TestServer, all_ok, collect_reply, request, settings,
};
use crate::model::{
    ModelError, ModelRequest, ModelSettings, ModelToolCall, Provider, ReplyChunk, ReplyEnd, Retry,
    ToolSpec,
};

fn sample_request() -> ModelRequest {
    request(ModelSettings { name: "some-model".to_owned(), ..settings(Provider::Ollama) })
}

/// Decodes these lines as one reply.
fn decode<T: ToString>(lines: impl IntoIterator<Item = T>) -> Result<Vec<ReplyChunk>, ModelError> {
    let mut reply: Box<dyn http::ReplyDecoder> = Box::new(OllamaDecoder::new(&sample_request()));
    let mut chunks = Vec::new();
    for line in lines {
        chunks.extend(reply.push(Frame { event: String::new(), data: line.to_string() })?);
    }
    chunks.extend(reply.finish()?);
    Ok(chunks)
}

fn line(message: Value) -> Value {
    json!({"message": message, "done": false})
}

fn done(reason: &str) -> Value {
    json!({"message": {"role": "assistant", "content": ""}, "done": true, "done_reason": reason})
}

fn call(id: &str, args: Result<Value, &str>) -> ReplyChunk {
    let args = args.map_err(str::to_owned);
    let (id, name) = (id.to_owned(), "f".to_owned());
    ReplyChunk::Call(ModelToolCall { id, name, args, provider_result: None })
}

fn ends(stop: Option<StopReason>) -> ReplyChunk {
    ReplyChunk::Done(ReplyEnd { usage: None, stop, verbatim: None })
}

#[test]
fn calls_need_no_id_and_arguments_may_be_text() {
    let call_line = |function: Value| line(json!({"tool_calls": [{"function": function}]}));
    let lines = [
        call_line(json!({"name": "f", "arguments": {"q": [1]}})),
        call_line(json!({"name": "f", "arguments": "{\"q\": 2}"})),
        call_line(json!({"name": "f", "arguments": "{\"q\": "})),
        call_line(json!({"name": "f", "arguments": null})),
        call_line(json!({"name": "f"})),
        line(json!({"tool_calls": [{"id": "a"}]})),
        done("stop"),
    ];
    let mut chunks = decode(lines).unwrap();
    let nameless = ModelToolCall::from_text("a".to_owned(), String::new(), String::new(), false);
    assert_eq!(chunks.remove(5), ReplyChunk::Call(nameless));
    let expected = [
        call("", Ok(json!({"q": [1]}))),
        call("", Ok(json!({"q": 2}))),
        call("", Err("{\"q\": ")),
        call("", Ok(json!({}))),
        call("", Ok(json!({}))),
        ends(Some(StopReason::ToolCalls)),
    ];
    assert_eq!(chunks, expected);
}

#[test]
fn an_end_has_its_reason() {
    for (reason, stop) in
        [("stop", Some(StopReason::End)), ("length", Some(StopReason::MaxTokens)), ("load", None)]
    {
        assert_eq!(decode([done(reason)]).unwrap(), [ends(stop)]);
    }
}

#[tokio::test]
async fn the_last_line_needs_no_end_and_an_error_comes_after_its_text() {
    let hi = format!("{}\n", line(json!({"content": "Hi"})));
    let lines = [hi.clone(), done("stop").to_string()];
    let server = TestServer::start([
        TestResponse::stream(lines),
        TestResponse::stream([hi, json!({"error": "an error was encountered"}).to_string()]),
    ]);
    let server = server.await;
    let wire =
        HttpModel::new(Arc::new(FixedClock), HttpTimeouts::default(), |_| Some("key".to_owned()));
    let mut request = sample_request();
    request.settings.base_url = Some(server.url.replace("/v1", ""));
    let chunks = all_ok(collect_reply(&wire, request.clone()).await);
    assert_eq!(chunks, [ReplyChunk::Text("Hi".to_owned()), ends(Some(StopReason::End))]);
    request.settings.api_key_env = Some("A_KEY".to_owned());
    let mut chunks = collect_reply(&wire, request).await;
    let error = chunks.pop().unwrap().unwrap_err();
    assert_eq!(error.message, "the model's provider failed: an error was encountered");
    assert_eq!(error.retry, Retry::After(None));
    assert_eq!(chunks, [Ok(ReplyChunk::Text("Hi".to_owned()))]);
    let sent = server.requests();
    assert_eq!(sent[0].path, "/api/chat");
    assert_eq!(sent[0].headers.get("authorization"), None);
    assert_eq!(sent[1].headers["authorization"], "Bearer key");
}

#[test]
fn a_prompt_that_is_too_long_may_be_shorter() {
    let nested = json!({"error": {"code": 400, "type": "exceed_context_size_error",
        "message": "request (8889 tokens) exceeds the available context size (4096 tokens)"}});
    for error in [
        json!(nested.to_string()),
        json!("the prompt is longer than the context length currently available to the model"),
        json!("prompt too long; exceeded max context length by 17 tokens"),
        json!("the input length exceeds the context length"),
    ] {
        assert_eq!(decode([json!({"error": error})]).unwrap_err().retry, Retry::Shorter, "{error}");
    }
}

#[test]
fn a_reply_without_end_is_refused() {
    let piece = "x".repeat(1 << 20);
    let pieces = MAX_REPLY_BYTES / piece.len() + 1;
    let call = json!({"function": {"name": "f", "arguments": {"q": piece}}});
    for message in
        [json!({"content": piece}), json!({"thinking": piece}), json!({"tool_calls": [call]})]
    {
        assert_eq!(decode(vec![line(message); pieces]).unwrap_err().retry, Retry::Never);
    }
    let call = line(json!({"tool_calls": [{"function": {"name": "f"}}]}));
    let error = decode(vec![call; 257]).unwrap_err();
    assert_eq!(error.message, "the model's reply has more than 256 calls");
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!({})),
        Just(json!([{"function": {}}, 7])),
        any::<u64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        "[a-z{}\"]{0,4}".prop_map(Value::from),
    ]
}

/// A line with mostly correct types; otherwise hardly a line would be decoded.
fn any_line() -> impl Strategy<Value = Value> {
    let text = || prop_oneof![Just(Value::Null), "[a-z{}\"]{0,4}".prop_map(Value::from)];
    let function = (text(), any_value())
        .prop_map(|(name, arguments)| json!({"name": name, "arguments": arguments}));
    let function = prop_oneof![Just(Value::Null), Just(json!({})), function];
    let call =
        (text(), function).prop_map(|(id, function)| json!({"id": id, "function": function}));
    let calls = prop::collection::vec(call, 0..3).prop_map(Value::from);
    let calls = prop_oneof![9 => calls, 1 => any_value()];
    let others = (text(), text(), prop_oneof![9 => Just(Value::Null), 1 => any_value()]);
    (calls, others, any::<bool>()).prop_map(|(calls, (content, reason, error), done)| {
        let message = json!({"content": content, "thinking": reason, "tool_calls": calls});
        json!({"message": message, "done": done, "done_reason": reason, "error": error})
    })
}

proptest! {
    #[test]
    fn no_line_makes_it_panic(lines in prop::collection::vec(any_line(), 0..20)) {
        let decoder = OllamaDecoder::new(&sample_request());
        let mut reply: Box<dyn http::ReplyDecoder> = Box::new(decoder);
        for line in lines {
            let _ = reply.push(Frame { event: String::new(), data: line.to_string() });
        }
        let ended = matches!(reply.finish().unwrap_or_default().last(), Some(ReplyChunk::Done(_)));
        prop_assert!(ended);
    }
}
