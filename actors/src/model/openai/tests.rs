//! Tests against a real server that speaks the wire format, well or badly.
#![allow(clippy::unwrap_used)]

mod body;

use std::sync::Arc;
use std::time::Duration;

use abide_conversation::message::StopReason;
use abide_conversation::usage::Usage;
use futures::StreamExt;
use serde_json::{Value, json};

use crate::model::http::{HttpModel, HttpTimeouts, endpoint};
use crate::model::test_server::{
    DONE, FixedClock, TestEnd, TestResponse, TestServer, all_ok, collect_reply, delta, event,
    finish, request, settings,
};
use crate::model::{
    Model, ModelError, ModelRequest, ModelSettings, ModelToolCall, Provider, ReplyChunk, ReplyEnd,
    Retry,
};
use crate::tools::fixtures::log::ErrorLog;

const KEY: &str = "sk-test-0123456789";

fn openai(limits: HttpTimeouts) -> HttpModel {
    HttpModel::new(Arc::new(FixedClock), limits, |name| (name == "A_KEY").then(|| KEY.to_owned()))
}

fn request_to(server: &TestServer) -> ModelRequest {
    request(ModelSettings {
        name: "some-model".to_owned(),
        base_url: Some(server.url.clone()),
        ..settings(Provider::Openai)
    })
}

async fn reply(answer: TestResponse) -> Vec<Result<ReplyChunk, ModelError>> {
    let server = TestServer::start([answer]).await;
    collect_reply(&openai(HttpTimeouts::default()), request_to(&server)).await
}

fn text_chunk(text: &str) -> Result<ReplyChunk, ModelError> {
    Ok(ReplyChunk::Text(text.to_owned()))
}

fn done(stop: StopReason) -> ReplyChunk {
    ReplyChunk::Done(ReplyEnd { stop: Some(stop), ..ReplyEnd::default() })
}

fn failure(mut chunks: Vec<Result<ReplyChunk, ModelError>>) -> ModelError {
    chunks.pop().unwrap().unwrap_err()
}

#[tokio::test]
async fn text_streams_and_usage_comes_last() {
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}});
    let pieces = [
        ": keep-alive\n\n".to_owned(),
        delta(json!({"role": "assistant", "content": ""})),
        delta(json!({"content": "Grüß"})),
        ": keep-alive\n".to_owned(),
        delta(json!({"content": " Gott"})),
        finish("stop"),
        event(usage),
        DONE.to_owned(),
    ];
    let chunks = all_ok(reply(TestResponse::stream(pieces)).await);
    let usage = Some(Usage { input_tokens: 7, output_tokens: 3, ..Usage::default() });
    let text = |text: &str| ReplyChunk::Text(text.to_owned());
    assert_eq!(
        chunks,
        [
            text("Grüß"),
            text(" Gott"),
            ReplyChunk::Done(ReplyEnd { usage, stop: Some(StopReason::End), verbatim: None })
        ]
    );
}

#[tokio::test]
async fn thinking_streams_under_either_of_its_names() {
    let pieces = [
        delta(json!({"reasoning_content": "Hm."})),
        delta(json!({"reasoning": " So."})),
        delta(json!({"content": "Yes"})),
        finish("stop"),
        DONE.to_owned(),
    ];
    let chunks = all_ok(reply(TestResponse::stream(pieces)).await);
    let thinking = |text: &str| ReplyChunk::Thinking(text.to_owned());
    let expected = [
        thinking("Hm."),
        thinking(" So."),
        ReplyChunk::Text("Yes".to_owned()),
        done(StopReason::End),
    ];
    assert_eq!(chunks, expected);
}

fn fragment(index: u64, fields: Value) -> String {
    let mut call = json!({"index": index});
    for (key, value) in fields.as_object().unwrap() {
        call[key] = value.clone();
    }
    delta(json!({"tool_calls": [call]}))
}

