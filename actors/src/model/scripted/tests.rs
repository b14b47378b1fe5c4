//! Tests of scripts as their authors write them.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use abide_conversation::message::{CallRef, Message, MessageRole, text_block};
use abide_conversation::usage::Usage;
use abide_conversation::{CallId, MessageId};
use futures::StreamExt;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{ScriptedModel, check};
use crate::model::test_server::{all_ok, collect_reply, request, settings};
use crate::model::{
    Model, ModelError, ModelRequest, ModelSettings, ModelToolCall, Provider, ReplyChunk, ReplyEnd,
};

fn message(role: MessageRole, text: &str) -> Message {
    Message::new(MessageId::new("m"), role, vec![text_block(text)])
}

fn assistant_call(id: &str, name: &str) -> Message {
    let call = CallRef { id: CallId::new(id), name: name.to_owned(), args: json!({}).into() };
    Message { tool_calls: vec![call], ..message(MessageRole::Assistant, "") }
}

fn result(id: &str, envelope: Value) -> Message {
    let tool_call_id = Some(CallId::new(id));
    Message { tool_call_id, ..message(MessageRole::Tool, &envelope.to_string()) }
}

fn scripted_request(script: &Value, messages: Vec<Message>) -> ModelRequest {
    check(script).unwrap();
    let script = Some(Arc::new(script.clone()));
    ModelRequest { messages, ..request(ModelSettings { script, ..settings(Provider::Scripted) }) }
}

async fn parts(script: &Value, messages: Vec<Message>) -> Vec<ReplyChunk> {
    all_ok(collect_reply(&ScriptedModel::default(), scripted_request(script, messages)).await)
}

fn texts(chunks: &[ReplyChunk]) -> Vec<String> {
    let text = |chunk: &'_ ReplyChunk| {
        if let ReplyChunk::Text(text) = chunk { Some(text.clone()) } else { None }
    };
    chunks.iter().filter_map(text).collect()
}

fn user(text: &str) -> Message {
    message(MessageRole::User, text)
}

#[tokio::test]
async fn a_script_reads_every_block_as_text_and_no_media_as_a_persons_message() {
    let script = json!([{"text": "one"}, {"text": "{{ user }} {{ results.look.result }}"}]);
    let photo = json!({"type": "image", "altText": "cat",
        "source": {"type": "base64", "mimeType": "image/png", "data": "AAEC"}});
    let question = Message { content: vec![text_block("See:"), photo.clone()], ..user("") };
    let media = Message { id: MessageId::new("media_m"), content: vec![photo], ..user("") };
    let messages =
        vec![question, assistant_call("c", "look"), result("c", json!({"result": 7})), media];
    assert_eq!(texts(&parts(&script, messages).await).concat(), "See:\n[image/png, 3 B: cat] 7");
}

#[tokio::test]
async fn an_entry_is_played_for_each_step_and_then_done() {
    let script = json!([
        {"thinking": "Let me see.", "text": "Two words ", "usage": {"output_tokens": 3}},
        {"text": "Then\n{{ user }}"},
    ]);
    let first = parts(&script, vec![user("old"), assistant_call("x", "y"), user("hello")]).await;
    let thought = |word: &str| ReplyChunk::Thinking(word.to_owned());
    let text = |word: &str| ReplyChunk::Text(word.to_owned());
    let usage = Some(Usage { input_tokens: 0, output_tokens: 3, ..Usage::default() });
    let expected = [
        thought("Let "),
        thought("me "),
        thought("see."),
        text("Two "),
        text("words "),
        ReplyChunk::Done(ReplyEnd { usage, ..ReplyEnd::default() }),
    ];
    assert_eq!(first, expected);
    let spoken = || message(MessageRole::Assistant, "Two words");
    let second = parts(&script, vec![user("hello"), spoken()]).await;
    assert_eq!(texts(&second), ["Then\n", "hello"]);
    let third = parts(&script, vec![user("hello"), spoken(), spoken()]).await;
    assert_eq!(texts(&third), ["Done."]);
}

