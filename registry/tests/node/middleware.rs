//! Middleware in a conversation: it wraps every server run, and every repeat after a kill.

use std::sync::{Arc, Mutex};

use abide_actors::request::{DispatchRequest, Reply, Request};
use abide_actors::tools::middleware::{Middleware, Middlewares, Next};
use abide_actors::tools::{Extensions, Run, ToolReturn};
use abide_conversation::Principal;
use abide_conversation::event::{EffectiveArgs, EventData, TurnOutcome};
use abide_conversation::message::{Outcome, text_block};
use abide_registry::store::memory::Memory;
use async_trait::async_trait;
use serde_json::{Value, json};

use crate::sub_agents::{KID, check_all_settled, child};
use crate::test_node::{TestNode, results};

type Log = Arc<Mutex<Vec<String>>>;

/// Records every call under its own name, and replaces the arguments if it has others.
struct Recording(&'static str, Log, Option<Value>);

#[async_trait]
impl Middleware for Recording {
    async fn call(&self, run: &Run, next: Next<'_>) -> ToolReturn {
        let line = format!("{} {} {} {}", self.0, run.call, run.attempt, run.principal);
        self.1.lock().unwrap().push(line);
        match &self.2 {
            Some(args) => next.run_with(args.clone()).await,
            None => next.run().await,
        }
    }
}

/// Refuses every call.
struct RefuseAll;

#[async_trait]
impl Middleware for RefuseAll {
    async fn call(&self, _: &Run, _: Next<'_>) -> ToolReturn {
        ToolReturn::error("closed")
    }
}

async fn start_node(agent: &str) -> (TestNode, Log) {
    let log = Log::default();
    let recording = |name, args| Recording(name, log.clone(), args);
    let middlewares = Middlewares::new()
        .with_global(recording("service", None))
        .with_named("agent", recording("agent", None))
        .with_named("tool", recording("tool", None))
        .with_named("two", recording("two", Some(json!({"n": 2}))))
        .with_named("none", recording("none", Some(json!({"n": "none"}))))
        .with_named("milk", recording("milk", Some(json!({"prompt": "milk"}))))
        .with_named("closed", RefuseAll);
    let extensions = Extensions::new().with_middlewares(middlewares);
    (TestNode::with_extensions(extensions, Arc::new(Memory::default()), agent).await, log)
}

/// An agent that calls its one tool once, with `{n: 1}`.
fn one_call(tool: &str) -> String {
    format!(
        r#"
name: a
model: {{provider: scripted, script: [{{calls: [{{id: c, name: t, args: {{n: 1}}}}]}}, {{text: "Well."}}]}}
middleware: [agent]
tools: [{{name: t, audience: all, run_timeout: 1h, {tool}}}]
"#
    )
}

async fn dispatch_outcome(node: &TestNode) -> Outcome {
    let (tool, input) = ("t".to_owned(), json!({"n": 1}));
    let request =
        DispatchRequest { tool, input, approved: false, principal: Principal::new("eve") };
    match node.deliver("x", Request::Dispatch(request)).await.unwrap() {
        Reply::Dispatched { outcome, .. } => outcome,
        other => panic!("{other:?}"),
    }
}

/// The journalled arguments of the runs whose arguments were replaced, in order.
async fn effective_args(node: &TestNode) -> Vec<EffectiveArgs> {
    let effective_args = |data| match data {
        EventData::ToolResult(result) => result.effective_args,
        EventData::DispatchFinished(done) => done.effective_args,
        EventData::ChildStarted(started) => started.effective_args,
        _ => None,
    };
    node.journal("x").await.into_iter().filter_map(|event| effective_args(event.data)).collect()
}

#[tokio::test(start_paused = true)]
async fn middleware_surrounds_the_models_calls_and_a_users_own_in_the_same_order() {
    let (node, log) = start_node(&one_call("run: {native: echo}, middleware: [tool]")).await;
    node.send("x", "go").await.unwrap();
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    assert!(dispatch_outcome(&node).await.is_ok());
    let log = log.lock().unwrap().clone();
    assert_eq!(log[..3], ["service c 1 ada", "agent c 1 ada", "tool c 1 ada"]);
    let names: Vec<_> = log[3..].iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(names, ["service", "agent", "tool"]);
    assert!(log[3..].iter().all(|line| line.ends_with("1 eve")), "{log:?}");
    assert_eq!(effective_args(&node).await, []);
}

#[tokio::test(start_paused = true)]
async fn changed_arguments_are_on_record_beside_those_of_the_call() {
    let (node, _) = start_node(&one_call("run: {native: echo}, middleware: [two]")).await;
    node.send("x", "go").await.unwrap();
    node.turn_end("x", 1).await;
    let line = json!({"args": {"n": 2, "unit": "m"}, "assigns": {}});
    assert_eq!(dispatch_outcome(&node).await, Outcome::Ok(line.clone()));
    let events = node.journal("x").await;
    assert_eq!(results(&events, "c"), [json!({"ok": true, "result": line})]);
    let call = node.wait_for_event("x", |data| matches!(data, EventData::ToolCall(_))).await;
    let EventData::ToolCall(call) = call.data else { unreachable!() };
    assert_eq!(call.args, json!({"n": 1}));
    for effective_args in effective_args(&node).await {
        assert_eq!(
            (effective_args.args, effective_args.verdict.rule.as_str()),
            (json!({"n": 2}).into(), "middleware")
        );
    }
    assert_eq!(
        effective_args(&node).await.len(),
        2,
        "the call and the dispatch do not both have effective arguments"
    );
    node.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_middleware_refuses_or_breaks_is_an_error_and_the_turn_goes_on() {
    for (middleware, error_type) in [("closed", "TOOL_ERROR"), ("none", "VALIDATION_ERROR")] {
        let tool = format!("run: {{native: hold}}, middleware: [{middleware}]");
        let tool = match middleware {
            "none" => tool.replace("hold", "echo"),
            _ => tool,
        };
        let (node, _) = start_node(&one_call(&tool)).await;
        node.send("x", "go").await.unwrap();
        assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
        assert_eq!(results(&node.journal("x").await, "c")[0]["error_type"], error_type);
        node.check("x").await;
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_kill_the_whole_chain_runs_again_and_nobody_is_asked_twice() {
    let tool = "run: {native: hold}, approval: requires_approval, middleware: [two]";
    let (node, log) = start_node(&one_call(tool)).await;
    node.send("x", "go").await.unwrap();
    node.wait_for_event("x", |data| matches!(data, EventData::Suspension(_))).await;
    assert!(log.lock().unwrap().is_empty(), "a middleware ran before the approval");
    node.approve("x", "c").await.unwrap();
    node.wait_for_holds(1).await;
    node.kill("x").await;
    node.wait_for_holds(2).await;
    node.tools.release.add_permits(1);
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    let result = json!({"ok": true, "result": {"attempt": 2, "principal": "bob"}});
    assert_eq!(results(&node.journal("x").await, "c"), [result]);
    let chain = |attempt| ["service", "agent", "two"].map(|at| format!("{at} c {attempt} bob"));
    assert_eq!(*log.lock().unwrap(), [chain(1), chain(2)].concat());
    assert_eq!(effective_args(&node).await.len(), 1);
    node.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_child_is_asked_what_the_chain_lets_through() {
    let boss = r#"
name: a
model: {provider: scripted, script: [{calls: [{id: c, name: ask, args: {prompt: tea}}]}, {text: "Well."}]}
tools: [{name: ask, run: {agent: kid}, middleware: [MIDDLEWARE]}]
"#;
    let (milky, _) = start_node(&boss.replace("MIDDLEWARE", "milk")).await;
    milky.define(KID).await;
    milky.send("x", "go").await.unwrap();
    milky.turn_end("x", 1).await;
    let line = json!({"ok": true, "result": "kid heard milk"});
    assert_eq!(results(&milky.journal("x").await, "c"), [line]);
    assert_eq!(effective_args(&milky).await[0].args, json!({"prompt": "milk"}));
    let kids = milky.journal(&child(&milky, "x").await).await;
    let EventData::UserMsg(question) = &kids[1].data else { panic!("{:?}", kids[1]) };
    assert_eq!(question.message.content, [text_block("milk")]);
    check_all_settled(&milky).await;

    let (closed, _) = start_node(&boss.replace("MIDDLEWARE", "closed")).await;
    closed.define(KID).await;
    closed.send("x", "go").await.unwrap();
    closed.turn_end("x", 1).await;
    assert_eq!(results(&closed.journal("x").await, "c")[0]["error"], "closed");
    check_all_settled(&closed).await;
}
