//! Tests of the runner with native tools that behave well or badly.

#![allow(clippy::unwrap_used)]

use std::sync::Mutex;

use abide_conversation::message::Ui;
use serde_json::json;

use super::*;
use crate::tools::fixtures::{a_run, definition, extensions, runner};
use crate::tools::isolated_task::MAX_PENDING_PROGRESS;
use crate::tools::native::{Context, NativeTool};

async fn run_with(
    extensions: Extensions,
    streaming: bool,
    args: Value,
) -> (ToolReturn, Vec<Value>) {
    let tool = json!({"name": "t", "run": {"native": "obedient"}, "streaming": streaming,
        "run_timeout": "90s"});
    let definition = definition(json!([tool]));
    let runner = runner(extensions);
    let reports = Mutex::new(Vec::new());
    let progress = |payload| reports.lock().unwrap().push(payload);
    let returned = runner.run(&definition.tools[0], Box::new(a_run("t", args)), progress).await;
    (returned, reports.into_inner().unwrap())
}

async fn run_once(args: Value) -> ToolReturn {
    run_with(extensions(), false, args).await.0
}

#[tokio::test]
async fn a_native_tool_gets_its_call_with_defaults_filled_in() {
    let expected = json!({"args": {"do": "echo", "x": 1}, "attempt": 1, "call": "call_1",
        "assigns": {"shop": "x"}, "principal": "ann", "turn": "t1"});
    assert_eq!(run_once(json!({"x": 1})).await, ToolReturn::ok(expected));
}

#[tokio::test]
async fn a_native_tool_returns_result_error_halt_and_something_to_show() {
    assert_eq!(run_once(json!({"do": "fail"})).await, ToolReturn::error("no luck"));
    assert_eq!(run_once(json!({"do": "halt"})).await.halt.as_deref(), Some("enough"));
    let ui = Ui { kind: "chart".to_owned(), payload: json!({"x": 1}) };
    assert_eq!(run_once(json!({"do": "show"})).await.ui, Some(ui));
}

#[tokio::test]
async fn a_panic_is_a_crashed_tool_and_nothing_else() {
    let crashed = ToolReturn::failure("tool crashed", ErrorType::ToolCrashed);
    assert_eq!(run_once(json!({"do": "panic"})).await, crashed);
}

#[tokio::test(start_paused = true)]
async fn a_run_past_its_timeout_ends() {
    let late = ToolReturn::timeout("timed out after 90s");
    assert_eq!(run_once(json!({"do": "hang"})).await, late);
}

#[tokio::test]
async fn progress_is_passed_on_only_when_the_tool_streams() {
    let args = json!({"do": "report"});
    let (_, reports) = run_with(extensions(), true, args.clone()).await;
    assert_eq!(reports, [json!(0), json!(1), json!(2)]);
    assert_eq!(run_with(extensions(), false, args).await.1, Vec::<Value>::new());
    let (_, reports) =
        run_with(extensions(), true, json!({"do": "report", "times": 100_000})).await;
    assert!(reports.len() <= MAX_PENDING_PROGRESS * 2, "{}", reports.len());
}

#[tokio::test]
async fn a_tool_that_is_gone_or_returns_too_much_is_an_error() {
    let (gone, _) = run_with(Extensions::new(), false, json!({})).await;
    assert_eq!(gone, ToolReturn::error("the tool is not configured"));
    let huge = run_once(json!({"do": "huge"})).await;
    assert_eq!(huge, ToolReturn::error("the result is larger than 1 MB"));
}

#[tokio::test]
async fn a_run_that_is_dropped_stops_its_tool() {
    struct Watched(tokio::sync::mpsc::Sender<()>);
    #[async_trait::async_trait]
    impl NativeTool for Watched {
        fn description(&self) -> String {
            String::new()
        }
        fn parameters(&self) -> Value {
            json!({"type": "object"})
        }
        async fn run(&self, _: Value, _: Context<'_>) -> ToolReturn {
            let alive = self.0.clone();
            alive.send(()).await.unwrap();
            std::future::pending::<()>().await;
            drop(alive);
            ToolReturn::ok(())
        }
    }
    let (sender, mut alive) = tokio::sync::mpsc::channel(1);
    let extensions = Extensions::new().with_tool("obedient", Watched(sender));
    let running = tokio::spawn(run_with(extensions, false, json!({})));
    alive.recv().await.unwrap();
    running.abort();
    let gone = tokio::time::timeout(Duration::from_secs(20), alive.recv()).await;
    assert_eq!(gone, Ok(None), "the tool still holds its sender");
}
