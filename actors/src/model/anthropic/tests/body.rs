//! Tests of how requests are written.

use abide_conversation::event::Executor;
use abide_conversation::message::{CallRef, MessageStatus};

use super::super::{body::render, schema, tool};
use super::*;
use crate::model::ToolSpec;

fn assistant_calls(id: &str, calls: &[&str]) -> Message {
    let call = |id: &&str| CallRef {
        id: CallId::new(*id),
        name: "search".to_owned(),
        args: json!({"q": 1}).into(),
    };
    Message {
        tool_calls: calls.iter().map(call).collect(),
        ..message(id, MessageRole::Assistant, vec![])
    }
}

fn spec(executor: Executor, options: Value) -> ToolSpec {
    ToolSpec {
        name: "look".to_owned(),
        description: "Looks.".to_owned(),
        parameters: json!({"properties": {"at": {"type": "string"}}}).into(),
        executor,
        provider_options: json!({"anthropic": options}).as_object().unwrap().clone(),
    }
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

#[test]
fn the_body_matches_the_wire_format() {
    let mut request = sample_request(vec![
        user_text("1", "one"),
        Message { content: vec![text_block("I look.")], ..assistant_calls("2", &["a", "b~2"]) },
        result("a"),
        result("b~2"),
        user_text("3", "two"),
        Message { status: Some(MessageStatus::Cancelled), ..assistant_text("4", "Half a") },
        user_text("5", " "),
    ]);
    request.stable_messages = 4;
    request.system = "Be brief.".to_owned();
    request.settings.temperature = Some(0.5);
    request.tools = vec![spec(Executor::Server, json!({"strict": true}))];
    let call =
        |id: &str| json!({"type": "tool_use", "id": id, "name": "search", "input": {"q": 1}});
    let found =
        |id: &str| json!({"type": "tool_result", "tool_use_id": id, "content": [text("found")]});
    let renamed = crate::model::http::ids::sanitize_id("b~2", 64);
    let mark = json!({"type": "ephemeral"});
    let mut last = found(&renamed);
    last["cache_control"] = mark.clone();
    let schema = json!({"properties": {"at": {"type": "string"}}, "type": "object"});
    let expected = json!({
        "model": "some-model",
        "max_tokens": 8192,
        "tools": [{"name": "look", "description": "Looks.", "input_schema": schema,
            "strict": true}],
        "system": [{"type": "text", "text": "Be brief.", "cache_control": mark}],
        "messages": [
            {"role": "user", "content": [text("one")]},
            {"role": "assistant", "content": [text("I look."), call("a"), call(&renamed)]},
            {"role": "user", "content": [found("a"), last]},
            {"role": "user", "content": [text("two")]},
            {"role": "assistant", "content": [text("Half a"), text("[interrupted]")]},
            {"role": "user", "content": [text("[nothing]")]},
        ],
        "stream": true,
        "temperature": 0.5,
    });
    assert_eq!(render(&request).to_string(), expected.to_string());
}

#[test]
fn the_limit_of_an_answer_is_configured_and_thinking_is_added() {
    let mut request = sample_request(vec![]);
    request.settings.options.insert("thinking".to_owned(), json!({"budget_tokens": 2000}));
    assert_eq!(render(&request)["max_tokens"], 10192);
    request.settings.max_tokens = Some(5);
    assert_eq!(render(&request)["max_tokens"], 5);
}

#[test]
fn without_a_system_prompt_the_last_tool_has_the_mark() {
    let mut request = sample_request(vec![]);
    let plain = spec(Executor::Client, json!({}));
    request.tools = vec![plain, spec(Executor::Server, json!({"defer_loading": true}))];
    let tools = &render(&request)["tools"];
    let marked = |at: usize| tools[at].get("cache_control").is_some();
    assert_eq!((marked(0), marked(1)), (true, false), "one that is not loaded takes none");
}

#[test]
fn every_block_becomes_the_content_block_that_the_api_knows() {
    let bytes = |kind: &str, media_type: &str, data: &str| {
        let source = json!({"type": "base64", "mimeType": media_type, "data": data});
        json!({"type": kind, "title": "R", "source": source})
    };
    let at = |kind: &str, url: &str| json!({"type": kind, "source": {"type": "url", "url": url}});
    let file = |kind: &str| json!({"type": kind, "source": {"type": "file_id", "fileId": "f1"}});
    let shown = |kind: &str, source: Value| json!({"type": kind, "source": source});
    let url = |url: &str| json!({"type": "url", "url": url});
    let written = json!({"type": "text", "media_type": "text/plain", "data": "abc"});
    let jpeg = json!({"type": "base64", "media_type": "image/jpeg", "data": "AAEC"});
    let large = "AAAA".repeat((5 << 18) + 1);
    for (block, part) in [
        (text_block("hello"), text("hello")),
        (bytes("image", "IMAGE/jpg; q=1", "AAEC"), shown("image", jpeg)),
        (bytes("image", "image/png", &large), text("[image/png, 3.9 MB: R]")),
        (at("image", "https://a.example/i"), shown("image", url("https://a.example/i"))),
        (at("image", "http://a.example/i"), text("[image at http://a.example/i]")),
        (file("image"), shown("image", json!({"type": "file", "file_id": "f1"}))),
        (file("document"), shown("document", json!({"type": "file", "file_id": "f1"}))),
        (
            bytes("document", "text/plain", "YWJj"),
            json!({"type": "document", "source": written, "title": "R"}),
        ),
        (
            at("document", "https://a.example/f.PDF?x"),
            shown("document", url("https://a.example/f.PDF?x")),
        ),
        (at("document", "https://a.example/f"), text("[document at https://a.example/f]")),
        (bytes("audio", "audio/wav", "AAEC"), text("[audio/wav, 3 B: R]")),
        (text_block(" \n"), text("[nothing]")),
    ] {
        let request = sample_request(vec![message("1", MessageRole::User, vec![block])]);
        assert_eq!(render(&request)["messages"][0]["content"], json!([part]));
    }
}

#[test]
fn an_abandoned_run_is_sent_back_only_while_it_may_end() {
    let run = json!({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}});
    let found = json!({"type": "web_search_tool_result", "tool_use_id": "s1", "content": []});
    let sent = |request: &ModelRequest| render(request)["messages"].clone();
    let mut request = sample_request(vec![user_text("1", "go"), assistant_text("2", "I look.")]);
    request.verbatim = [verbatim_entry("2", json!([text("I look."), run]))].into();
    assert_eq!(sent(&request)[1]["content"], json!([text("I look."), run]));
    assert_eq!(sent(&request).as_array().unwrap().len(), 2);

    request.messages.push(user_text("3", "no, stop"));
    assert_eq!(sent(&request)[1]["content"], json!([text("I look.")]));

    request.messages.insert(2, assistant_text("4", "Found."));
    request.verbatim.extend([verbatim_entry("4", json!([found, text("Found.")]))]);
    assert_eq!(sent(&request)[1]["content"], json!([text("I look."), run]));
    assert_eq!(sent(&request)[2]["content"], json!([found, text("Found.")]));
}

