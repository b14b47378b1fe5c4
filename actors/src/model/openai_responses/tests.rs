//! Tests of what only this format has; the rest is in the conformance suite.
#![allow(clippy::unwrap_used)]

mod body;
mod hosted;

use abide_conversation::event::Executor;
use abide_conversation::message::{
    CallRef, Message, MessageRole, ProviderMessage, StopReason, text_block,
};
use abide_conversation::usage::Usage;
use abide_conversation::{CallId, MessageId};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::reply::ResponsesDecoder;
use crate::model::http;
use crate::model::http::{Frame, MAX_REPLY_BYTES};
use crate::model::test_server::{request, settings};
use crate::model::{
    ModelError, ModelRequest, ModelSettings, ModelToolCall, Provider, ReplyChunk, ReplyEnd, Retry,
    ToolSpec,
};

fn sample_request() -> ModelRequest {
    request(ModelSettings { name: "some-model".to_owned(), ..settings(Provider::OpenaiResponses) })
}

/// Decodes a stream of these events.
fn decode(events: impl IntoIterator<Item = Value>) -> Result<Vec<ReplyChunk>, ModelError> {
    decode_for(&sample_request(), events)
}

fn decode_for(
    request: &ModelRequest,
    events: impl IntoIterator<Item = Value>,
) -> Result<Vec<ReplyChunk>, ModelError> {
    let mut reply: Box<dyn http::ReplyDecoder> = Box::new(ResponsesDecoder::new(request));
    let mut chunks = Vec::new();
    for event in events {
        chunks.extend(reply.push(Frame { event: String::new(), data: event.to_string() })?);
    }
    assert!(reply.is_message_complete() && reply.is_stream_complete());
    chunks.extend(reply.finish()?);
    Ok(chunks)
}

fn item(item: Value) -> Value {
    json!({"type": "response.output_item.done", "item": item})
}

fn completed() -> Value {
    json!({"type": "response.completed", "response": {"status": "completed", "output": []}})
}

fn incomplete(reason: Value) -> Value {
    let details = json!({"reason": reason});
    let response = json!({"status": "incomplete", "incomplete_details": details});
    json!({"type": "response.incomplete", "response": response})
}

fn message_item(text: &str) -> Value {
    let part = json!({"type": "output_text", "text": text, "annotations": []});
    json!({"type": "message", "id": "msg_1", "role": "assistant", "content": [part]})
}

fn function_call(id: &str, args: &str) -> Value {
    json!({"type": "function_call", "id": "fc_1", "call_id": id, "name": "f", "arguments": args})
}

fn reasoning_item(content: Value) -> Value {
    json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": content})
}

fn done(mut chunks: Vec<ReplyChunk>) -> (Vec<ReplyChunk>, ReplyEnd) {
    match chunks.pop() {
        Some(ReplyChunk::Done(done)) => (chunks, done),
        other => panic!("ends with {other:?}"),
    }
}

fn text(text: &str) -> ReplyChunk {
    ReplyChunk::Text(text.to_owned())
}

#[test]
fn summaries_are_paragraphs_of_thinking() {
    let summary_part = |at: u64| {
        json!({"type": "response.reasoning_summary_part.added",
        "summary_index": at})
    };
    let delta = |kind: &str, delta: &str| json!({"type": kind, "delta": delta});
    let summary = "response.reasoning_summary_text.delta";
    let events = [
        summary_part(0),
        delta(summary, "One."),
        summary_part(1),
        delta(summary, "Two."),
        delta("response.reasoning_text.delta", " Three."),
        delta("response.output_text.delta", "Yes"),
        completed(),
    ];
    let thought = |text: &str| ReplyChunk::Thinking(text.to_owned());
    let (chunks, _) = done(decode(events).unwrap());
    let thoughts = ["One.", "\n\n", "Two.", " Three."].map(thought);
    assert_eq!(chunks, [&thoughts[..], &[text("Yes")]].concat());
}