#[tokio::test]
async fn templates_see_the_results_of_this_turn_by_tool() {
    let script = json!([{}, {}, {
        "text": "{{ results.search.result.n }}{{ results.mail.error }}{{ results.gone.result.n }}|",
        "calls": [{"name": "sum", "args": {"n": ["{{ results.search.result.n + 1 }}"], "k": 5}}],
    }]);
    let messages = vec![
        user("before"),
        assistant_call("a", "mail"),
        result("a", json!({"ok": true, "result": "old"})),
        user("<b>"),
        assistant_call("b", "search"),
        result("b", json!({"ok": true, "result": {"n": 1}})),
        assistant_call("c", "search"),
        result("c", json!({"ok": true, "result": {"n": 2}})),
    ];
    let played = parts(&script, messages).await;
    assert_eq!(texts(&played), ["2|"]);
    let args = Ok(json!({"n": ["3"], "k": 5}));
    let call =
        ModelToolCall { id: "call_3_1".into(), name: "sum".into(), args, provider_result: None };
    assert_eq!(played[1], ReplyChunk::Call(call));
}

#[tokio::test]
async fn calls_keep_their_ids_and_raw_arguments() {
    let script = json!([{"calls": [
        {"id": "mine", "name": "a"},
        {"name": "b", "args": "{\"n\": {{ user }}}"},
        {"name": "c", "args": "not {json"},
    ]}]);
    let played = parts(&script, vec![user("7")]).await;
    let call = |id: &str, name: &str, args| {
        ReplyChunk::Call(ModelToolCall {
            id: id.into(),
            name: name.into(),
            args,
            provider_result: None,
        })
    };
    let expected = [
        call("mine", "a", Ok(json!({}))),
        call("call_1_2", "b", Ok(json!({"n": 7}))),
        call("call_1_3", "c", Err("not {json".into())),
        ReplyChunk::Done(ReplyEnd::default()),
    ];
    assert_eq!(played, expected);
}

#[tokio::test]
async fn the_first_rule_that_matches_is_played() {
    let script = json!([
        {"when": "(?i)^refund", "steps": [{"text": "A"}]},
        {"when": "refund", "steps": [{"text": "B"}]},
    ]);
    for (text, expected) in [
        ("REFUND me", vec!["A"]),
        ("a refund", vec!["B"]),
        ("x", vec!["No ", "rule ", "of ", "the ", "script ", "matches ", "this ", "message."]),
    ] {
        assert_eq!(texts(&parts(&script, vec![user(text)]).await), expected);
    }
    let any = json!([{"when": "never", "steps": []}, {"steps": [{"text": "else"}]}]);
    assert_eq!(texts(&parts(&any, Vec::new()).await), ["else"]);
}

#[tokio::test]
async fn an_error_follows_the_text_before_it() {
    let error = json!({"message": "provider down", "retry": true});
    let script = json!([{"text": "Half", "error": error}]);
    let played =
        collect_reply(&ScriptedModel::default(), scripted_request(&script, vec![user("x")])).await;
    let down = ModelError::transient("provider down");
    assert_eq!(played, [Ok(ReplyChunk::Text("Half".into())), Err(down)]);
    let script = json!([{"error": {"message": "no"}}]);
    let played =
        collect_reply(&ScriptedModel::default(), scripted_request(&script, vec![user("x")])).await;
    assert_eq!(played, [Err(ModelError::permanent("no"))]);
}

#[tokio::test(start_paused = true)]
async fn every_piece_is_delayed() {
    let script = json!([{"text": "a b", "calls": [{"name": "t"}], "delay": "20ms"}]);
    let began = tokio::time::Instant::now();
    let mut played =
        ScriptedModel::default().call(&scripted_request(&script, vec![user("x")])).await.unwrap();
    let mut at = Vec::new();
    while played.next().await.is_some() {
        at.push(began.elapsed().as_millis());
    }
    // Timers fire on whole milliseconds.
    let expected = [20, 40, 60, 60];
    let close = at.iter().zip(expected).all(|(at, expected)| (expected..expected + 4).contains(at));
    assert!(at.len() == 4 && close, "{at:?}");
}

#[tokio::test]
async fn a_template_is_bounded_and_its_error_fails_the_call() {
    for text in [
        "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
        "{% for a in range(9999) %}{{ user }}{% endfor %}",
        "{{ 1 / 0 }}",
    ] {
        let script = json!([{"text": text}]);
        let messages = vec![user(&"x".repeat(1000))];
        let played =
            collect_reply(&ScriptedModel::default(), scripted_request(&script, messages)).await;
        let error = played[0].clone().unwrap_err();
        assert!(error.message.starts_with("script: "), "{error}");
    }
}

