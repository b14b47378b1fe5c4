//! Tests of how requests are written.

use abide_conversation::CallId;
use abide_conversation::event::Executor;
use abide_conversation::message::{CallRef, Message, MessageRole, MessageStatus, text_block};

use super::*;
use crate::model::ToolSpec;
use crate::model::openai::body::render;
use crate::model::test_server::message;

fn conversation() -> Vec<Message> {
    let image = json!({"type": "image", "source": {"type": "base64", "data": "AA==",
                       "mimeType": "image/gif"}});
    let link = json!({"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/i.png"}});
    let data = json!({"type": "json", "data": {"z": 1, "a": 2}});
    let calls = [("call_1", "search", json!({"z": 1, "a": 2})), ("c~2", "a.b", json!("broken"))];
    let calls = calls.map(|(id, name, args)| CallRef {
        id: CallId::new(id),
        name: name.to_owned(),
        args: args.into(),
    });
    let reasoning = json!({"type": "reasoning", "text": "hidden"});
    let result = |id: &str, text: &str| Message {
        tool_call_id: Some(CallId::new(id)),
        ..message("r", MessageRole::Tool, vec![text_block(text)])
    };
    let content = vec![reasoning, text_block("I "), text_block("look.")];
    vec![
        message("1", MessageRole::User, vec![text_block("one"), data, json!({"type": "video"})]),
        Message { tool_calls: calls.to_vec(), ..message("2", MessageRole::Assistant, content) },
        result("call_1", "{\"ok\":true,\"result\":1}"),
        result("c~2", "{\"ok\":false}"),
        Message {
            status: Some(MessageStatus::Cancelled),
            ..message("3", MessageRole::Assistant, vec![text_block("Half a")])
        },
        message("4", MessageRole::User, vec![text_block("see"), image, link]),
    ]
}

fn wire_messages() -> Value {
    let call = |id: &str, name: &str, args: &str| {
        let function = json!({"name": name, "arguments": args});
        json!({"id": id, "type": "function", "function": function})
    };
    json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "one\n{\"z\":1,\"a\":2}\n[video that cannot be shown]"},
        {"role": "assistant", "content": "I look.",
         "tool_calls": [call("call_1", "search", "{\"z\":1,\"a\":2}"), call("c_2_c63b914d4a85", "a_b", "{}")]},
        {"role": "tool", "tool_call_id": "call_1", "content": "{\"ok\":true,\"result\":1}"},
        {"role": "tool", "tool_call_id": "c_2_c63b914d4a85", "content": "{\"ok\":false}"},
        {"role": "assistant", "content": "Half a [interrupted]"},
        {"role": "user", "content": [
            {"type": "text", "text": "see"},
            {"type": "image_url", "image_url": {"url": "data:image/gif;base64,AA=="}},
            {"type": "image_url", "image_url": {"url": "http://127.0.0.1/i.png"}},
        ]},
    ])
}

fn spec(name: &str, parameters: Value, options: Value) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: "Searches.".to_owned(),
        parameters: parameters.into(),
        executor: Executor::Server,
        provider_options: options.as_object().unwrap().clone(),
    }
}

fn base64(kind: &str, media_type: &str) -> Value {
    json!({"type": kind, "title": "R", "source":
        {"type": "base64", "mimeType": media_type, "data": "AAEC"}})
}

