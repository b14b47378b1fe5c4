//! Tests of how requests are written.

use abide_conversation::event::Executor;
use abide_conversation::message::{CallRef, Message, MessageRole, MessageStatus, text_block};
use abide_conversation::{CallId, MessageId};

use super::*;
use crate::model::ToolSpec;
use crate::model::gemini::body::render;
use crate::model::test_server::message;

fn assistant_calls(id: &str, calls: &[(&str, &str, Value)]) -> Message {
    let call = |(id, name, args): &(&str, &str, Value)| CallRef {
        id: CallId::new(*id),
        name: (*name).to_owned(),
        args: args.clone().into(),
    };
    let tool_calls = calls.iter().map(call).collect();
    Message { tool_calls, ..message(id, MessageRole::Assistant, vec![text_block("I look.")]) }
}

fn result(id: &str, text: &str) -> Message {
    let tool_call_id = Some(CallId::new(id));
    Message { tool_call_id, ..message("r", MessageRole::Tool, vec![text_block(text)]) }
}

fn request_for(name: &str) -> ModelRequest {
    request(ModelSettings { name: name.to_owned(), ..settings(Provider::Gemini) })
}

fn spec(executor: Executor, options: Value) -> ToolSpec {
    ToolSpec {
        name: "search".to_owned(),
        description: "Searches.".to_owned(),
        parameters: json!({"type": "object"}).into(),
        executor,
        provider_options: options.as_object().unwrap().clone(),
    }
}

#[test]
fn the_body_matches_the_wire_format() {
    let reasoning = json!({"type": "reasoning", "text": "hidden"});
    let mut call =
        assistant_calls("2", &[("a", "search", json!({"z": 1})), ("c~2", "1 b", json!("bad"))]);
    call.content.insert(0, reasoning.clone());
    let cut = Message {
        status: Some(MessageStatus::Cancelled),
        ..message("3", MessageRole::Assistant, vec![text_block("Half a")])
    };
    let image = json!({"type": "image", "source": {"type": "base64", "data": "AA==",
        "mimeType": "image/png"}});
    let mut request = request_for("gemini-2.5-pro");
    request.settings.temperature = Some(0.5);
    request.settings.max_tokens = Some(99);
    request.settings.options =
        json!({"generationConfig": {"topK": 3}, "safetySettings": []}).as_object().unwrap().clone();
    request.system = "Be brief.".to_owned();
    request.messages = vec![
        message("1", MessageRole::User, vec![text_block("one"), text_block(""), image]),
        call,
        result("a", "{\"ok\":true,\"result\":12345678901234567890123}"),
        result("c~2", "error: x"),
        message("e", MessageRole::Assistant, vec![reasoning]),
        cut,
        message("4", MessageRole::User, vec![text_block("so?")]),
    ];
    request.tools = vec![spec(Executor::Server, json!({}))];
    let call = |id: &str, name: &str, args: Value| json!({"functionCall": {"id": id, "name": name, "args": args}});
    let answer = |id: &str, name: &str, output: &str| {
        let response = json!({"output": output});
        json!({"functionResponse": {"id": id, "name": name, "response": response}})
    };
    let expected = json!({
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [{"functionDeclarations": [{"name": "search", "description": "Searches.",
            "parametersJsonSchema": {"type": "object"}}]}],
        "contents": [
            {"role": "user", "parts": [{"text": "one"},
                {"inlineData": {"mimeType": "image/png", "data": "AA=="}}]},
            {"role": "model", "parts": [{"text": "I look."},
                call("a", "search", json!({"z": 1})), call("c~2", "_1_b", json!({}))]},
            {"role": "user", "parts": [
                answer("a", "search", "{\"ok\":true,\"result\":12345678901234567890123}"),
                answer("c~2", "_1_b", "error: x")]},
            {"role": "model", "parts": [{"text": "Half a [interrupted]"}]},
            {"role": "user", "parts": [{"text": "so?"}]},
        ],
        "generationConfig": {"temperature": 0.5, "maxOutputTokens": 99, "topK": 3},
        "safetySettings": [],
    });
    assert_eq!(render(&request).to_string(), expected.to_string());
}