#[test]
fn items_are_ordered_by_index_or_all_sent_at_the_end() {
    let mut late = item(function_call("a", "{}"));
    late["output_index"] = json!(0);
    let mut early = item(function_call("b", "{}"));
    early["output_index"] = json!(1);
    let mut whole = completed();
    whole["response"]["output"] = json!([function_call("a", "{}"), function_call("b", "{}"), 7]);
    for events in [vec![early, late, completed()], vec![whole]] {
        let (chunks, done) = done(decode(events).unwrap());
        let ids = chunks.iter().map(|chunk| match chunk {
            ReplyChunk::Call(call) => call.id.as_str(),
            other => panic!("{other:?}"),
        });
        assert_eq!(ids.collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((done.stop, done.verbatim), (Some(StopReason::ToolCalls), None));
    }
}

#[test]
fn only_what_can_be_sent_back_is_kept() {
    let unsealed = reasoning_item(Value::Null);
    let computer = json!({"type": "computer_call", "id": "cu_1", "call_id": "x", "action": {}});
    let approval = json!({"type": "mcp_approval_request", "id": "a", "name": "n",
        "server_label": "docs", "arguments": "{}"});
    for (items, expected_items) in [
        (vec![unsealed.clone(), message_item("Hi")], None),
        (vec![reasoning_item(json!("S")), message_item("Hi"), reasoning_item(json!("T"))], Some(2)),
        (vec![reasoning_item(json!("S"))], None),
        (vec![message_item("Hi"), computer], None),
        (vec![message_item("Hi"), approval], None),
        (vec![reasoning_item(json!("S")), unsealed, function_call("a", "{}")], Some(2)),
    ] {
        let events = items.into_iter().map(item).chain([completed()]);
        let (_, done) = done(decode(events).unwrap());
        assert_eq!(done.verbatim.map(|verbatim| verbatim.items.len()), expected_items);
    }
}

#[test]
fn a_message_with_more_than_text_is_kept_verbatim() {
    let mut phased = message_item("Hi");
    phased["phase"] = json!("commentary");
    let mut cited = message_item("Hi");
    cited["content"][0]["annotations"] = json!([{"type": "url_citation"}]);
    let mut spaced = function_call("a", "{}");
    spaced["namespace"] = json!("crm");
    for message in [phased, cited, spaced] {
        let (_, done) = done(decode([item(message.clone()), completed()]).unwrap());
        assert_eq!(done.verbatim.unwrap().items, [message]);
    }
}

#[test]
fn an_end_has_its_reason() {
    let usage = json!({"input_tokens": 7, "output_tokens": 3});
    let mut whole = completed();
    whole["response"]["usage"] = usage;
    let (_, end) = done(decode([whole]).unwrap());
    let usage = Usage { input_tokens: 7, output_tokens: 3, ..Usage::default() };
    assert_eq!((end.usage, end.stop), (Some(usage), Some(StopReason::End)));
    for (reason, stop) in [
        (json!("max_output_tokens"), Some(StopReason::MaxTokens)),
        (json!("max_messages"), None),
        (Value::Null, None),
    ] {
        let (_, end) = done(decode([incomplete(reason)]).unwrap());
        assert_eq!((end.usage, end.stop), (None, stop));
    }
    let refused = decode([incomplete(json!("content_filter"))]).unwrap_err();
    assert_eq!(refused, ModelError::permanent("the model's provider refused to answer"));
}

#[test]
fn an_error_in_the_stream_says_whether_a_retry_may_help() {
    let failed = |error: Value| json!({"type": "response.failed", "response": {"error": error}});
    let long = "Your input exceeds the context window of this model.";
    for (event, retry) in [
        (failed(json!({"code": "server_error", "message": "oops"})), Retry::After(None)),
        (failed(json!({"code": "rate_limit_exceeded", "message": "oops"})), Retry::After(None)),
        (failed(json!({"code": "invalid_prompt", "message": "oops"})), Retry::Never),
        (failed(json!({"code": "bio_policy", "message": "oops"})), Retry::Never),
        (failed(json!({"code": "empty_image_file", "message": "oops"})), Retry::Never),
        (failed(Value::Null), Retry::After(None)),
        (json!({"type": "error", "code": "server_error", "message": "oops"}), Retry::After(None)),
        (json!({"type": "error", "code": null, "message": long}), Retry::Shorter),
        (
            json!({"type": "error", "error": {"type": "invalid_request_error",
                "code": "context_length_exceeded", "message": "oops"}}),
            Retry::Shorter,
        ),
    ] {
        assert_eq!(decode([event.clone()]).unwrap_err().retry, retry, "{event}");
    }
}

#[test]
fn a_reply_without_end_is_refused() {
    let piece = "x".repeat(1 << 20);
    let delta = |kind: &str| json!({"type": kind, "delta": piece});
    let pieces = MAX_REPLY_BYTES / piece.len() + 1;
    for endless in [
        vec![delta("response.function_call_arguments.delta"); pieces],
        vec![item(json!({"type": "x", "data": piece})); pieces],
        vec![item(json!({})); 2000],
    ] {
        assert_eq!(decode(endless).unwrap_err().retry, Retry::Never);
    }
    let calls = (0..257).map(|_| item(function_call("a", "{}"))).chain([completed()]);
    let error = decode(calls).unwrap_err();
    assert_eq!(error.message, "the model's reply has more than 256 calls");
    let mut whole = completed();
    whole["response"]["output"] = vec![json!({}); 2000].into();
    assert_eq!(decode([whole]).unwrap_err().retry, Retry::Never);
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!({})),
        Just(json!([{"text": "x"}, 7])),
        any::<u64>().prop_map(Value::from),
        "[a-z{}\"]{0,4}".prop_map(Value::from),
        Just(json!("function_call")),
        Just(json!("max_output_tokens")),
    ]
}