fn two_calls() -> String {
    let args = |index, args: &str| fragment(index, json!({"function": {"arguments": args}}));
    let begin = |id: &str, name: &str| {
        let function = json!({"name": name, "arguments": ""});
        json!({"id": id, "type": "function", "function": function})
    };
    [
        delta(json!({"content": "Über "})),
        fragment(0, begin("call_a", "search")),
        args(0, "{\"q\":"),
        fragment(1, begin("call_b", "mail")),
        args(1, "{\"to\": \"a@b"),
        args(0, " \"größe 🦀\"}"),
        args(1, ".c\"}"),
        finish("tool_calls").replace("\n\n", "\r\n\r\n"),
        DONE.to_owned(),
    ]
    .concat()
}

fn call(id: &str, name: &str, args: Result<Value, String>) -> ReplyChunk {
    ReplyChunk::Call(ModelToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        args,
        provider_result: None,
    })
}

#[tokio::test]
async fn two_calls_are_whole_wherever_the_stream_is_split() {
    let stream = two_calls().into_bytes();
    let splits = 1..stream.len();
    let split = |at: usize| TestResponse::stream([stream[..at].to_vec(), stream[at..].to_vec()]);
    let server = TestServer::start(splits.clone().map(split)).await;
    let openai = openai(HttpTimeouts::default());
    let expected = [
        ReplyChunk::Text("Über ".to_owned()),
        call("call_a", "search", Ok(json!({"q": "größe 🦀"}))),
        call("call_b", "mail", Ok(json!({"to": "a@b.c"}))),
        done(StopReason::ToolCalls),
    ];
    for at in splits {
        let chunks = all_ok(collect_reply(&openai, request_to(&server)).await);
        assert_eq!(chunks, expected, "split at {at}");
    }
    let bytes = TestResponse::stream(stream.chunks(1).map(<[u8]>::to_vec));
    assert_eq!(all_ok(reply(bytes).await), expected);
}

#[tokio::test]
async fn a_server_may_leave_out_the_index_or_repeat_it() {
    let begin = |id: &str, index: Value| {
        let function = json!({"name": "f", "arguments": "{\"id\": "});
        let mut call = json!({"id": id, "function": function});
        if !index.is_null() {
            call["index"] = index;
        }
        delta(json!({"tool_calls": [call]}))
    };
    let more = |args: &str, index: Value| {
        delta(json!({"tool_calls": [{"index": index, "function": {"arguments": args}}]}))
    };
    for index in [json!(null), json!(0), json!(u64::MAX)] {
        let pieces = [
            begin("a", index.clone()),
            more("1}", index.clone()),
            begin("b", index.clone()),
            more("2}", index.clone()),
            finish("tool_calls"),
        ];
        let chunks = all_ok(reply(TestResponse::stream(pieces)).await);
        let expected = [
            call("a", "f", Ok(json!({"id": 1}))),
            call("b", "f", Ok(json!({"id": 2}))),
            done(StopReason::ToolCalls),
        ];
        assert_eq!(chunks, expected, "index {index}");
    }
}

#[tokio::test]
async fn arguments_that_are_not_json_are_passed_on_raw() {
    let args = |args: &str, reason: &str| {
        let function = json!({"name": "f", "arguments": args});
        TestResponse::stream([
            fragment(0, json!({"id": "a", "function": function})),
            finish(reason),
        ])
    };
    for (prices, reason, expected) in [
        ("{\"a\": ", "tool_calls", Err("{\"a\": ".to_owned())),
        ("[1]", "tool_calls", Ok(json!([1]))),
        ("{\"a\": 12345678901234567890}", "tool_calls", Ok(json!({"a": 12345678901234567890_u64}))),
        (
            "{\"a\": 12345678901234567890123}",
            "tool_calls",
            Err("{\"a\": 12345678901234567890123}".to_owned()),
        ),
        ("", "tool_calls", Ok(json!({}))),
        ("", "length", Err(String::new())),
        ("{}", "length", Ok(json!({}))),
    ] {
        let stop = if reason == "length" { StopReason::MaxTokens } else { StopReason::ToolCalls };
        let chunks = all_ok(reply(args(prices, reason)).await);
        assert_eq!(chunks, [call("a", "f", expected), done(stop)], "{prices} {reason}");
    }
}

