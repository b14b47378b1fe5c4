//! What a request says on the wire.

use super::*;
use crate::model::ollama::body::render;
use crate::model::test_server::message;

fn looked() -> Vec<Message> {
    let call = CallRef { id: CallId::new("c~2"), name: "a.b".to_owned(), args: json!({"q": 1}) };
    vec![
        message("1", Role::User, vec![text_block("one")]),
        Message {
            tool_calls: vec![call],
            ..message("2", Role::Assistant, vec![text_block("I look.")])
        },
        Message {
            tool_call_id: Some(CallId::new("c~2")),
            ..message("r", Role::Tool, vec![text_block("{\"ok\":true}")])
        },
    ]
}

fn tool() -> ToolSpec {
    ToolSpec {
        name: "look".to_owned(),
        description: "Looks.".to_owned(),
        parameters: json!({"type": "object", "properties": {}}),
        executor: Executor::Server,
        provider_options: Default::default(),
    }
}

#[test]
fn the_body_matches_the_wire_format() {
    let image = |source: Value| json!({"type": "image", "title": "I", "source": source});
    let png = image(json!({"type": "base64", "mimeType": "image/png", "data": "AA=="}));
    let link = image(json!({"type": "url", "url": "http://h/i.png"}));
    let mut asked = asking();
    asked.system = "Be brief.".to_owned();
    asked.messages = looked();
    asked.messages.push(message("3", Role::User, vec![text_block("see"), png, link]));
    asked.tools = vec![tool()];
    asked.settings.temperature = Some(0.5);
    asked.settings.max_tokens = Some(100);
    asked.settings.window = Some(8192);
    let options = json!({"options": {"num_ctx": 4096, "seed": 7}, "think": false});
    asked.settings.options = options.as_object().cloned().unwrap();
    let function = json!({"name": "look", "description": "Looks.",
        "parameters": {"type": "object", "properties": {}}});
    let wanted = json!({
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
    assert_eq!(render(&asked), wanted);
    assert_eq!(render(&asking()).get("options"), None);
}

#[test]
fn a_schema_is_the_format_or_with_tools_a_part_of_the_prompt() {
    let schema = json!({"type": "object"});
    let mut asked = asking();
    asked.schema = Some(schema.clone());
    let sent = render(&asked);
    assert_eq!((&sent["format"], &sent["messages"]), (&schema, &json!([])));
    asked.tools = vec![tool()];
    let sent = render(&asked);
    assert_eq!(sent.get("format"), None, "a grammar would leave no call to make");
    let told = sent["messages"][0]["content"].as_str().unwrap();
    assert!(told.ends_with("this JSON Schema: {\"type\":\"object\"}"), "{told}");
    asked.tools[0].executor = Executor::Provider;
    assert_eq!(render(&asked)["format"], schema, "another provider's tool is none");
}

#[test]
fn thinking_before_calls_is_sent_back_to_the_same_model() {
    let call = says(json!({"tool_calls": [{"function": {"name": "f"}}]}));
    let thinks = |text: &str| says(json!({"content": "", "thinking": text}));
    let verbatim = |lines: Vec<Value>| match heard(lines).unwrap().pop() {
        Some(ReplyChunk::Done(done)) => done.verbatim,
        other => panic!("ends with {other:?}"),
    };
    let spoke = says(json!({"content": "Hi"}));
    assert_eq!(verbatim(vec![thinks("Hm."), spoke, done("stop")]), None);
    assert_eq!(verbatim(vec![call.clone(), done("stop")]), None);
    let kept = verbatim(vec![thinks("Hm."), thinks(" So."), call, done("stop")]).unwrap();
    for (model, provider, thinking) in [
        ("some-model", "ollama", Some(&json!("Hm. So."))),
        ("other-model", "ollama", None),
        ("some-model", "openai", None),
    ] {
        let mut asked = asking();
        asked.messages = looked();
        asked.settings.name = model.to_owned();
        let kept = ProviderMessage { provider: provider.to_owned(), ..kept.clone() };
        asked.verbatim = [(MessageId::new("2"), kept)].into();
        assert_eq!(render(&asked)["messages"][1].get("thinking"), thinking, "{model} {provider}");
    }
}