#[test]
fn a_message_is_replayed_unchanged_except_for_call_ids() {
    let calls = [("call_1", "f", json!({"n": 1})), ("call_1~2", "f", json!({}))];
    let mut request = request_for("gemini-3-pro");
    request.messages =
        vec![assistant_calls("2", &calls), result("call_1", "1"), result("call_1~2", "2")];
    let items = |first: &str, second: &str| {
        let first = json!({"id": first, "name": "f", "args": {"n": 1}});
        json!([
            {"text": "Hm.", "thought": true},
            {"executableCode": {"code": "1"}},
            {"codeExecutionResult": {"output": "1"}},
            {"functionCall": first, "thoughtSignature": "c2ln"},
            {"functionCall": {"id": second, "name": "f"}},
        ])
    };
    let replayable = |items: Value| verbatim(items).unwrap();
    let sent = |request: &ModelRequest| render(request)["contents"].clone();
    request.verbatim.insert(MessageId::new("2"), replayable(items("call_1", "call_1")));
    assert_eq!(sent(&request)[0]["parts"], items("call_1", "call_1~2"));
    assert_eq!(sent(&request)[1]["parts"][1]["functionResponse"]["id"], "call_1~2");

    // Verbatim forms that do not fit: another provider's, other calls, or malformed calls.
    request.verbatim.clear();
    let neutral = sent(&request);
    assert_eq!(neutral[0]["parts"][0], json!({"text": "I look."}));
    let mut foreign = replayable(items("call_1", "call_1"));
    foreign.provider = "anthropic".to_owned();
    let one = replayable(json!([{"functionCall": {"name": "f"}}]));
    let broken = replayable(json!([{"functionCall": ["a"]}, {"functionCall": 7}]));
    for other in [foreign, one, broken, replayable(json!([]))] {
        request.verbatim.insert(MessageId::new("2"), other);
        assert_eq!(sent(&request), neutral);
    }
}

#[test]
fn the_first_unsigned_call_gets_a_placeholder_where_a_signature_is_required() {
    let calls = [("a", "f", json!({})), ("b", "f", json!({}))];
    let signature = |name: &str, at: usize| {
        let mut request = request_for(name);
        request.messages = vec![assistant_calls("2", &calls)];
        let part = render(&request)["contents"][0]["parts"][at].clone();
        assert!(part.get("functionCall").is_some());
        part.get("thoughtSignature").cloned()
    };
    for name in ["gemini-3-pro", "models/gemini-3-flash", "gemini-flash-latest"] {
        assert_eq!(signature(name, 1), Some(json!("skip_thought_signature_validator")));
        assert_eq!(signature(name, 2), None);
    }
    for name in ["gemini-2.5-pro", "models/gemini-1.5-flash", "gemma-3-27b-it"] {
        assert_eq!(signature(name, 1), None);
    }
    // A message of an older model is sent back unchanged except for the placeholder.
    let parts = |model: &str| {
        let mut request = request_for("gemini-3-pro");
        request.messages = vec![assistant_calls("2", &calls[..1])];
        let made = verbatim(json!([{"functionCall": {"name": "f"}}])).unwrap();
        let made = ProviderMessage { model: model.to_owned(), ..made };
        request.verbatim.insert(MessageId::new("2"), made);
        render(&request)["contents"][0]["parts"].clone()
    };
    let call = json!({"functionCall": {"name": "f", "id": "a"}});
    assert_eq!(parts("gemini-3-flash"), json!([call]));
    assert_eq!(parts("gemini-2.5-pro")[0]["thoughtSignature"], "skip_thought_signature_validator");
}

