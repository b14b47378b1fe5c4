//! Tests of how requests are written.

use super::*;
use crate::model::ollama::body::render;
use crate::model::test_server::message;

fn conversation() -> Vec<Message> {
    let call =
        CallRef { id: CallId::new("c~2"), name: "a.b".to_owned(), args: json!({"q": 1}).into() };
    vec![
        message("1", MessageRole::User, vec![text_block("one")]),
        Message {
            tool_calls: vec![call],
            ..message("2", MessageRole::Assistant, vec![text_block("I look.")])
        },
        Message {
            tool_call_id: Some(CallId::new("c~2")),
            ..message("r", MessageRole::Tool, vec![text_block("{\"ok\":true}")])
        },
    ]
}

fn tool() -> ToolSpec {
    ToolSpec {
        name: "look".to_owned(),
        description: "Looks.".to_owned(),
        parameters: json!({"type": "object", "properties": {}}).into(),
        executor: Executor::Server,
        provider_options: Default::default(),
    }
}

#[test]
fn the_body_matches_the_wire_format() {
    let image = |source: Value| json!({"type": "image", "title": "I", "source": source});
    let png = image(json!({"type": "base64", "mimeType": "image/png", "data": "AA=="}));
    let link = image(json!({"type": "url", "url": "http://h/i.png"}));
    let mut request = sample_request();
    request.system = "Be brief.".to_owned();
    request.messages = conversation();
    request.messages.push(message("3", MessageRole::User, vec![text_block("see"), png, link]));
    request.tools = vec![tool()];
    request.settings.temperature = Some(0.5);
    request.settings.max_tokens = Some(100);
    request.settings.window = Some(8192);
    let options = json!({"options": {"num_ctx": 4096, "seed": 7}, "think": false});
    request.settings.options = options.as_object().cloned().unwrap();
    let function = json!({"name": "look", "description": "Looks.",
        "parameters": {"type": "object", "properties": {}}});
    let expected = json!({
        "model": "some-model",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "I look.", "tool_calls":
                [{"id": "c~2", "function": {"name": "a_b", "arguments": {"q": 1}}}]},
            {"role": "tool", "tool_call_id": "c~2", "tool_name": "a_b", "content": "{\"ok\":true}"},
            {"role": "user", "content": "see\n[image at http://h/i.png: I]", "images": ["AA=="]},
        ],
        "stream": true,
        "truncate": false,
        "shift": false,
        "options": {"temperature": 0.5, "num_predict": 100, "num_ctx": 4096, "seed": 7},
        "tools": [{"type": "function", "function": function}],
        "think": false,
    });
    assert_eq!(render(&request), expected);
    assert_eq!(render(&sample_request()).get("options"), None);
}

#[test]
fn a_schema_is_the_format_or_with_tools_a_part_of_the_prompt() {
    let schema = json!({"type": "object"});
    let mut request = sample_request();
    request.schema = Some(schema.clone());
    let sent = render(&request);
    assert_eq!((&sent["format"], &sent["messages"]), (&schema, &json!([])));
    request.tools = vec![tool()];
    let sent = render(&request);
    assert_eq!(sent.get("format"), None, "a grammar would leave no call to make");
    let prompt = sent["messages"][0]["content"].as_str().unwrap();
    assert!(prompt.ends_with("this JSON Schema: {\"type\":\"object\"}"), "{prompt}");
    request.tools[0].executor = Executor::Provider;
    assert_eq!(render(&request)["format"], schema, "another provider's tool is none");
}

#[test]
fn thinking_before_calls_is_sent_back_to_the_same_model() {
    let call = line(json!({"tool_calls": [{"function": {"name": "f"}}]}));
    let thinks = |text: &str| line(json!({"content": "", "thinking": text}));
    let verbatim = |lines: Vec<Value>| match decode(lines).unwrap().pop() {
        Some(ReplyChunk::Done(done)) => done.verbatim,
        other => panic!("ends with {other:?}"),
    };
    let text = line(json!({"content": "Hi"}));
    assert_eq!(verbatim(vec![thinks("Hm."), text, done("stop")]), None);
    assert_eq!(verbatim(vec![call.clone(), done("stop")]), None);
    let verbatim_message =
        verbatim(vec![thinks("Hm."), thinks(" So."), call, done("stop")]).unwrap();
    for (model, provider, thinking) in [
        ("some-model", "ollama", Some(&json!("Hm. So."))),
        ("other-model", "ollama", None),
        ("some-model", "openai", None),
    ] {
        let mut request = sample_request();
        request.messages = conversation();
        request.settings.name = model.to_owned();
        let verbatim_message =
            ProviderMessage { provider: provider.to_owned(), ..verbatim_message.clone() };
        request.verbatim = [(MessageId::new("2"), verbatim_message)].into();
        assert_eq!(render(&request)["messages"][1].get("thinking"), thinking, "{model} {provider}");
    }
}