#[tokio::test]
async fn a_complete_message_needs_no_orderly_close() {
    let limits = HttpTimeouts { trailer: Duration::from_millis(50), ..HttpTimeouts::default() };
    for end in [TestEnd::Whole, TestEnd::Breaks, TestEnd::Hangs] {
        let pieces = [delta(json!({"content": "Hi"})), finish("stop")];
        let server = TestServer::start([TestResponse::stream(pieces).ending_with(end)]).await;
        let chunks = all_ok(collect_reply(&openai(limits), request_to(&server)).await);
        assert_eq!(chunks, [ReplyChunk::Text("Hi".to_owned()), done(StopReason::End)], "{end:?}");
    }
}

#[tokio::test]
async fn comments_after_the_end_do_not_delay_the_reply() {
    let limits = HttpTimeouts { trailer: Duration::from_millis(50), ..HttpTimeouts::default() };
    let server = TestServer::start([
        TestResponse::stream([finish("stop")]).ending_with(TestEnd::CommentsForever)
    ])
    .await;
    assert_eq!(
        all_ok(collect_reply(&openai(limits), request_to(&server)).await),
        [done(StopReason::End)]
    );
}

#[tokio::test]
async fn a_stream_that_ends_before_its_message_is_a_failure() {
    for end in [TestEnd::Whole, TestEnd::Breaks] {
        let chunks =
            reply(TestResponse::stream([delta(json!({"content": "Hi"}))]).ending_with(end)).await;
        assert_eq!(chunks[0], text_chunk("Hi"));
        assert_eq!(failure(chunks).retry, Retry::After(None), "{end:?}");
    }
}

#[tokio::test]
async fn a_silent_server_times_out() {
    let soon = Duration::from_millis(100);
    let limits = HttpTimeouts { response_head: soon, idle: soon, ..HttpTimeouts::default() };
    let start = TestResponse::stream([delta(json!({"content": "Hi"}))]);
    for (answer, chunks) in [
        (TestResponse::stream([""; 0]).ending_with(TestEnd::NoHeader), 1),
        (TestResponse::stream([""; 0]).ending_with(TestEnd::Hangs), 1),
        (start.ending_with(TestEnd::Hangs), 2),
    ] {
        let server = TestServer::start([answer]).await;
        let reply = collect_reply(&openai(limits), request_to(&server)).await;
        assert_eq!(reply.len(), chunks);
        let silent = ModelError::transient("the model's provider sent nothing for 100ms");
        assert_eq!(failure(reply), silent);
    }
}

#[tokio::test]
async fn a_server_that_only_sends_keep_alives_times_out() {
    let limits = HttpTimeouts { total: Duration::from_millis(100), ..HttpTimeouts::default() };
    let server =
        TestServer::start([TestResponse::stream([""; 0]).ending_with(TestEnd::CommentsForever)])
            .await;
    let error = failure(collect_reply(&openai(limits), request_to(&server)).await);
    assert_eq!(error.retry, Retry::Never);
}

#[tokio::test]
async fn keep_alives_are_no_progress() {
    let limits = HttpTimeouts { progress: Duration::from_millis(100), ..HttpTimeouts::default() };
    let start = TestResponse::stream([delta(json!({"content": "Hi"}))]);
    let server = TestServer::start([start.ending_with(TestEnd::CommentsForever)]).await;
    let reply = collect_reply(&openai(limits), request_to(&server)).await;
    assert_eq!(reply.len(), 2);
    let silent = ModelError::transient("the model's provider sent nothing for 100ms");
    assert_eq!(failure(reply), silent);
}