#[test]
fn a_message_with_other_calls_than_its_verbatim_form_is_rendered() {
    let call = json!({"type": "tool_use", "id": "x", "name": "search", "input": {"q": 1}});
    let thinking = json!({"type": "thinking", "thinking": "x", "signature": "s"});
    let mut request =
        sample_request(vec![user_text("1", "go"), assistant_calls("2", &["a", "b"]), result("a")]);
    request.verbatim = [verbatim_entry("2", json!([thinking, call]))].into();
    let sent = render(&request)["messages"][1]["content"].clone();
    assert_eq!((sent[0]["id"].as_str(), sent[1]["id"].as_str()), (Some("a"), Some("b")));

    let unfinished = sample_request(vec![user_text("1", "go"), assistant_text("2", "I ")]);
    let sent = render(&unfinished)["messages"].clone();
    assert_eq!(sent[2], json!({"role": "user", "content": [text("[go on]")]}));
}

#[test]
fn a_container_is_reused_within_its_turn() {
    let mut request =
        sample_request(vec![user_text("1", "go"), assistant_calls("2", &["a"]), result("a")]);
    let call = json!({"type": "tool_use", "id": "x", "name": "search", "input": {"q": 1}});
    let items = json!([call, {"type": "container", "id": "c1"}]);
    request.verbatim = [verbatim_entry("2", items)].into();
    request.settings.options.insert("container".to_owned(), json!({"skills": []}));
    let sent = render(&request);
    assert_eq!(sent["container"], json!({"id": "c1", "skills": []}));
    assert_eq!(sent["messages"][1]["content"].as_array().unwrap().len(), 1);
    request.messages.push(user_text("3", "more"));
    assert_eq!(render(&request)["container"], json!({"skills": []}));
}

#[test]
fn a_schema_is_closed_and_describes_what_is_not_enforced() {
    let given = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "description": "An order.",
        "properties": {
            "count": {"type": "integer", "minimum": 1},
            "minimum": {"type": "array", "minItems": 2, "items": {"type": "object"}},
            "at": {"oneOf": [{"type": "string", "format": "date"}, {"format": "color"}]},
        },
        "required": ["count"],
        "minProperties": 1,
    });
    let expected = json!({
        "type": "object",
        "description": "An order.\n{\"minProperties\":1}",
        "properties": {
            "count": {"type": "integer", "description": "{\"minimum\":1}"},
            "minimum": {"type": "array", "description": "{\"minItems\":2}",
                "items": {"type": "object", "additionalProperties": false}},
            "at": {"anyOf": [{"type": "string", "format": "date"},
                {"description": "{\"format\":\"color\"}"}]},
        },
        "required": ["count"],
        "additionalProperties": false,
    });
    assert_eq!(schema::strict(&given), expected);
}

#[test]
fn a_run_has_the_name_of_the_tool_that_was_declared_for_it() {
    let code = json!({"type": "code_execution_20250825", "name": "code_execution"});
    let tools = [spec(Executor::Server, json!({"name": "other"})), spec(Executor::Provider, code)];
    for (name, known) in [
        ("code_execution", "look"),
        ("bash_code_execution", "look"),
        ("text_editor_code_execution", "look"),
        ("web_search", "web_search"),
        ("other", "other"),
    ] {
        assert_eq!(tool::declared_name(&tools, name), known);
    }
    let foreign = ToolSpec { provider_options: Default::default(), ..tools[1].clone() };
    assert_eq!(tool::definition(&foreign), None);
}