#[test]
fn a_schema_goes_into_the_prompt_where_tools_forbid_it() {
    let schema = json!({"type": "object"});
    let schema_and_prompt = |name: &str, tools: Vec<ToolSpec>, system: &str| {
        let schema = Some(schema.clone());
        let body =
            render(&ModelRequest { tools, schema, system: system.to_owned(), ..request_for(name) });
        (body["generationConfig"].clone(), body["systemInstruction"]["parts"][0]["text"].clone())
    };
    let native = json!({"responseMimeType": "application/json", "responseJsonSchema": schema});
    let tools = || vec![spec(Executor::Server, json!({}))];
    assert_eq!(schema_and_prompt("gemini-3-pro", tools(), ""), (native.clone(), Value::Null));
    assert_eq!(schema_and_prompt("gemini-2.5-pro", vec![], "Hi."), (native, json!("Hi.")));
    let words = "Answer with nothing but JSON that satisfies this schema: {\"type\":\"object\"}";
    assert_eq!(schema_and_prompt("gemini-2.5-pro", tools(), ""), (Value::Null, json!(words)));
    let both = json!(format!("Hi.\n\n{words}"));
    assert_eq!(schema_and_prompt("gemini-2.5-pro", tools(), "Hi."), (Value::Null, both));
}

#[test]
fn functions_together_with_provider_tools_are_declared_with_a_switch() {
    let mut request = request_for("gemini-3-pro");
    let web = spec(Executor::Provider, json!({"gemini": {"googleSearch": {}}}));
    request.tools = vec![web.clone()];
    assert_eq!(render(&request).get("toolConfig"), None);
    request.tools = vec![web, spec(Executor::Client, json!({}))];
    let sent = render(&request);
    assert_eq!(sent["toolConfig"], json!({"includeServerSideToolInvocations": true}));
    assert_eq!(sent["tools"][1], json!({"googleSearch": {}}));
}

#[test]
fn every_block_becomes_the_part_that_the_api_knows() {
    let text = |text: &str| json!({"text": text});
    let inline = |kind: &str| json!({"inlineData": {"mimeType": kind, "data": "AAEC"}});
    let file = |kind: &str, uri: &str| json!({"fileData": {"mimeType": kind, "fileUri": uri}});
    let base64 = |kind: &str, media_type: &str| {
        json!({"type": kind, "source":
            {"type": "base64", "mimeType": media_type, "data": "AAEC"}})
    };
    let at = |kind: &str, url: &str| json!({"type": kind, "source": {"type": "url", "url": url}});
    let up = |id: &str, media_type: &str| {
        json!({"type": "document", "mimeType": media_type,
            "source": {"type": "file_id", "fileId": id}})
    };
    let stored =
        json!({"type": "video", "source": {"type": "gcs", "bucket": "b", "object": "v.mp4"}});
    let files = "https://generativelanguage.googleapis.com/v1beta/files/x";
    for (block, part) in [
        (text_block("hello"), text("hello")),
        (base64("image", "IMAGE/jpg; q=1"), inline("image/jpeg")),
        (base64("image", "image/tiff"), text("[image/tiff, 3 B]")),
        (base64("image", "image/gif"), text("[image/gif, 3 B]")),
        (base64("audio", "audio/mpeg"), inline("audio/mp3")),
        (base64("video", "video/mp4"), inline("video/mp4")),
        (base64("document", "application/pdf"), inline("application/pdf")),
        (base64("document", "application/zip"), text("[application/zip, 3 B]")),
        (
            at("image", "https://a.example/i.PNG?x=1"),
            file("image/png", "https://a.example/i.PNG?x=1"),
        ),
        (at("image", "https://a.example/i"), text("[image at https://a.example/i]")),
        (at("image", "http://a.example/i.png"), text("[image at http://a.example/i.png]")),
        (up("files/x", "application/pdf"), file("application/pdf", files)),
        (up(files, "application/pdf"), file("application/pdf", files)),
        (up("file-of-another", "application/pdf"), text("[document in file file-of-another]")),
        (stored, file("video/mp4", "gs://b/v.mp4")),
        (json!({"type": "code", "text": "x", "language": "c"}), text("```c\nx\n```")),
        (json!({"type": "hologram", "n": 1}), text(r#"{"type":"hologram","n":1}"#)),
    ] {
        let mut request = request_for("gemini-3-pro");
        request.messages = vec![message("1", MessageRole::User, vec![block.clone()])];
        assert_eq!(render(&request)["contents"][0]["parts"], json!([part]), "{block}");
    }
}
