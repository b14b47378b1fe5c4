//! Tests of how requests are written.

use std::sync::Arc;

use super::*;
use crate::model::http::{HttpModel, HttpTimeouts};
use crate::model::openai_responses::body::render;
use crate::model::test_server::{FixedClock, TestResponse, TestServer, collect_reply, message};

fn assistant_message(text: &str, ids: &[&str]) -> Message {
    let call =
        |id: &&str| CallRef { id: CallId::new(*id), name: "f".to_owned(), args: json!({}).into() };
    let tool_calls = ids.iter().map(call).collect();
    Message { tool_calls, ..message("2", MessageRole::Assistant, vec![text_block(text)]) }
}

/// The items that are sent for a message with calls of these ids and this verbatim form.
pub(super) fn replayed(verbatim: ProviderMessage, ids: &[&str], model: &str) -> Value {
    let mut request = sample_request();
    request.settings.name = model.to_owned();
    request.messages = vec![assistant_message("Hi", ids)];
    request.verbatim = [(MessageId::new("2"), verbatim)].into();
    render(&request, false)["input"].clone()
}

fn verbatim(items: &[Value]) -> ProviderMessage {
    let (provider, model) = ("openai_responses".to_owned(), "some-model".to_owned());
    ProviderMessage { provider, model, items: items.to_vec() }
}

#[test]
fn the_body_matches_the_wire_format() {
    let mut request = sample_request();
    request.system = "Be brief.".to_owned();
    request.settings.temperature = Some(0.5);
    request.settings.max_tokens = Some(100);
    request.settings.options =
        json!({"reasoning": {"effort": "low"}, "include": []}).as_object().cloned().unwrap();
    let image = json!({"type": "image", "source": {"type": "url", "url": "http://h/i.png"}});
    let file = json!({"type": "document", "source": {"type": "file_id", "fileId": "file_1"}});
    let result = Message {
        tool_call_id: Some(CallId::new("c~2")),
        ..message("r", MessageRole::Tool, vec![text_block("{\"ok\":true}")])
    };
    let calls =
        [CallRef { id: CallId::new("c~2"), name: "a.b".to_owned(), args: json!("cut").into() }];
    let reasoning = json!({"type": "reasoning", "text": "hidden"});
    request.messages = vec![
        message("1", MessageRole::User, vec![text_block("one"), text_block("two")]),
        Message {
            tool_calls: calls.to_vec(),
            ..message("2", MessageRole::Assistant, vec![reasoning, text_block("I look.")])
        },
        result,
        message("3", MessageRole::User, vec![text_block("see"), image, file]),
        message("4", MessageRole::Assistant, Vec::new()),
    ];
    let options = json!({"openai_responses": {"strict": true}});
    request.tools = vec![ToolSpec {
        name: "look".to_owned(),
        description: "Looks.".to_owned(),
        parameters: json!({"type": "object", "properties": {}}).into(),
        executor: Executor::Human,
        provider_options: options.as_object().cloned().unwrap(),
    }];
    let sent = render(&request, true);
    let id = sent["input"][3]["call_id"].clone();
    assert!(id.as_str().unwrap().starts_with("c_2_"), "{id}");
    let expected = json!({
        "model": "some-model",
        "input": [
            {"role": "user", "content": "one\ntwo"},
            {"role": "assistant", "content": "I look."},
            {"type": "function_call", "call_id": id, "name": "a_b", "arguments": "{}"},
            {"type": "function_call_output", "call_id": id, "output": "{\"ok\":true}"},
            {"role": "user", "content": [
                {"type": "input_text", "text": "see"},
                {"type": "input_image", "image_url": "http://h/i.png", "detail": "auto"},
                {"type": "input_file", "file_id": "file_1"},
            ]},
        ],
        "stream": true,
        "store": false,
        "include": [],
        "instructions": "Be brief.",
        "tools": [{"type": "function", "name": "look", "description": "Looks.",
            "parameters": {"type": "object", "properties": {}}, "strict": true}],
        "temperature": 0.5,
        "max_output_tokens": 100,
        "prompt_cache_key": "conv_1",
        "reasoning": {"effort": "low"},
    });
    assert_eq!(sent, expected);
    request.tools[0].provider_options.clear();
    request.settings.options.clear();
    let sent = render(&request, false);
    assert_eq!(sent["tools"][0]["strict"], json!(false), "a schema is sent as it is written");
    assert_eq!(sent["include"], json!(["reasoning.encrypted_content"]));
    assert_eq!(sent.get("prompt_cache_key"), None);
}

#[test]
fn another_model_gets_the_items_that_are_not_encrypted() {
    let search = json!({"type": "web_search_call", "id": "ws_1", "status": "completed"});
    let items =
        [reasoning_item(json!("S")), search.clone(), message_item("Hi"), function_call("a", "{}")];
    let sent = replayed(verbatim(&items), &["a"], "some-model");
    assert_eq!(sent, json!(items), "to the same model, as they came");
    let sent = replayed(verbatim(&items), &["a"], "other-model");
    let (mut message, mut call) = (message_item("Hi"), function_call("a", "{}"));
    message.as_object_mut().unwrap().remove("id");
    call.as_object_mut().unwrap().remove("id");
    assert_eq!(sent, json!([search, message, call]));
}

#[test]
fn a_verbatim_message_with_other_calls_is_not_sent() {
    let items = [reasoning_item(json!("S")), function_call("a", "{}")];
    for ids in [&[][..], &["a", "b"]] {
        let sent = replayed(verbatim(&items), ids, "some-model");
        assert_eq!(sent[0], json!({"role": "assistant", "content": "Hi"}));
        assert_eq!(sent.as_array().unwrap().len(), 1 + ids.len());
    }
    let sent = replayed(verbatim(&[json!(7)]), &[], "some-model");
    assert_eq!(sent, json!([{"role": "assistant", "content": "Hi"}]));
}

#[test]
fn truncated_arguments_are_sent_back_as_an_empty_object() {
    let items = [reasoning_item(json!("S")), function_call("a", "{\"q\": ")];
    let sent = replayed(verbatim(&items), &["a"], "some-model");
    assert_eq!(sent[1]["arguments"], json!("{}"));
}

#[tokio::test]
async fn a_model_that_does_not_think_is_called_again_without_encrypted_reasoning() {
    let refusal = "Encrypted content is not supported with this model.";
    let sealed = "reasoning.encrypted_content";
    for (options, first, second) in [
        (None, json!([sealed]), Some(json!([]))),
        (Some(json!([sealed, "x"])), json!([sealed, "x"]), Some(json!(["x"]))),
        (Some(json!(["x"])), json!(["x"]), None),
    ] {
        let server = TestServer::start([TestResponse::error(400, refusal)]).await;
        let mut request = sample_request();
        request.settings.base_url = Some(server.url.clone());
        request.settings.options.extend(options.map(|include| ("include".to_owned(), include)));
        let model = HttpModel::new(Arc::new(FixedClock), HttpTimeouts::default(), |_| None);
        let error = collect_reply(&model, request).await.remove(0).unwrap_err();
        assert_eq!(error.retry, Retry::Never);
        let requests = server.requests();
        assert_eq!(requests[0].body["include"], first);
        assert_eq!(requests.get(1).map(|request| request.body["include"].clone()), second);
        assert!(requests.len() < 3, "{}", requests.len());
    }
}