#[tokio::test]
async fn a_script_is_compiled_once_and_forgotten_in_turn() {
    let model = ScriptedModel::default();
    for n in 0..super::MAX_COMPILED_SCRIPTS + 5 {
        let script = json!([{"text": format!("{n}")}]);
        for _ in 0..2 {
            let played =
                all_ok(collect_reply(&model, scripted_request(&script, vec![user("x")])).await);
            assert_eq!(texts(&played), [format!("{n}")]);
        }
        assert_eq!(model.compiled.lock().unwrap().len(), (n + 1).min(super::MAX_COMPILED_SCRIPTS));
    }
}

#[test]
fn every_mistake_names_its_place() {
    let call = |call: Value| json!([{}, {}, {"calls": [call]}]);
    for (script, place) in [
        (json!(null), "script: "),
        (json!({"text": "x"}), "script: "),
        (json!(["x"]), "script[0]: "),
        (json!([{"txt": "x"}]), "script[0].txt: "),
        (json!([{"text": 7}]), "script[0].text: "),
        (json!([{"thinking": "{{"}]), "script[0].thinking: "),
        (json!([{"calls": {}}]), "script[0].calls: "),
        (call(json!(7)), "script[2].calls[0]: "),
        (call(json!({})), "script[2].calls[0].name: "),
        (call(json!({"name": 7})), "script[2].calls[0].name: "),
        (call(json!({"name": "a", "id": 7})), "script[2].calls[0].id: "),
        (call(json!({"name": "a", "arg": {}})), "script[2].calls[0].arg: "),
        (call(json!({"name": "a", "args": {"b": ["{% if"]}})), "script[2].calls[0].args.b[0]: "),
        (json!([{"error": "x"}]), "script[0].error: "),
        (json!([{"error": {"retry": true}}]), "script[0].error.message: "),
        (json!([{"error": {"message": "x", "retry": 1}}]), "script[0].error.retry: "),
        (json!([{"delay": "soon"}]), "script[0].delay: "),
        (json!([{"delay": "-1s"}]), "script[0].delay: "),
        (json!([{"delay": "2h"}]), "script[0].delay: "),
        (json!([{"usage": {"input_tokens": -1}}]), "script[0].usage.input_tokens: "),
        (json!([{"steps": [{}]}, {"when": "("}]), "script[1].when: "),
        (json!([{"steps": [{}]}, {"when": "x"}]), "script[1].steps: "),
        (json!([{"steps": [{}]}, {"text": "x"}]), "script[1].text: "),
        (json!([{"steps": [{"text": "{{ a"}]}]), "script[0].steps[0].text: "),
        (json!([{"when": "(\\w{999}){999}", "steps": []}]), "script[0].when: "),
    ] {
        let mistake = check(&script).unwrap_err();
        assert!(mistake.starts_with(place), "{script}: {mistake}");
        assert!(!mistake.contains('\n'), "{mistake}");
    }
}

#[test]
fn durations_are_read_as_written() {
    for (written, expected) in [("20ms", 20), ("1s", 1000), ("1m", 60_000)] {
        let fields = json!({"delay": written});
        let delay = super::script::delay(fields.as_object().unwrap(), "script[0]");
        assert_eq!(delay, Ok(Duration::from_millis(expected)));
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "when",
        "steps",
        "text",
        "thinking",
        "calls",
        "name",
        "args",
        "id",
        "error",
        "message",
        "retry",
        "delay",
        "usage",
        "{{ user }}",
        "{% if",
        "20ms",
        "(",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        let map = prop::collection::vec((word.clone(), inner.clone()), 0..5);
        let object = |fields: Vec<(&str, Value)>| {
            Value::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
        };
        prop_oneof![prop::collection::vec(inner, 0..5).prop_map(Value::from), map.prop_map(object),]
    })
}

proptest! {
    #[test]
    fn no_script_makes_the_check_panic(script in any_json()) {
        let _ = check(&json!([script.clone()]));
        let _ = check(&script);
    }
}
