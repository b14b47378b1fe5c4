//! Tests of how replies are decoded.

use abide_conversation::message::StopReason;
use proptest::prelude::*;

use super::super::reply::AnthropicDecoder;
use super::*;
use crate::model::http;
use crate::model::http::Frame;
use crate::model::{ModelError, ReplyChunk, ReplyEnd};

fn read(events: &[String]) -> Result<Vec<ReplyChunk>, ModelError> {
    let mut reply = Box::new(AnthropicDecoder::new(&sample_request(Vec::new())));
    let mut chunks = Vec::new();
    for event in events {
        let data = event.split_once("data: ").unwrap().1.trim().to_owned();
        chunks.extend(http::ReplyDecoder::push(&mut *reply, Frame { event: String::new(), data })?);
    }
    chunks.extend(http::ReplyDecoder::finish(reply)?);
    Ok(chunks)
}

fn done(events: &[String]) -> ReplyEnd {
    match read(events).unwrap().pop() {
        Some(ReplyChunk::Done(done)) => done,
        other => panic!("ends with {other:?}"),
    }
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

#[test]
fn every_reason_to_stop_is_known() {
    for (reason, stop) in [
        ("end_turn", Some(StopReason::End)),
        ("stop_sequence", Some(StopReason::End)),
        ("tool_use", Some(StopReason::ToolCalls)),
        ("max_tokens", Some(StopReason::MaxTokens)),
        ("model_context_window_exceeded", Some(StopReason::MaxTokens)),
        ("pause_turn", Some(StopReason::Paused)),
        ("refusal", Some(StopReason::Refusal)),
        ("boredom", None),
    ] {
        let end = json!({"stop_reason": reason});
        assert_eq!(done(&message_frames(&[(text("Hi"), &[])], end)).stop, stop, "{reason}");
    }
}

#[test]
fn a_silent_refusal_says_why() {
    let details = json!({"type": "refusal", "category": "bio", "explanation": "Too risky."});
    let end = json!({"stop_reason": "refusal", "stop_details": details});
    let thinking = json!({"type": "thinking", "thinking": "Hm", "signature": ""});
    let error = read(&message_frames(&[(thinking, &[])], end)).unwrap_err();
    assert_eq!(error.message, "the model's provider refused to answer: Too risky.");
}

#[test]
fn blocks_that_cannot_be_sent_back_are_not_kept() {
    let unsigned = json!({"type": "thinking", "thinking": "", "signature": ""});
    let thought = json!({"type": "thinking_delta", "thinking": "Hm"});
    let end = json!({"stop_reason": "end_turn"});
    let blocks: [(Value, &[Value]); 2] =
        [(unsigned.clone(), std::slice::from_ref(&thought)), (text("Hi"), &[])];
    assert_eq!(done(&message_frames(&blocks, end.clone())).verbatim, None);

    let sealed = json!({"type": "redacted_thinking", "data": "s"});
    let direct = json!({"type": "tool_use", "id": "a", "name": "f", "input": {},
        "caller": {"type": "direct"}});
    let cut = json!({"type": "input_json_delta", "partial_json": "{\"a\": "});
    let blocks: [(Value, &[Value]); 4] = [
        (unsigned, &[]),
        (sealed.clone(), &[]),
        (text(" "), &[]),
        (direct.clone(), std::slice::from_ref(&cut)),
    ];
    let verbatim_items = done(&message_frames(&blocks, end.clone())).verbatim.unwrap();
    assert_eq!(verbatim_items.items, [sealed, direct.clone()]);
    assert_eq!(done(&message_frames(&[(direct, &[])], end)).verbatim, None, "its call says it all");
}

#[test]
fn a_container_is_kept_with_the_message() {
    let end = json!({"stop_reason": "tool_use", "container": {"id": "c1", "expires_at": "soon"}});
    let verbatim_items = done(&message_frames(&[(text("Hi"), &[])], end)).verbatim.unwrap();
    assert_eq!(verbatim_items.items, [text("Hi"), json!({"type": "container", "id": "c1"})]);
}

#[test]
fn a_result_without_its_run_is_named_by_its_type() {
    let found = json!({"type": "web_search_tool_result", "tool_use_id": "s9",
        "content": {"type": "web_search_tool_result_error", "error_code": "unavailable"}});
    let end = json!({"stop_reason": "end_turn"});
    let chunks = read(&message_frames(&[(found.clone(), &[])], end)).unwrap();
    let ReplyChunk::Call(call) = &chunks[0] else { panic!("{chunks:?}") };
    assert_eq!((&*call.id, &*call.name), ("s9", "web_search_tool_result"));
    assert_eq!(call.provider_result.as_ref(), Some(&found["content"]));
}

fn field() -> impl Strategy<Value = Value> {
    let word = "text|thinking|tool_use|server_tool_use|a_tool_result|tool_use_id|id|error|ping|\
                text_delta|signature_delta|input_json_delta|citations_delta|message_start|\
                content_block_start|content_block_delta|message_delta|message_stop|[a-z{\"]{0,3}";
    prop_oneof![
        3 => word.prop_map(Value::from),
        1 => any::<u64>().prop_map(Value::from),
        1 => Just(Value::Null),
        1 => Just(json!([{"type": "text"}, 7])),
        1 => Just(json!({"type": "tool_use", "id": "a", "name": 7, "input": [1]})),
    ]
}

fn any_event() -> impl Strategy<Value = Value> {
    let often = |kind: &'static str| Just(Value::from(kind));
    let block = prop_oneof![2 => often("tool_use"), 3 => field()];
    let inner = (block, field(), field(), field()).prop_map(|(kind, id, text, input)| {
        json!({"type": kind, "id": id, "tool_use_id": id, "text": text, "thinking": text,
            "signature": text, "partial_json": text, "input": input, "content": input,
            "citation": input, "citations": input, "stop_reason": text, "usage": input})
    });
    let inner = prop_oneof![4 => inner, 1 => field()];
    let (starts, goes_on) = (often("content_block_start"), often("content_block_delta"));
    let kind = prop_oneof![2 => starts, 2 => goes_on, 1 => field()];
    (kind, 0..3_u64, inner.clone(), inner).prop_map(|(kind, index, block, delta)| {
        json!({"type": kind, "index": index, "content_block": block, "delta": delta,
            "message": delta, "usage": delta, "error": delta})
    })
}

proptest! {
    #[test]
    fn no_event_makes_it_panic_and_no_call_gets_lost(
        events in prop::collection::vec(any_event(), 0..30),
    ) {
        let mut reply = Box::new(AnthropicDecoder::new(&sample_request(Vec::new())));
        let mut calls = 0;
        for event in events {
            let begins = event["type"] == "content_block_start"
                && event["content_block"]["type"] == "tool_use";
            let data = event.to_string();
            let taken = http::ReplyDecoder::push(&mut *reply, Frame { event: String::new(), data });
            calls += usize::from(begins && taken.is_ok());
        }
        let chunks = http::ReplyDecoder::finish(reply).unwrap_or_default();
        let ours = |chunk: &&ReplyChunk| match chunk {
            ReplyChunk::Call(call) => call.provider_result.is_none(),
            _ => false,
        };
        prop_assert!(chunks.is_empty() || chunks.iter().filter(ours).count() == calls);
    }
}
