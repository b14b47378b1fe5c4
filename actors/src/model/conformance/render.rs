//! The requests and messages of the cases, written by a dialect.

use std::sync::Arc;

use abide_conversation::event::Executor;
use abide_conversation::message::{
    CallRef, Message, MessageRole, ProviderMessage, StopReason, text_block,
};
use abide_conversation::usage::Usage;
use abide_conversation::{CallId, MessageId};
use serde_json::{Value, json};

use super::{Dialect, MessageEnd, Rendered, Utterance};
use crate::model::http::{HttpModel, HttpTimeouts};
use crate::model::test_server::{
    FixedClock, TestResponse, TestServer, all_ok, collect_reply, request, settings,
};
use crate::model::{
    Model, ModelError, ModelRequest, ModelSettings, ModelToolCall, ReplyChunk, ReplyEnd, ToolSpec,
};

pub(super) const KEY: &str = "sk-test-0123456789";
pub(super) const PNG: &str = "iVBORw0KGgo=";
pub(super) const PDF: &str = "JVBERi0xLjQ=";

/// The definition's name of the tool that the provider runs.
pub(super) const WEB: &str = "web";

pub(super) fn http_model() -> HttpModel {
    let lookup = |name: &str| (name == "A_KEY").then(|| KEY.to_owned());
    HttpModel::new(Arc::new(FixedClock), HttpTimeouts::default(), lookup)
}

/// A request without messages to the server at this URL.
pub(super) fn request_to(dialect: &dyn Dialect, url: &str) -> ModelRequest {
    request(ModelSettings {
        name: "some-model".to_owned(),
        base_url: Some(url.to_owned()),
        ..settings(dialect.provider())
    })
}

/// The body that is sent for a request.
pub(super) fn body(request: &ModelRequest) -> Value {
    http_model().request_body(request)
}

pub(super) fn end(stop: StopReason) -> Option<MessageEnd> {
    Some(MessageEnd {
        stop,
        usage: Usage { input_tokens: 7, output_tokens: 3, ..Usage::default() },
    })
}