fn any_event() -> impl Strategy<Value = Value> {
    let kinds = [
        "response.output_text.delta",
        "response.refusal.delta",
        "response.reasoning_summary_part.added",
        "response.function_call_arguments.delta",
        "response.output_item.done",
        "response.completed",
        "response.incomplete",
        "response.failed",
        "error",
    ];
    let kind = prop::sample::select(kinds.to_vec());
    let types =
        ["function_call", "reasoning", "message", "mcp_call", "shell_call", "shell_call_output"];
    let values = (any_value(), any_value(), any_value(), any_value());
    (kind, prop::sample::select(types.to_vec()), values).prop_map(|(kind, of, (a, b, c, d))| {
        let item = json!({"type": of, "call_id": a, "name": b, "arguments": c, "content": d,
            "encrypted_content": a, "action": b, "phase": c});
        json!({"type": kind, "delta": a, "output_index": b, "summary_index": c, "item": item,
            "error": d, "code": a, "message": b,
            "response": {"output": [item, d], "usage": a, "incomplete_details": {"reason": c}}})
    })
}

proptest! {
    #[test]
    fn no_event_makes_it_panic(
        events in prop::collection::vec(any_event(), 0..20),
        loose in any_value(),
        ids in prop::collection::vec("[a-z~]{0,3}", 0..3),
    ) {
        let decoder = ResponsesDecoder::new(&sample_request());
        let mut reply: Box<dyn http::ReplyDecoder> = Box::new(decoder);
        let ended = json!({"type": "response.completed", "response": loose});
        for event in events.into_iter().chain([ended]) {
            let _ = reply.push(Frame { event: String::new(), data: event.to_string() });
        }
        let Ok(chunks) = reply.finish() else { return Ok(()) };
        let (_, done) = done(chunks);
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        if let Some(verbatim) = done.verbatim {
            let _ = body::replayed(verbatim, &ids, "some-model");
        }
    }
}
