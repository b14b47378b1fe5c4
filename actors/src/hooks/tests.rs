//! Hooks over HTTP against real servers on the loopback interface, and streams through native ones.

#![allow(clippy::unwrap_used)]

use std::sync::Mutex;
use std::time::Duration;

use abide_conversation::event::Executor;
use abide_conversation::message::{Message, ProviderMessage};
use abide_conversation::{ConversationId, Principal, Step, TurnId};
use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::post;
use futures::StreamExt;
use serde_json::{Value, json};
use standardwebhooks::Webhook;
use tokio::net::TcpListener;

use super::context::TokenReserve;
use super::stream::{Filter, filter};
use super::*;
use crate::definition::Definition;
use crate::model::prompt::generated_message;
use crate::model::tokens::TokenCounter;
use crate::model::{ModelError, ModelToolCall, Provider, ReplyChunk, ReplyEnd};
use crate::tools::Extensions;
use crate::tools::fixtures::{StillClock, scope, source};

const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

type Received = Arc<Mutex<Vec<(HeaderMap, Bytes)>>>;

/// A hook server that always gives this answer, and records the requests.
async fn server(status: u16, answer: &str) -> (String, Received) {
    let received = Received::default();
    let requests = received.clone();
    let answer = answer.to_owned();
    let app = Router::new().route(
        "/hook",
        post(move |headers: HeaderMap, body: Bytes| async move {
            requests.lock().unwrap().push((headers, body));
            let location = [("location", "http://127.0.0.1:9/")];
            (StatusCode::from_u16(status).unwrap(), location, answer).into_response()
        }),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, received)
}

fn caller(hooks: Hooks) -> Arc<HookCaller> {
    let variable = |name: &str| (name == "SECRET").then(|| SECRET.to_owned());
    Arc::new(HookCaller::new(hooks, StillClock::now(), Arc::new(variable)).unwrap())
}

fn context() -> HookContext {
    HookContext {
        conversation_id: ConversationId::new("c1"),
        turn_id: Some(TurnId::new("t1")),
        principal: Some(Principal::new("ann")),
        assigns: scope().assigns.merged.clone(),
    }
}

fn definition(hooks: Value, natives: &Extensions) -> Arc<Definition> {
    let mut source = source(json!([]));
    source["hooks"] = hooks;
    Arc::new(Definition::parse(source, natives).unwrap().definition)
}

fn payload(on: &str) -> HookPayload {
    match on {
        "pre" => HookPayload::Pre { step: Step::FIRST, messages: Arc::default() },
        "post" => {
            HookPayload::Post { step: Step::FIRST, content: Vec::new(), tool_calls: Vec::new() }
        }
        "PreToolUse" => HookPayload::Call {
            call_id: None,
            tool: "send".to_owned(),
            executor: Executor::Server,
            args: json!({"to": "a"}),
        },
        _ => HookPayload::Notification { tool: None, args: None, event: None },
    }
}

/// The parsed reply of a hook at this URL.
async fn ask(on: &str, url: &str) -> Result<HookReply, HookCallError> {
    let http = json!({"url": url, "headers": {"x-team": "a"}, "signing_secret_env": "SECRET"});
    let hook = json!({"on": on, "name": "h", "http": http, "timeout": "2s"});
    let definition = definition(json!([hook]), &Extensions::new());
    caller(Hooks::new()).ask(&definition.hooks[0], &context(), payload(on)).await
}

async fn reply_to(on: &str, status: u16, answer: &str) -> Result<HookReply, HookCallError> {
    ask(on, &server(status, answer).await.0).await
}