#[test]
fn every_block_becomes_the_part_that_the_api_knows() {
    let text = |text: &str| json!({"type": "text", "text": text});
    let image = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
    let audio = |format: &str| json!({"type": "input_audio", "input_audio": {"data": "AAEC", "format": format}});
    let file = |name: &str| {
        let data = "data:application/pdf;base64,AAEC";
        json!({"type": "file", "file": {"filename": name, "file_data": data}})
    };
    let at =
        |kind: &str| json!({"type": kind, "source": {"type": "url", "url": "https://a.example/f"}});
    let uploaded =
        |kind: &str| json!({"type": kind, "source": {"type": "file_id", "fileId": "f1"}});
    let mut untitled = base64("document", "Application/PDF");
    untitled["title"].take();
    for (block, part) in [
        (text_block("hello"), text("hello")),
        (base64("image", "image/png"), image("data:image/png;base64,AAEC")),
        (base64("image", "IMAGE/jpg; q=1"), image("data:image/jpeg;base64,AAEC")),
        (base64("image", "image/tiff"), text("[image/tiff, 3 B: R]")),
        (at("image"), image("https://a.example/f")),
        (uploaded("image"), text("[image in file f1]")),
        (
            json!({"type": "generated_image", "mimeType": "image/webp", "data": "AAEC"}),
            image("data:image/webp;base64,AAEC"),
        ),
        (base64("audio", "audio/wav"), audio("wav")),
        (base64("audio", "audio/mpeg"), audio("mp3")),
        (base64("audio", "audio/ogg"), text("[audio/ogg, 3 B: R]")),
        (at("audio"), text("[audio at https://a.example/f]")),
        (base64("document", "application/pdf"), file("R.pdf")),
        (untitled, file("document.pdf")),
        (base64("document", "application/zip"), text("[application/zip, 3 B: R]")),
        (at("document"), text("[document at https://a.example/f]")),
        (uploaded("document"), json!({"type": "file", "file": {"file_id": "f1"}})),
        (base64("video", "video/mp4"), text("[video/mp4, 3 B: R]")),
        (json!({"type": "code", "text": "x", "language": "c"}), text("```c\nx\n```")),
        (json!({"type": "system_event", "event": "up"}), text("[system event: up]")),
        (json!({"type": "hologram", "n": 1}), text(r#"{"type":"hologram","n":1}"#)),
    ] {
        let mut request = request(settings(Provider::Openai));
        request.messages = vec![message("1", MessageRole::User, vec![block.clone()])];
        let content = render(&request, true)["messages"][0]["content"].clone();
        let expected = match part["type"].as_str() {
            Some("text") => part["text"].clone(),
            _ => json!([part]),
        };
        assert_eq!(content, expected, "{block}");
    }
}

#[test]
fn the_media_of_a_result_follow_it_on_the_wire() {
    let call = CallRef { id: CallId::new("c"), name: "look".into(), args: json!({}).into() };
    let photo = base64("image", "image/png");
    let called = Message { tool_calls: vec![call], ..message("1", MessageRole::Assistant, vec![]) };
    let named = Message {
        tool_call_id: Some(CallId::new("c")),
        ..message("2", MessageRole::Tool, vec![text_block("[image/png, 3 B]")])
    };
    let mut request = request(settings(Provider::Openai));
    let media = message("media_1", MessageRole::User, vec![text_block("Media:"), photo]);
    request.messages = vec![called, named, media];
    let sent = &render(&request, true)["messages"];
    assert_eq!(sent[1]["content"], "[image/png, 3 B]");
    assert_eq!(
        sent[2],
        json!({"role": "user", "content": [
            {"type": "text", "text": "Media:"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAEC"}},
        ]})
    );
}

#[test]
fn no_tools_are_sent_where_none_is_this_providers() {
    let web = ToolSpec { executor: Executor::Provider, ..spec("web", json!({}), json!({})) };
    let mut request = request(settings(Provider::Openai));
    request.tools = vec![web];
    assert_eq!(render(&request, true).get("tools"), None);
    request.tools[0].provider_options.insert("openai".to_owned(), json!({"type": "web_search"}));
    assert_eq!(render(&request, true)["tools"], json!([{"type": "web_search"}]));
}

#[tokio::test]
async fn the_body_matches_the_wire_format() {
    let server = TestServer::start([TestResponse::stream([finish("stop")])]).await;
    let parameters = json!({"type": "object", "required": ["z"],
        "properties": {"z": {"type": "string"}, "a": {"type": "integer"}}});
    let request = ModelRequest {
        settings: ModelSettings {
            temperature: Some(0.5),
            max_tokens: Some(99),
            ..request_to(&server).settings
        },
        system: "Be brief.".to_owned(),
        messages: conversation(),
        tools: vec![spec(
            "search",
            parameters.clone(),
            json!({"openai": {"function": {"strict": true}}}),
        )],
        schema: Some(json!({"type": "object"})),
        ..request_to(&server)
    };
    all_ok(collect_reply(&openai(HttpTimeouts::default()), request).await);
    let request = server.requests().remove(0);
    assert_eq!(request.path, "/v1/chat/completions");
    assert_eq!(request.headers["content-type"], "application/json");
    let function = json!({"name": "search", "description": "Searches.", "parameters": parameters,
        "strict": true});
    let expected = json!({
        "model": "some-model",
        "messages": wire_messages(),
        "stream": true,
        "stream_options": {"include_usage": true},
        "tools": [{"type": "function", "function": function}],
        "temperature": 0.5,
        "max_tokens": 99,
        "response_format": {"type": "json_schema",
            "json_schema": {"name": "answer", "schema": {"type": "object"}}},
    });
    assert_eq!(request.body.to_string(), expected.to_string());
}

#[test]
fn openai_itself_gets_the_limit_under_its_new_name() {
    let settings = ModelSettings { max_tokens: Some(5), ..settings(Provider::Openai) };
    let body = render(&request(settings), true);
    assert_eq!((&body["max_completion_tokens"], &body["max_tokens"]), (&json!(5), &Value::Null));
}

#[test]
fn a_cache_key_is_as_long_as_the_api_allows() {
    let mut request = request(settings(Provider::Openai));
    assert_eq!(render(&request, true)["prompt_cache_key"], "conv_1");
    request.cache_key = "c".repeat(128);
    let name = render(&request, true)["prompt_cache_key"].clone();
    assert_eq!(name.as_str().map(str::len), Some(64));
    request.cache_key = format!("{}d", "c".repeat(127));
    assert_ne!(render(&request, true)["prompt_cache_key"], name);
}