/// A response with a whole message.
pub(super) fn message(
    dialect: &dyn Dialect,
    utterances: &[Utterance<'_>],
    stop: StopReason,
) -> Rendered<TestResponse> {
    Ok(pieces(dialect, dialect.frames(utterances, end(stop))?))
}

pub(super) fn pieces(dialect: &dyn Dialect, frames: Vec<String>) -> TestResponse {
    dialect.answer(frames.into_iter().map(String::into_bytes).collect())
}

/// All chunks of a reply; an error is last.
pub(super) async fn reply_to(
    dialect: &dyn Dialect,
    answer: TestResponse,
) -> Vec<Result<ReplyChunk, ModelError>> {
    let server = TestServer::start([answer]).await;
    let request = ModelRequest { tools: tools(dialect), ..request_to(dialect, &server.url) };
    collect_reply(&http_model(), request).await
}

/// The chunks of a whole message.
pub(super) async fn reply_chunks(
    dialect: &dyn Dialect,
    utterances: &[Utterance<'_>],
    stop: StopReason,
) -> Rendered<Vec<ReplyChunk>> {
    Ok(all_ok(reply_to(dialect, message(dialect, utterances, stop)?).await))
}

/// The chunks, and the end that follows them.
pub(super) fn split_end(mut chunks: Vec<ReplyChunk>) -> (Vec<ReplyChunk>, ReplyEnd) {
    match chunks.pop() {
        Some(ReplyChunk::Done(done)) => (chunks, done),
        other => panic!("ends with {other:?}"),
    }
}

pub(super) fn last_error(mut chunks: Vec<Result<ReplyChunk, ModelError>>) -> ModelError {
    chunks.pop().unwrap().unwrap_err()
}

pub(super) fn text(text: &str) -> ReplyChunk {
    ReplyChunk::Text(text.to_owned())
}

/// A call as this dialect delivers it.
pub(super) fn call(
    dialect: &dyn Dialect,
    id: &str,
    name: &str,
    args: Result<Value, &str>,
) -> ReplyChunk {
    let id = if dialect.has_ids() { id.to_owned() } else { String::new() };
    let args = args.map_err(str::to_owned);
    ReplyChunk::Call(ModelToolCall { id, name: name.to_owned(), args, provider_result: None })
}

/// The chunks without the ids of calls, if the dialect has none.
pub(super) fn without_unsupported_ids(
    dialect: &dyn Dialect,
    mut chunks: Vec<ReplyChunk>,
) -> Vec<ReplyChunk> {
    for chunk in &mut chunks {
        match chunk {
            ReplyChunk::Call(call) if !dialect.has_ids() => call.id.clear(),
            ReplyChunk::Call(_)
            | ReplyChunk::Text(_)
            | ReplyChunk::Thinking(_)
            | ReplyChunk::Done(_) => {}
        }
    }
    chunks
}

pub(super) fn function(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: "Does it.".to_owned(),
        parameters: json!({"type": "object", "properties": {"q": {"type": "string"}}}).into(),
        executor: Executor::Server,
        provider_options: Default::default(),
    }
}

/// Two functions, and the provider's own tool if it has one.
pub(super) fn tools(dialect: &dyn Dialect) -> Vec<ToolSpec> {
    let hosted = dialect.hosted().ok().map(|hosted| ToolSpec {
        executor: Executor::Provider,
        provider_options: hosted.options.as_object().cloned().unwrap_or_default(),
        ..function(WEB)
    });
    [function("search"), function("mail")].into_iter().chain(hosted).collect()
}

pub(super) fn user(id: &str, content: Vec<Value>) -> Message {
    Message::new(MessageId::new(id), MessageRole::User, content)
}

pub(super) fn user_text(id: &str, text: &str) -> Message {
    user(id, vec![text_block(text)])
}

/// An assistant's message with calls to `search` that have these ids.
pub(super) fn assistant(id: &str, text: &str, calls: &[&str]) -> Message {
    let call = |id: &&str| CallRef {
        id: CallId::new(*id),
        name: "search".to_owned(),
        args: json!({"q": "x"}).into(),
    };
    let content = if text.is_empty() { Vec::new() } else { vec![text_block(text)] };
    let tool_calls = calls.iter().map(call).collect();
    Message { role: MessageRole::Assistant, tool_calls, ..user(id, content) }
}

pub(super) fn result(call: &str, text: &str) -> Message {
    Message {
        role: MessageRole::Tool,
        tool_call_id: Some(CallId::new(call)),
        ..user_text(&format!("result_{call}"), text)
    }
}

/// The next request: the first one, the reply with its calls to `search` under these ids, and their
/// results.
pub(super) fn next_request(
    dialect: &dyn Dialect,
    (chunks, done): (Vec<ReplyChunk>, ReplyEnd),
    calls: &[&str],
) -> (ModelRequest, ProviderMessage) {
    let spoken = |chunk: &ReplyChunk| match chunk {
        ReplyChunk::Text(text) => Some(text.clone()),
        ReplyChunk::Thinking(_) | ReplyChunk::Call(_) | ReplyChunk::Done(_) => None,
    };
    let spoken: String = chunks.iter().filter_map(spoken).collect();
    let verbatim = done.verbatim.unwrap();
    assert_eq!((&*verbatim.provider, &*verbatim.model), (dialect.provider().name(), "some-model"));
    let mut messages = vec![user_text("1", "go"), assistant("2", &spoken, calls)];
    messages.extend(calls.iter().map(|call| result(call, "found")));
    let request = ModelRequest {
        stable_messages: messages.len(),
        messages,
        verbatim: [(MessageId::new("2"), verbatim.clone())].into(),
        tools: tools(dialect),
        ..request_to(dialect, "http://127.0.0.1:9/v1")
    };
    (request, verbatim)
}

/// Whether the value occurs anywhere within.
pub(super) fn contains(within: &Value, value: &Value) -> bool {
    within == value
        || match within {
            Value::Array(items) => items.iter().any(|item| contains(item, value)),
            Value::Object(fields) => fields.values().any(|field| contains(field, value)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
}

/// A value without the fields of this name, at any depth.
pub(super) fn without(value: &Value, name: &str) -> Value {
    match value {
        Value::Array(items) => items.iter().map(|item| without(item, name)).collect(),
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(key, _)| *key != name);
            Value::Object(kept.map(|(key, field)| (key.clone(), without(field, name))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// The `text` of every object that has the field `beside`, in order.
pub(super) fn texts_beside(value: &Value, beside: &str) -> Vec<String> {
    let mut texts = Vec::new();
    match value {
        Value::Array(items) => texts.extend(items.iter().flat_map(|it| texts_beside(it, beside))),
        Value::Object(fields) => {
            if fields.contains_key(beside) {
                texts.push(value["text"].as_str().unwrap_or("?").to_owned());
            }
            texts.extend(fields.values().flat_map(|it| texts_beside(it, beside)));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    texts
}

/// The ids of the calls in a body of chat messages, in order.
pub(super) fn chat_calls(body: &Value) -> Vec<String> {
    let messages = body["messages"].as_array().unwrap().iter();
    let calls = messages.filter_map(|message| message["tool_calls"].as_array()).flatten();
    calls.map(|call| call["id"].as_str().unwrap().to_owned()).collect()
}

/// The ids that its results answer, in order.
pub(super) fn chat_results(body: &Value) -> Vec<String> {
    let messages = body["messages"].as_array().unwrap().iter();
    let answered = messages.filter_map(|message| message.get("tool_call_id"));
    answered.map(|id| id.as_str().unwrap().to_owned()).collect()
}