#[tokio::test]
async fn malformed_usage_does_not_spoil_a_reply() {
    let usage = event(json!({"choices": [], "usage": {"prompt_tokens": -5}}));
    let pieces = [delta(json!({"content": "Hi"})), finish("stop"), usage, DONE.to_owned()];
    let chunks = all_ok(reply(TestResponse::stream(pieces)).await);
    let done = ReplyEnd { stop: Some(StopReason::End), ..ReplyEnd::default() };
    assert_eq!(chunks, [ReplyChunk::Text("Hi".to_owned()), ReplyChunk::Done(done)]);
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_may_be_retried() {
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    drop(server);
    let base_url = Some(format!("http://{address}/v1?secret=word"));
    let settings = ModelSettings { base_url, ..settings(Provider::Openai) };
    let error = failure(collect_reply(&openai(HttpTimeouts::default()), request(settings)).await);
    assert_eq!(error.retry, Retry::After(None));
    assert!(error.message.contains("cannot be reached"), "{error}");
    assert!(!error.message.contains("secret"), "{error}");
}

#[tokio::test]
async fn garbage_in_a_stream_is_an_error_after_the_preceding_chunks() {
    let good = delta(json!({"content": "Hi"}));
    for (bad, retry) in [
        ("data: {\"choices\": [\n\n".to_owned(), Retry::After(None)),
        ("data: 7\n\n".to_owned(), Retry::After(None)),
        (event(json!({"error": {"message": "overloaded", "code": 503}})), Retry::After(None)),
        (event(json!({"error": {"message": "no", "type": "invalid_request_error"}})), Retry::Never),
    ] {
        let chunks = reply(TestResponse::stream([format!("{good}{bad}{DONE}")])).await;
        assert_eq!(chunks[0], text_chunk("Hi"));
        assert_eq!(chunks.len(), 2);
        assert_eq!(failure(chunks).retry, retry, "{bad}");
    }
}

#[tokio::test]
async fn a_refusal_says_whether_a_retry_may_help() {
    let busy = TestResponse::error(429, "slow down").with_header("retry-after", "7");
    let date = TestResponse::error(503, "later")
        .with_header("retry-after", "Sat, 21 Nov 2026 08:00:09 GMT");
    for (answer, retry) in [
        (busy, Retry::After(Some(Duration::from_secs(7)))),
        (date, Retry::After(Some(Duration::from_secs(9)))),
        (TestResponse::error(500, "oops"), Retry::After(None)),
        (TestResponse::error(400, "no"), Retry::Never),
        (
            TestResponse::error(307, "moved").with_header("location", "http://127.0.0.1:1/"),
            Retry::Never,
        ),
    ] {
        let status = answer.status;
        let error = failure(reply(answer).await);
        assert_eq!(error.retry, retry);
        assert!(error.message.contains(&status.to_string()), "{error}");
    }
}

#[tokio::test]
async fn an_answer_that_does_not_stream_is_refused() {
    let whole = TestResponse { status: 200, ..TestResponse::error(200, "whole") };
    assert_eq!(failure(reply(whole).await).retry, Retry::Never);
}

#[tokio::test]
async fn a_reply_without_end_is_refused() {
    let piece = delta(json!({"content": "x".repeat(1024 * 1024)}));
    let chunks = reply(TestResponse::stream(vec![piece; 20]).ending_with(TestEnd::Hangs)).await;
    assert_eq!(chunks.len(), 17);
    assert_eq!(failure(chunks).retry, Retry::Never);

    let calls = (0..300).map(|n| fragment(n, json!({"id": "a", "function": {"name": "f"}})));
    let error = failure(reply(TestResponse::stream(calls).ending_with(TestEnd::Hangs)).await);
    assert_eq!(error.message, "the model's reply has more than 256 calls");
}

#[tokio::test]
async fn ten_megabytes_of_arguments_are_collected() {
    let args = "x".repeat(100);
    let piece = fragment(0, json!({"id": "a", "function": {"name": "f", "arguments": args}}));
    let pieces = vec![piece.repeat(1000); 100];
    let chunks =
        all_ok(reply(TestResponse::stream(pieces.into_iter().chain([finish("stop")]))).await);
    assert_eq!(chunks[0], call("a", "f", Err("x".repeat(10_000_000))));
}

#[tokio::test]
async fn dropping_the_stream_closes_the_connection() {
    let text = TestResponse::stream([delta(json!({"content": "Hi"}))]).ending_with(TestEnd::Hangs);
    let mute = TestResponse::stream([""; 0]).ending_with(TestEnd::NoHeader);
    let mut server = TestServer::start([text, mute]).await;
    let openai = openai(HttpTimeouts::default());
    let mut chunks = openai.call(&request_to(&server)).await.unwrap();
    assert_eq!(chunks.next().await, Some(text_chunk("Hi")));
    assert_eq!(*server.dropped.borrow(), 0);
    drop(chunks);
    let gone = server.dropped.wait_for(|dropped| *dropped == 1);
    tokio::time::timeout(Duration::from_secs(10), gone).await.unwrap().unwrap();

    let asking = tokio::spawn({
        let request = request_to(&server);
        async move { openai.call(&request).await.map(drop) }
    });
    let reply = async {
        while server.requests().len() < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), reply).await.unwrap();
    asking.abort();
    let gone = server.dropped.wait_for(|dropped| *dropped == 2);
    tokio::time::timeout(Duration::from_secs(10), gone).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_key_is_sent_and_never_shown() {
    let echo = format!("no such key: {KEY}, masked: {}***", &KEY[..8]);
    let answers = [
        TestResponse::error(401, &echo),
        TestResponse::stream([event(json!({"error": {"message": echo, "code": 401}}))]),
    ];
    let server = TestServer::start(answers).await;
    let openai = openai(HttpTimeouts::default());
    let mut request = request_to(&server);
    request.settings.api_key_env = Some("A_KEY".to_owned());
    for _ in 0..2 {
        let error = failure(collect_reply(&openai, request.clone()).await);
        assert_eq!(error.retry, Retry::Never);
        assert!(error.message.contains("no such key: [key] masked: [key]"), "{error}");
    }
    let requests = server.requests();
    assert_eq!(requests[0].headers["authorization"], format!("Bearer {KEY}"));

    request.settings.api_key_env = Some("NO_KEY".to_owned());
    let log = ErrorLog::capture();
    let missing = failure(collect_reply(&openai, request).await);
    assert!(log.lines().contains("variable=\"NO_KEY\""), "{}", log.lines());
    assert_eq!(missing, ModelError::permanent("the model's key is not configured"));
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn a_request_without_a_key_goes_to_another_server_only() {
    let server = TestServer::start([TestResponse::stream([finish("stop")])]).await;
    let openai = openai(HttpTimeouts::default());
    all_ok(collect_reply(&openai, request_to(&server)).await);
    assert_eq!(server.requests()[0].headers.get("authorization"), None);
    let own = failure(collect_reply(&openai, request(settings(Provider::Openai))).await);
    assert_eq!(own, ModelError::permanent("the model's key is not configured"));
}

#[test]
fn the_address_keeps_its_query_and_needs_no_slash() {
    for (base, expected) in [
        ("http://127.0.0.1:9/v1", "http://127.0.0.1:9/v1/chat/completions"),
        ("http://127.0.0.1:9/v1/", "http://127.0.0.1:9/v1/chat/completions"),
        ("http://127.0.0.1:9", "http://127.0.0.1:9/chat/completions"),
        ("https://h/d?api-version=1", "https://h/d/chat/completions?api-version=1"),
    ] {
        assert_eq!(endpoint(base, &["chat", "completions"]).unwrap().as_str(), expected);
    }
}
