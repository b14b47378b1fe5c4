//! HTTP tools against real servers on the loopback interface.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::sync::Mutex;

use abide_conversation::Attempt;
use abide_conversation::message::{ErrorType, Outcome, Ui};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response as Answer;
use axum::routing::post;
use standardwebhooks::Webhook;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::attempt_failure::{Failure, FailureKind};
use crate::definition::Tool;
use crate::environment::Env;
use crate::limits::MAX_VALUE_BYTES;
use crate::tools::Runner;
use crate::tools::fixtures::log::ErrorLog;
use crate::tools::fixtures::{StillClock, a_run, builtin_services, definition, extensions};
use crate::tools::mcp::Mcp;

const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

type Received = Arc<Mutex<Vec<(HeaderMap, Bytes)>>>;
type Answers = Arc<Mutex<VecDeque<Answer>>>;

/// A tool's server that sends these answers in turn and stores the requests.
async fn server(answers: Vec<Answer>) -> (String, Received) {
    let received = Received::default();
    let answers: Answers = Arc::new(Mutex::new(answers.into()));
    let answer = |State((received, answers)): State<(Received, Answers)>,
                  headers: HeaderMap,
                  body: Bytes| async move {
        received.lock().unwrap().push((headers, body));
        answers.lock().unwrap().pop_front().unwrap()
    };
    let app =
        Router::new().route("/tool", post(answer)).with_state((Arc::clone(&received), answers));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/tool", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, received)
}

/// A server that writes these bytes to its first connection, and then leaves it open if it `hangs`,
/// or else closes it.
async fn raw(bytes: Vec<u8>, hangs: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/tool", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        if hangs {
            std::future::pending::<()>().await;
        }
    });
    url
}

fn tool(url: &str, more: &Value) -> Tool {
    let mut http = json!({"url": url, "headers": {"x-team": "support"}});
    for key in ["signing_secret_env", "headers_env"] {
        if let Some(given) = more.get(key) {
            http[key] = given.clone();
        }
    }
    let streaming = more.get("streaming").is_some();
    let tool = json!({"name": "send", "run": {"http": http}, "streaming": streaming,
        "run_timeout": more.get("run_timeout").cloned().unwrap_or(json!("60s")),
        "parameters": {"properties": {"cc": {"default": "none"}}}});
    definition(json!([tool])).tools[0].clone()
}

fn runner() -> Runner {
    let variables: Env = Arc::new(|name: &str| match name {
        "SECRET" => Some(SECRET.to_owned()),
        "GARBLED" => Some("whsec_not base64!".to_owned()),
        _ => None,
    });
    let services = builtin_services();
    let mcp = Mcp::new(variables.clone(), services.shell.clone(), "/nowhere".into()).unwrap();
    Runner::new(extensions(), services, Arc::new(mcp), StillClock::now(), variables).unwrap()
}

async fn call_tool(url: &str, more: Value) -> (ToolReturn, Vec<Value>) {
    let reports = Mutex::new(Vec::new());
    let progress = |payload| reports.lock().unwrap().push(payload);
    let returned = runner()
        .run(&tool(url, &more), Box::new(a_run("send", json!({"to": "a"}))), progress)
        .await;
    (returned, reports.into_inner().unwrap())
}

async fn call_with_answer(answer: Answer) -> ToolReturn {
    let (url, _) = server(vec![answer]).await;
    call_tool(&url, json!({})).await.0
}

fn an_answer(status: u16, kind: Option<&str>, body: impl Into<Body>) -> Answer {
    let answer = Answer::builder().status(status);
    let answer = kind.into_iter().fold(answer, |answer, kind| answer.header(CONTENT_TYPE, kind));
    answer.body(body.into()).unwrap()
}

fn json_answer(body: impl Into<Body>) -> Answer {
    an_answer(200, Some("application/json"), body)
}

#[track_caller]
fn failure(returned: &ToolReturn) -> &str {
    match &returned.outcome {
        Outcome::Err(message, ErrorType::ToolError) => message,
        outcome => unreachable!("{outcome:?}"),
    }
}

