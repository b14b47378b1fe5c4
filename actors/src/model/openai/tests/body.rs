//! What a request says on the wire.

use abide_conversation::event::Executor;
use abide_conversation::message::{CallRef, Message, Role, Status, text_block};
use abide_conversation::{CallId, MessageId};

use super::*;
use crate::model::ToolSpec;
use crate::model::openai::body::body;

fn message(id: &str, role: Role, content: Vec<Value>) -> Message {
    Message {
        id: MessageId::new(id),
        role,
        content,
        tool_calls: Vec::new(),
        tool_call_id: None,
        status: None,
        object: None,
    }
}

fn conversation() -> Vec<Message> {
    let image = json!({"type": "image", "source": {"type": "base64", "data": "AA==",
                       "mimeType": "image/gif"}});
    let link = json!({"type": "image", "url": "http://127.0.0.1/i.png"});
    let data = json!({"type": "json", "data": {"z": 1, "a": 2}});
    let calls = [("call_1", "search", json!({"z": 1, "a": 2})), ("c~2", "a.b", json!("broken"))];
    let calls =
        calls.map(|(id, name, args)| CallRef { id: CallId::new(id), name: name.to_owned(), args });
    let reasoning = json!({"type": "reasoning", "text": "hidden"});
    let result = |id: &str, text: &str| Message {
        tool_call_id: Some(CallId::new(id)),
        ..message("r", Role::Tool, vec![text_block(text)])
    };
    let content = vec![reasoning, text_block("I "), text_block("look.")];
    vec![
        message("1", Role::User, vec![text_block("one"), data, json!({"type": "video"})]),
        Message { tool_calls: calls.to_vec(), ..message("2", Role::Assistant, content) },
        result("call_1", "{\"ok\":true,\"result\":1}"),
        result("c~2", "{\"ok\":false}"),
        Message {
            status: Some(Status::Cancelled),
            ..message("3", Role::Assistant, vec![text_block("Half a")])
        },
        message("4", Role::User, vec![text_block("see"), image, link]),
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
         "tool_calls": [call("call_1", "search", "{\"z\":1,\"a\":2}"), call("c~2", "a_b", "{}")]},
        {"role": "tool", "tool_call_id": "call_1", "content": "{\"ok\":true,\"result\":1}"},
        {"role": "tool", "tool_call_id": "c~2", "content": "{\"ok\":false}"},
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
        parameters,
        executor: Executor::Server,
        provider_options: options.as_object().unwrap().clone(),
    }
}

#[test]
fn no_tools_are_sent_where_none_is_this_providers() {
    let web = ToolSpec { executor: Executor::Provider, ..spec("web", json!({}), json!({})) };
    let mut request = request(settings(Provider::Openai));
    request.tools = vec![web];
    assert_eq!(body(&request, true).get("tools"), None);
    request.tools[0].provider_options.insert("openai".to_owned(), json!({"type": "web_search"}));
    assert_eq!(body(&request, true)["tools"], json!([{"type": "web_search"}]));
}

#[tokio::test]
async fn the_body_on_the_wire_is_as_written() {
    let server = Server::start([Answer::stream([finish("stop")])]).await;
    let parameters = json!({"type": "object", "required": ["z"],
        "properties": {"z": {"type": "string"}, "a": {"type": "integer"}}});
    let request = Request {
        settings: Settings {
            temperature: Some(0.5),
            max_tokens: Some(99),
            ..asking(&server).settings
        },
        system: "Be brief.".to_owned(),
        messages: conversation(),
        tools: vec![spec(
            "search",
            parameters.clone(),
            json!({"openai": {"function": {"strict": true}}}),
        )],
        schema: Some(json!({"type": "object"})),
    };
    whole(answered(&openai(Limits::default()), request).await);
    let asked = server.asked().remove(0);
    assert_eq!(asked.path, "/v1/chat/completions");
    assert_eq!(asked.headers["content-type"], "application/json");
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
    assert_eq!(asked.body.to_string(), expected.to_string());
}

#[test]
fn openai_itself_is_told_the_limit_by_its_new_name() {
    let settings = Settings { max_tokens: Some(5), ..settings(Provider::Openai) };
    let body = body(&request(settings), true);
    assert_eq!((&body["max_completion_tokens"], &body["max_tokens"]), (&json!(5), &Value::Null));
}
