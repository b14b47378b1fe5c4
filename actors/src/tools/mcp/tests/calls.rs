//! Tests of calls of servers' tools.

use std::time::Duration;

use abide_conversation::Attempt;
use abide_conversation::elicitation::InputAnswer;
use abide_conversation::message::{ErrorType, Outcome};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::rig::{Age, HttpServer, Reports, Rig, answered, everything, stdio};
use crate::tools::fixtures::a_run;
use crate::tools::mcp::check_answer;

#[tokio::test]
async fn results_of_every_form_come_back_over_either_transport() {
    let server = HttpServer::start(Age::New);
    for entry in [stdio(Age::New), server.entry()] {
        let rig = Rig::new(entry);
        assert_eq!(rig.text("echo", json!({"text": "hi"})).await, "hi");
        // The defaults of the listed schema are filled in.
        assert_eq!(rig.text("echo", json!({})).await, "nothing");
        assert_eq!(rig.error("fail", json!({})).await, "no luck");
        let n = rig.call("structured", json!({"n": 3})).await;
        assert_eq!(n, Outcome::Ok(json!({"n": 3})));
        let Outcome::Ok(blocks) = rig.call("image", json!({})).await else { unreachable!() };
        assert_eq!(blocks[0], json!({"type": "text", "text": "look"}));
        assert_eq!(blocks[1]["source"]["mimeType"], "image/png");
        let error = rig.error("broken", json!({})).await;
        assert!(!error.contains("secret"), "{error}");
        assert!(rig.error("liar", json!({})).await.contains("violates its output schema"));
        assert_eq!(rig.text("busy", json!({})).await, "after 2 rounds");
    }
}

#[tokio::test]
async fn older_servers_and_those_of_npm_are_called_too() {
    let rig = Rig::new(stdio(Age::Old));
    assert_eq!(rig.call("echo", json!({"text": "hi"})).await, Outcome::Ok(json!("hi")));
    assert!(rig.error("fail", json!({})).await.contains("no luck"));
    let server = HttpServer::start(Age::Old);
    let rig = Rig::new(server.entry());
    assert_eq!(rig.text("echo", json!({"text": "hi"})).await, "hi");
    let rig = Rig::new(everything());
    assert!(rig.text("echo", json!({"message": "hi"})).await.contains("hi"));
}

#[tokio::test]
async fn a_call_carries_its_key_and_its_attempt() {
    let rig = Rig::new(stdio(Age::New));
    let mut run = a_run("docs_meta", json!({}));
    run.attempt = Attempt::new(3);
    let Outcome::Ok(Value::String(meta)) = rig.run(run, |_| {}).await.outcome else {
        unreachable!()
    };
    let meta: Value = serde_json::from_str(&meta).unwrap();
    assert_eq!(meta["abide/idempotency-key"], "c1/call_1");
    assert_eq!(meta["abide/attempt"], 3);
}

#[tokio::test]
async fn progress_is_reported_of_a_streaming_tool_only() {
    for (age, streaming) in [(Age::New, true), (Age::Old, true), (Age::New, false)] {
        let rig = Rig::with_tools(stdio(age), json!([{"mcp": "docs", "streaming": streaming}]));
        let reports = Reports::default();
        let run = a_run("docs_progress", json!({"steps": 3}));
        let returned = rig.run(run, |payload| reports.add(payload)).await;
        assert_eq!(returned.outcome, Outcome::Ok(json!("done")));
        let steps = reports.all().len();
        assert_eq!(steps, if streaming { 3 } else { 0 }, "{age:?}");
    }
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_is_cancelled_at_the_server() {
    let server = HttpServer::start(Age::New);
    for entry in [stdio(Age::New), server.entry()] {
        let rig = Rig::new(entry);
        rig.names().await;
        let slow = rig.call("slow", json!({"seconds": 60, "tag": "mine"}));
        assert!(timeout(Duration::from_millis(500), slow).await.is_err());
        let deadline = Instant::now() + Duration::from_secs(20);
        while rig.json("cancelled", json!({})).await != json!(["mine"]) {
            assert!(Instant::now() < deadline, "the call was not cancelled");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test]
async fn a_call_takes_at_most_its_run_timeout() {
    let rig = Rig::with_tools(stdio(Age::New), json!([{"mcp": "docs", "run_timeout": "300ms"}]));
    rig.names().await;
    let hung = rig.call("hang", json!({})).await;
    assert_eq!(hung, Outcome::Err("timed out after 300ms".to_owned(), ErrorType::Timeout));
}

#[tokio::test]
async fn arguments_are_checked_by_the_listed_schema() {
    let rig = Rig::new(stdio(Age::New));
    let toolbox = rig.toolbox().await;
    let strict = toolbox.tool("docs_strict").unwrap();
    assert!(strict.check_args(&json!({"n": 1})).is_ok());
    assert!(strict.check_args(&json!({"n": "one"})).unwrap_err().contains("n: "));
    assert!(strict.check_args(&json!({})).is_err());
}

#[tokio::test]
async fn a_question_waits_and_another_process_goes_on_with_its_answer() {
    let args = json!({"to": "ann"});
    let first = Rig::new(stdio(Age::New));
    let asks = first.asks("ask", args.clone(), None).await;
    assert_eq!(asks.message, "Send to ann?");
    assert!(check_answer(&asks.requests, &json!({"ok": "yes"})).await.is_err());
    assert_eq!(check_answer(&asks.requests, &json!({"ok": true})).await, Ok(()));
    drop(first);
    let second = Rig::new(stdio(Age::New));
    for (answer, action) in [
        (
            InputAnswer::Result(json!({"ok": true})),
            json!({"action": "accept", "content": {"ok": true}}),
        ),
        (InputAnswer::Error("no".to_owned()), json!({"action": "decline"})),
    ] {
        let input = answered(asks.clone(), answer);
        let Outcome::Ok(Value::String(said)) =
            second.resume("ask", args.clone(), input).await.outcome
        else {
            unreachable!()
        };
        let said: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(said["answer"], action);
        assert_eq!((&said["state"]["to"], &said["other"]), (&json!("ann"), &json!(true)));
    }
}

#[tokio::test]
async fn a_call_may_ask_again_and_several_things_at_once() {
    let rig = Rig::new(stdio(Age::New));
    let first = rig.asks("ask_twice", json!({}), None).await;
    let answer = InputAnswer::Result(json!({"a": "x"}));
    let second = rig.asks("ask_twice", json!({}), answered(first, answer)).await;
    assert_eq!(second.message, "Second?\nThird?");
    let answer = json!({"second": {"b": "y"}, "third": {"c": "z"}});
    assert_eq!(check_answer(&second.requests, &answer).await, Ok(()));
    let input = answered(second, InputAnswer::Result(answer));
    let last = rig.resume("ask_twice", json!({}), input).await.outcome;
    assert_eq!(last, Outcome::Ok(json!(r#"[["x"], [{"b": "y"}, {"c": "z"}]]"#)));
}

#[tokio::test]
async fn what_is_not_for_a_person_to_give_is_an_error() {
    let rig = Rig::new(stdio(Age::New));
    assert!(rig.error("sample", json!({})).await.contains("not supported"));
}