#[tokio::test]
async fn a_tool_is_sent_its_call_and_its_answer_is_wrapped() {
    let (url, received) = server(vec![json_answer(r#"{"sent": true}"#)]).await;
    let (returned, _) = call_tool(&url, json!({})).await;
    assert_eq!(returned, ToolReturn::ok(json!({"sent": true})));
    let (headers, body) = received.lock().unwrap().remove(0);
    assert_eq!(headers["idempotency-key"], "c1/call_1");
    assert_eq!(headers["content-type"], "application/json");
    assert_eq!(headers["x-team"], "support");
    assert!(!headers.contains_key("webhook-id"));
    let body: Value = serde_json::from_slice(&body).unwrap();
    let expected = json!({"conversation_id": "c1", "turn_id": "t1", "call_id": "call_1",
        "attempt": 1, "tool": "send", "args": {"to": "a", "cc": "none"},
        "assigns": {"shop": "x"}, "principal": "ann"});
    assert_eq!(body, expected);
}

#[tokio::test]
async fn a_second_attempt_has_the_same_key() {
    let (url, received) = server(vec![json_answer("1"), json_answer("2")]).await;
    let (runner, tool) = (runner(), tool(&url, &json!({})));
    for attempt in [1, 2] {
        let run = Run { attempt: Attempt::new(attempt), turn: None, ..a_run("send", json!({})) };
        assert_eq!(runner.run(&tool, Box::new(run), |_| {}).await, ToolReturn::ok(attempt));
    }
    for (at, (headers, body)) in received.lock().unwrap().iter().enumerate() {
        assert_eq!(headers["idempotency-key"], "c1/call_1");
        let body: Value = serde_json::from_slice(body).unwrap();
        assert_eq!((&body["attempt"], &body["turn_id"]), (&json!(at + 1), &Value::Null));
    }
}

#[tokio::test]
async fn a_signed_call_verifies_and_a_changed_one_does_not() {
    let (url, received) = server(vec![json_answer("1")]).await;
    let (returned, _) = call_tool(&url, json!({"signing_secret_env": "SECRET"})).await;
    assert_eq!(returned, ToolReturn::ok(1));
    let (headers, body) = received.lock().unwrap().remove(0);
    let webhook = Webhook::new(SECRET).unwrap();
    webhook.verify(&body, &headers).unwrap();
    assert!(webhook.verify(&body[1..], &headers).is_err());
    assert_eq!(headers["webhook-id"], "c1/call_1");
}

#[tokio::test]
async fn the_model_is_not_told_which_secret_is_missing_or_unfit_and_nothing_is_sent() {
    let (url, received) = server(vec![]).await;
    for name in ["MISSING", "GARBLED"] {
        let log = ErrorLog::capture();
        let (returned, _) = call_tool(&url, json!({"signing_secret_env": name})).await;
        assert_eq!(failure(&returned), "the tool is not configured", "{name}");
        let named = format!("name=\"send\" variable=\"{name}\"");
        assert!(log.lines().contains(&named), "{}", log.lines());
    }
    assert!(received.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_header_may_have_its_value_from_a_variable() {
    let (url, received) = server(vec![json_answer("1")]).await;
    let secret = json!({"headers_env": {"Authorization": "SECRET"}});
    assert_eq!(call_tool(&url, secret).await.0, ToolReturn::ok(1));
    let (headers, _) = received.lock().unwrap().remove(0);
    assert_eq!(
        (&headers["authorization"], &headers["x-team"]),
        (&SECRET.parse().unwrap(), &"support".parse().unwrap())
    );
    let log = ErrorLog::capture();
    let (returned, _) = call_tool(&url, json!({"headers_env": {"x-a": "MISSING"}})).await;
    assert_eq!(failure(&returned), "the tool is not configured");
    assert!(log.lines().contains("name=\"send\" variable=\"MISSING\""), "{}", log.lines());
    assert!(received.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_envelope_is_taken_as_it_is() {
    let ui = Some(Ui { kind: "chart".to_owned(), payload: json!([1]) });
    let text = r#"{"ok": true, "result": [2], "ui": {"kind": "chart", "payload": [1]}}"#;
    assert_eq!(
        call_with_answer(json_answer(text)).await,
        ToolReturn { ui, ..ToolReturn::ok(vec![2]) }
    );
    let failed = call_with_answer(json_answer(r#"{"ok": false, "error": "no stock"}"#)).await;
    assert_eq!(failed, ToolReturn::error("no stock"));
    let failed = r#"{"ok": false, "error": "no", "error_type": "PERMISSION_DENIED"}"#;
    let denied = ToolReturn::failure("no", ErrorType::PermissionDenied);
    assert_eq!(call_with_answer(json_answer(failed)).await, denied);
    for (text, expected) in [
        (r#"{"ok": true}"#, ToolReturn::ok(Value::Null)),
        (r#"{"ok": false}"#, ToolReturn::error("the tool failed")),
        (r#"{"ok": true, "result": 1, "ui": 7}"#, ToolReturn::ok(1)),
        (r#"{"ok": "yes"}"#, ToolReturn::ok(json!({"ok": "yes"}))),
        (r#"{"ok": false, "error": 1, "error_type": "X"}"#, ToolReturn::error("1")),
        ("\"text\"", ToolReturn::ok("text")),
        (" null ", ToolReturn::ok(Value::Null)),
    ] {
        assert_eq!(call_with_answer(json_answer(text)).await, expected, "{text}");
    }
}

#[tokio::test]
async fn json_is_json_whatever_its_content_type_and_anything_else_is_an_error() {
    for kind in [None, Some("text/plain"), Some("application/problem+json; charset=utf-8")] {
        assert_eq!(call_with_answer(an_answer(201, kind, "[1]")).await, ToolReturn::ok(vec![1]));
    }
    for body in
        [&b"<html>"[..], b" ", b"{\"a\":", b"\"\xff\xfe\"", b"1 2", b"{\"progress\": 1}\n{}"]
    {
        let returned = call_with_answer(json_answer(body.to_vec())).await;
        assert_eq!(failure(&returned), "the tool's answer is not JSON");
    }
}

#[tokio::test]
async fn a_whole_number_that_would_be_rounded_is_an_error_that_names_its_field() {
    for (text, field) in [
        (r#"{"id": 12345678901234567890123}"#, "id"),
        (r#"{"ok": true, "result": {"ids": [1, -9223372036854775809]}}"#, "result.ids.1"),
    ] {
        let returned = call_with_answer(json_answer(text)).await;
        let expected = format!("in the tool's answer {field}: must fit into 64 bits");
        assert_eq!(failure(&returned), expected);
    }
    let bare = call_with_answer(json_answer("12345678901234567890123")).await;
    assert_eq!(failure(&bare), "the tool's answer must fit into 64 bits");
    let lines = "{\"progress\": 1}\n{\"result\": 99999999999999999999}\n";
    let returned = call_with_answer(an_answer(200, Some("application/x-ndjson"), lines)).await;
    assert_eq!(failure(&returned), "in the tool's answer result: must fit into 64 bits");
    let exact = call_with_answer(json_answer("[18446744073709551615, 1e300]")).await;
    assert_eq!(exact, ToolReturn::ok(json!([u64::MAX, 1e300])));
}

#[tokio::test]
async fn an_answer_without_a_body_is_null() {
    for status in [200, 204, 205] {
        let returned = call_with_answer(an_answer(status, Some("application/json"), "")).await;
        assert_eq!(returned, ToolReturn::ok(Value::Null), "{status}");
    }
}

#[tokio::test]
async fn a_tool_that_accepts_a_call_must_have_been_told_where_to_call_back() {
    let returned = call_with_answer(an_answer(202, None, "{\"ok\": true}")).await;
    assert!(failure(&returned).starts_with("the tool answered 202, and was given no callback"));
}

#[tokio::test]
async fn any_other_status_is_an_error_and_a_redirect_is_not_followed() {
    for status in [400, 401, 404, 429, 500, 503] {
        let returned = call_with_answer(an_answer(status, None, "")).await;
        assert_eq!(failure(&returned), format!("the tool answered {status}"));
        let kind = match status {
            429 => Some(FailureKind::TooManyRequests),
            500 | 503 => Some(FailureKind::ServerError),
            _ => None,
        };
        assert_eq!(returned.failure, kind.map(Failure::from), "{status}");
    }
    let (target, reached) = server(vec![json_answer("1")]).await;
    for status in [301, 302, 303, 307, 308] {
        let answer = Answer::builder().status(status).header("location", &target);
        let returned = call_with_answer(answer.body(Body::empty()).unwrap()).await;
        assert_eq!(failure(&returned), format!("the tool answered {status}, a redirect"));
    }
    assert!(reached.lock().unwrap().is_empty());
}

#[tokio::test]
async fn the_model_is_told_what_the_body_of_another_status_says_in_two_kilobytes() {
    let long = "x".repeat(3_000);
    let cut = format!("{}…", "x".repeat(1_997));
    for (body, said) in [
        (r#"{"error": "out of paper", "secret": 1}"#, "out of paper"),
        (r#"{"error": {"code": 7}}"#, r#"{"code":7}"#),
        (r#"{"error": null}"#, r#"{"error": null}"#),
        ("  <h1>Gateway</h1>\n", "<h1>Gateway</h1>"),
        (long.as_str(), cut.as_str()),
    ] {
        let returned = call_with_answer(an_answer(503, None, body.to_owned())).await;
        assert_eq!(failure(&returned), format!("the tool answered 503: {said}"));
    }
    let endless = futures::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b'x'; 65_536]));
    let returned = call_with_answer(an_answer(503, None, Body::from_stream(endless))).await;
    assert_eq!(failure(&returned), format!("the tool answered 503: {cut}"));
}

#[tokio::test]
async fn a_tool_that_is_busy_says_when_to_come_back() {
    let answer = Answer::builder().status(429).header("retry-after", "7");
    let returned = call_with_answer(answer.body(Body::empty()).unwrap()).await;
    let retry_after = Some(std::time::Duration::from_secs(7));
    let kind = FailureKind::TooManyRequests;
    assert_eq!(returned.failure, Some(Failure { kind, retry_after }));
}

#[tokio::test]
async fn a_tool_reads_the_state_and_its_answer_changes_it() {
    let answer = r#"{"ok": true, "result": 1, "state": {"seen": 2, "old": null}}"#;
    let (url, received) = server(vec![json_answer(answer), json_answer("1")]).await;
    let state = json!({"seen": 1}).as_object().unwrap().clone();
    let run = Run { state: Arc::new(state), ..a_run("send", json!({"to": "a"})) };
    let returned = runner().run(&tool(&url, &json!({})), Box::new(run), |_| {}).await;
    let changes = json!({"seen": 2, "old": null}).as_object().unwrap().clone();
    assert_eq!(returned, ToolReturn::ok(1).with_state(changes));
    let without = call_tool(&url, json!({})).await.0;
    assert_eq!(without, ToolReturn::ok(1));
    let bodies = received.lock().unwrap();
    let body = |index: usize| serde_json::from_slice::<Value>(&bodies[index].1).unwrap();
    assert_eq!(body(0)["state"], json!({"seen": 1}));
    assert_eq!(body(1).get("state"), None);
}

#[tokio::test]
async fn a_state_that_is_no_object_is_an_error_that_names_it() {
    let returned = call_with_answer(json_answer(r#"{"ok": true, "state": [1]}"#)).await;
    assert_eq!(failure(&returned), "in the tool's answer state: must be an object");
}

#[tokio::test]
async fn a_body_of_one_megabyte_is_read_and_one_byte_more_is_not() {
    let body = |size: usize| format!("\"{}\"", "x".repeat(size - 2));
    let whole = call_with_answer(json_answer(body(MAX_VALUE_BYTES))).await;
    assert_eq!(whole, ToolReturn::ok("x".repeat(MAX_VALUE_BYTES - 2)));
    let more = call_with_answer(json_answer(body(MAX_VALUE_BYTES + 1))).await;
    assert_eq!(failure(&more), "the tool's answer is larger than 1 MB");
    let endless = futures::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b' '; 65_536]));
    let endless = call_with_answer(json_answer(Body::from_stream(endless))).await;
    assert_eq!(failure(&endless), "the tool's answer is larger than 1 MB");
    let endless = futures::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b'\n'; 65_536]));
    let lines = an_answer(200, Some("application/x-ndjson"), Body::from_stream(endless));
    assert_eq!(failure(&call_with_answer(lines).await), "the tool's answer is larger than 1 MB");
}

#[tokio::test]
async fn a_connection_that_is_refused_or_breaks_is_an_error_without_the_url() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/tool?token=hush", listener.local_addr().unwrap());
    drop(listener);
    let returned = call_tool(&url, json!({})).await.0;
    assert_eq!(failure(&returned), "no connection to the tool");
    assert_eq!(returned.failure, Some(FailureKind::NoConnection.into()));
    for bytes in [
        &b""[..],
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{\"a\"",
        b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ncontent-length: 9\r\n\r\n{\"p",
        b"not HTTP at all\r\n\r\n",
    ] {
        let url = raw(bytes.to_vec(), false).await;
        let returned = call_tool(&url, json!({})).await.0;
        assert_eq!(failure(&returned), "the connection to the tool broke");
        assert_eq!(returned.failure, Some(FailureKind::ConnectionBroke.into()));
    }
}

#[tokio::test]
async fn a_server_that_says_nothing_more_runs_into_the_time_limit() {
    for bytes in [&b""[..], b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{\"a\""] {
        let url = raw(bytes.to_vec(), true).await;
        let (returned, _) = call_tool(&url, json!({"run_timeout": "150ms"})).await;
        let expected = ToolReturn {
            failure: Some(FailureKind::Timeout.into()),
            ..ToolReturn::failure("timed out after 150ms", ErrorType::Timeout)
        };
        assert_eq!(returned, expected);
    }
}

const LINES: &str = "{\"progress\": {\"at\": \"ä\"}}\n\r\n{\"progress\": 2}\r\n{\"result\": [3]}";

#[test]
fn lines_are_the_same_wherever_their_fragments_are_split() {
    for (text, ended) in [(LINES.to_owned(), false), (format!("{LINES}\n"), true)] {
        for at in 0..=text.len() {
            let (head, tail) = text.as_bytes().split_at(at);
            let mut lines = LineReader::default();
            let mut read = Vec::new();
            for fragment in [head, tail] {
                lines.push(fragment).unwrap();
                while let Some(line) = lines.next_line().unwrap() {
                    read.push(line);
                }
            }
            assert_eq!(read.len(), if ended { 3 } else { 2 }, "split at {at}");
            read.extend(lines.rest().unwrap());
            let expected = [
                Line::Progress(json!({"at": "ä"})),
                Line::Progress(json!(2)),
                Line::Last(ToolReturn::ok(vec![3])),
            ];
            assert_eq!(read, expected, "split at {at}");
        }
    }
}

#[tokio::test]
async fn progress_comes_while_the_tool_runs_and_only_if_it_streams() {
    let single = |byte: u8| Ok::<_, std::io::Error>(vec![byte]);
    for (more, expected) in
        [(json!({"streaming": true}), vec![json!({"at": "ä"}), json!(2)]), (json!({}), Vec::new())]
    {
        let body = Body::from_stream(futures::stream::iter(LINES.bytes().map(single)));
        let kind = Some("Application/X-NDJSON; charset=utf-8");
        let (url, _) = server(vec![an_answer(200, kind, body)]).await;
        assert_eq!(call_tool(&url, more).await, (ToolReturn::ok(vec![3]), expected));
    }
}

#[tokio::test]
async fn lines_end_with_a_result_or_an_error_or_the_answer_is_broken() {
    let broken = "a line of the tool's answer is none of progress, result, error, halt";
    for (text, expected) in [
        ("{\"error\": \"no stock\"}\n", "no stock"),
        ("{\"error\": {\"code\": 1}}\n", "{\"code\":1}"),
        ("", "the tool's answer ended without a result"),
        ("{\"progress\": 1}\n", "the tool's answer ended without a result"),
        ("{\"progress\": 1}", "the tool's answer ended without a result"),
        ("garbage\n{\"result\": 1}\n", broken),
        ("[1]\n", broken),
        ("{\"else\": 1}\n", broken),
        ("{\"result\": ", broken),
    ] {
        let answer = an_answer(200, Some("application/x-ndjson"), text);
        assert_eq!(failure(&call_with_answer(answer).await), expected, "{text}");
    }
    let answer = "{\"result\": 1, \"ui\": {\"kind\": \"k\", \"payload\": 2}}\ngarbage";
    let returned = call_with_answer(an_answer(200, Some("application/x-ndjson"), answer)).await;
    assert_eq!(returned, ToolReturn::ok(1).with_ui("k", 2));
}

#[tokio::test]
async fn a_tool_may_end_the_turn_in_both_forms_of_an_answer() {
    let whole = json_answer("{\"ok\": true, \"result\": 1, \"halt\": \"enough\"}");
    let lines = an_answer(200, Some("application/x-ndjson"), "{\"halt\": \"enough\"}\n");
    for (answer, result) in [(whole, json!(1)), (lines, json!(null))] {
        let returned = call_with_answer(answer).await;
        assert_eq!(returned.halt.as_deref(), Some("enough"));
        assert_eq!(returned.outcome, Outcome::Ok(result));
    }
}