#[tokio::test]
async fn a_server_gets_the_signed_event_and_its_answer_is_read() {
    let (url, received) = server(200, r#"{"args": {"to": "b"}}"#).await;
    assert_eq!(ask("PreToolUse", &url).await, Ok(HookReply::Args(json!({"to": "b"}))));
    let (headers, body) = received.lock().unwrap().remove(0);
    Webhook::new(SECRET).unwrap().verify(&body, &headers).unwrap();
    assert_eq!(headers["x-team"], "a");
    assert_eq!(headers["content-type"], "application/json");
    let sent: Value = serde_json::from_slice(&body).unwrap();
    let expected = json!({"hook": "h", "on": "PreToolUse", "conversation_id": "c1", "turn_id": "t1",
        "principal": "ann", "assigns": {"shop": "x"}, "call_id": null, "tool": "send",
        "executor": "server", "args": {"to": "a"}});
    assert_eq!(sent, expected);
}

#[tokio::test]
async fn each_answer_is_read_where_it_fits() {
    for (on, answer, reply) in [
        ("pre", "{}", HookReply::GoOn),
        ("pre", "", HookReply::GoOn),
        ("pre", r#"{"content": "known"}"#, HookReply::add("known")),
        (
            "pre",
            r#"{"content": [{"type": "json", "data": 1}]}"#,
            HookReply::Add(vec![json!({"type": "json", "data": 1})]),
        ),
        ("pre", r#"{"halt": "no"}"#, HookReply::Halt("no".to_owned())),
        ("post", r#"{"refuse": "no"}"#, HookReply::Refuse("no".to_owned())),
        ("PreToolUse", r#"{"deny": "no"}"#, HookReply::Deny("no".to_owned())),
        ("stream", r#"{"text": ""}"#, HookReply::Show(String::new())),
        ("Stop", "thanks", HookReply::GoOn),
    ] {
        assert_eq!(reply_to(on, 200, answer).await, Ok(reply), "{on} {answer}");
    }
    assert_eq!(reply_to("pre", 204, "").await, Ok(HookReply::GoOn));
}

#[tokio::test]
async fn an_invalid_answer_is_a_failure() {
    let failed = || Err(HookCallError("h".to_owned()));
    for (on, status, answer) in [
        ("pre", 302, "{}"),
        ("pre", 404, "{}"),
        ("Stop", 500, "{}"),
        ("pre", 200, "yes"),
        ("pre", 200, "[]"),
        ("pre", 200, r#"{"colour": "red"}"#),
        ("pre", 200, r#"{"halt": "no", "content": "known"}"#),
        ("pre", 200, r#"{"halt": 1}"#),
        ("pre", 200, r#"{"deny": "no"}"#),
        ("pre", 200, r#"{"content": ""}"#),
        ("pre", 200, r#"{"content": [1]}"#),
        ("post", 200, r#"{"content": "known"}"#),
        ("PreToolUse", 200, r#"{"text": "x"}"#),
    ] {
        assert_eq!(reply_to(on, status, answer).await, failed(), "{on} {answer}");
    }
    let large = format!(r#"{{"content": "{}"}}"#, "x".repeat(1 << 20));
    assert_eq!(reply_to("pre", 200, &large).await, failed());
    assert_eq!(ask("pre", "http://127.0.0.1:1/").await, failed());
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    assert_eq!(ask("pre", &url).await, failed(), "no answer within its time");
}

/// Takes a second, and replies at the end with all text that it received.
struct Slow(Arc<Mutex<Vec<(String, bool)>>>);

#[async_trait]
impl Hook for Slow {
    async fn call(&self, event: &HookEvent) -> HookReply {
        let HookPayload::Stream { text, r#final, .. } = &event.payload else {
            return HookReply::GoOn;
        };
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut received = self.0.lock().unwrap();
        received.push((text.clone(), *r#final));
        let all: String = received.iter().map(|(text, _)| text.as_str()).collect();
        HookReply::Show(if *r#final { format!("[{all}]") } else { String::new() })
    }
}

/// The stream after one slow hook, and the text that the hook received.
async fn through_slow_hook(
    chunks: Vec<Result<ReplyChunk, ModelError>>,
) -> (Vec<Result<ReplyChunk, ModelError>>, Vec<(String, bool)>) {
    let received = Arc::default();
    let slow = Slow(Arc::clone(&received));
    let natives = Extensions::new().with_hooks(Hooks::new().with("slow", slow));
    let hooks = Filter {
        caller: caller(natives.hooks().clone()),
        definition: definition(json!([{"on": "stream", "native": "slow"}]), &natives),
        context: context(),
        step: Step::FIRST,
        skipped: Vec::new(),
        has_changed: false,
    };
    let passed = filter(futures::stream::iter(chunks).boxed(), hooks).collect().await;
    let received = received.lock().unwrap().clone();
    (passed, received)
}

fn text(text: &str) -> Result<ReplyChunk, ModelError> {
    Ok(ReplyChunk::Text(text.to_owned()))
}

#[tokio::test(start_paused = true)]
async fn what_comes_while_a_hook_is_busy_is_joined_and_its_last_call_flushes() {
    let done = || Ok(ReplyChunk::Done(ReplyEnd::default()));
    let call = ModelToolCall {
        id: "a".into(),
        name: "b".into(),
        args: Ok(json!({})),
        provider_result: None,
    };
    let call = || Ok(ReplyChunk::Call(call.clone()));
    let chunks = vec![text("a"), text("b"), text("c"), call(), text("d"), done()];
    let (passed, received) = through_slow_hook(chunks).await;
    assert_eq!(passed, [call(), text("[abcd]"), done()]);
    let received: Vec<_> = received.iter().map(|(text, last)| (text.as_str(), *last)).collect();
    assert_eq!(received.first().map(|it| it.0), Some("a"));
    assert_eq!(received[1..], [("bcd", false), ("", true)]);
    assert_eq!(
        through_slow_hook(vec![done()]).await,
        (vec![done()], Vec::new()),
        "a message without text calls no hook"
    );
}

#[tokio::test(start_paused = true)]
async fn a_message_that_a_hook_changed_goes_back_in_no_other_form() {
    let (provider, model) = ("anthropic".to_owned(), "m".to_owned());
    let verbatim = ProviderMessage { provider, model, items: vec![json!({"text": "a"})] };
    let done = ReplyEnd { verbatim: Some(verbatim), ..ReplyEnd::default() };
    let (passed, _) = through_slow_hook(vec![text("a"), Ok(ReplyChunk::Done(done.clone()))]).await;
    assert_eq!(passed, [text("[a]"), Ok(ReplyChunk::Done(ReplyEnd::default()))]);
    let (passed, _) = through_slow_hook(vec![Ok(ReplyChunk::Done(done.clone()))]).await;
    assert_eq!(passed, [Ok(ReplyChunk::Done(done))]);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_fails_or_never_stops_ends_the_stream_at_once() {
    let failure = ModelError::permanent("no model");
    let (passed, _) = through_slow_hook(vec![text("a"), Err(failure.clone()), text("b")]).await;
    assert_eq!(passed, [Err(failure)]);
    let (passed, _) = through_slow_hook(vec![text("a")]).await;
    assert_eq!(passed.len(), 1, "the end of the stream is not the end of a message: {passed:?}");
    let (passed, _) = through_slow_hook(vec![text(&"x".repeat(3 << 20)); 9]).await;
    assert_eq!(passed, [Err(ModelError::permanent("the model's message is too long"))]);
}

#[test]
fn a_hook_reads_the_newest_messages_within_a_megabyte_and_the_last_in_any_case() {
    let message = |size: usize| -> Message {
        generated_message("m".to_owned(), vec![json!({"type": "text", "text": "x".repeat(size)})])
    };
    assert_eq!(newest_messages(&[]).len(), 0);
    assert_eq!(newest_messages(&[message(9), message(9)]).len(), 2);
    assert_eq!(
        newest_messages(&[message(9), message(600_000), message(400_000), message(9)]).len(),
        4
    );
    assert_eq!(newest_messages(&[message(9), message(700_000), message(400_000)]).len(), 1);
    assert_eq!(newest_messages(&[message(9), message(2_000_000)]).len(), 1);
}

#[test]
fn a_reserve_is_counted_as_the_models_messages_are() {
    let mut reserve = TokenReserve::new(4, TokenCounter::estimating(Provider::Scripted));
    let block = |text: &str| vec![json!({"type": "text", "text": text})];
    assert_eq!(reserve.take("a", &block("one")), Ok(()));
    assert_eq!(reserve.take("b", &block("two three four")), Ok(()));
    let over = "hook c went over the injection reserve of 4 tokens".to_owned();
    assert_eq!(reserve.take("c", &block("five")), Err(over.clone()));
    let mut reserve = TokenReserve::new(4, TokenCounter::estimating(Provider::Scripted));
    assert_eq!(
        reserve.take("c", &[json!({"type": "json", "data": "one two three four five"})]),
        Err(over)
    );
}
