//! Tests of what middleware may and may not do to a run.

#![allow(clippy::unwrap_used)]

use std::sync::Mutex;
use std::time::Duration;

use abide_conversation::State;
use abide_conversation::command::StateChange;
use abide_conversation::message::{ErrorType, Outcome};
use abide_conversation::permission::Decision;
use serde_json::{Value, json};

use super::*;
use crate::definition::Definition;
use crate::tools::Extensions;
use crate::tools::fixtures::{ScriptedTool, a_run, runner, source};
use crate::tools::{Gate, Runner};

type Seen = Arc<Mutex<Vec<String>>>;

/// Records when a run enters and leaves, and does something to it.
struct RecordingMiddleware(&'static str, Seen, Action);

enum Action {
    Nothing,
    Change(Value),
    Answer(Box<ToolReturn>),
    Reword,
    Panic,
    PanicAfterwards,
    Sleep(u64),
}

#[async_trait]
impl Middleware for RecordingMiddleware {
    async fn call(&self, run: &Run, next: Next<'_>) -> ToolReturn {
        let Self(name, seen, action) = self;
        seen.lock().unwrap().push(format!("{name}> {}", run.grant.args()));
        let returned = match action {
            Action::Nothing => next.run().await,
            Action::Change(args) => next.run_with(args.clone()).await,
            Action::Answer(answer) => ToolReturn::clone(answer),
            Action::Reword => {
                let mut returned = next.run().await;
                returned.outcome = Outcome::Ok(json!("reworded"));
                returned
            }
            Action::Panic => unreachable!("the test asked for a panic"),
            Action::PanicAfterwards => {
                next.run().await;
                unreachable!("the test asked for a panic")
            }
            Action::Sleep(seconds) => {
                tokio::time::sleep(Duration::from_secs(*seconds)).await;
                next.run().await
            }
        };
        seen.lock().unwrap().push(format!("<{name}"));
        returned
    }
}

fn answers(returned: ToolReturn) -> Action {
    Action::Answer(Box::new(returned))
}

/// A runner with middleware, the definition that names it, and what it saw.
struct Scene {
    runner: Arc<Runner>,
    definition: Arc<Definition>,
    seen: Seen,
}

/// A scene with one middleware, `m`, that takes this action, around the tool of this entry.
fn scene_of(entry: Value, action: Action) -> Scene {
    let seen = Seen::default();
    let middlewares =
        Middlewares::new().with_named("m", RecordingMiddleware("m", seen.clone(), action));
    scene(middlewares, seen, json!(["m"]), entry)
}

fn scene(middlewares: Middlewares, seen: Seen, agent: Value, entry: Value) -> Scene {
    let extensions =
        Extensions::new().with_tool("obedient", ScriptedTool).with_middlewares(middlewares);
    let mut source = source(json!([entry]));
    source["middleware"] = agent;
    let definition = Definition::parse(source, &extensions).unwrap().definition;
    let runner = runner(extensions);
    Scene { runner: Arc::new(runner), definition: Arc::new(definition), seen }
}

fn obedient() -> Value {
    json!({"name": "t", "run": {"native": "obedient"}, "run_timeout": "90s"})
}

impl Scene {
    fn gate(&self) -> Gate {
        Gate::new(self.definition.clone(), &State::default())
    }

    async fn run(&self, args: Value) -> ToolReturn {
        let tool = &self.definition.tools[0];
        self.runner.call(tool, &self.gate(), Box::new(a_run(&tool.name, args)), |_| {}).await
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

#[tokio::test]
async fn middleware_surrounds_a_run_from_the_program_to_the_tool() {
    let seen = Seen::default();
    let noted = |name| RecordingMiddleware(name, seen.clone(), Action::Nothing);
    let middlewares = Middlewares::new()
        .with_named("tool", noted("tool"))
        .with_named("second", noted("second"))
        .with_named("first", noted("first"))
        .with_global(noted("service"))
        .with_global(noted("inner service"));
    let mut entry = obedient();
    entry["middleware"] = json!(["tool"]);
    let scene = scene(middlewares, seen, json!(["first", "second"]), entry);
    assert!(scene.run(json!({})).await.outcome.is_ok());
    let names = ["service", "inner service", "first", "second", "tool"];
    let comes = names.iter().map(|name| format!("{name}> {{\"do\":\"echo\"}}"));
    let goes = names.iter().rev().map(|name| format!("<{name}"));
    assert_eq!(scene.seen(), comes.chain(goes).collect::<Vec<_>>());
}

#[tokio::test]
async fn changed_arguments_are_checked_again_and_get_their_defaults() {
    let scene = scene_of(obedient(), Action::Change(json!({"x": 2})));
    let returned = scene.run(json!({"x": 1})).await;
    let Outcome::Ok(result) = returned.outcome else { panic!("{:?}", returned.outcome) };
    assert_eq!(result["args"], json!({"x": 2, "do": "echo"}));
    let effective = returned.effective_args.unwrap();
    assert_eq!(
        (effective.args, effective.verdict.rule.as_str()),
        (json!({"x": 2}).into(), "middleware")
    );
    assert_eq!(effective.verdict.decision, Decision::Allow);
}

#[tokio::test]
async fn arguments_that_stay_as_they_are_are_no_change() {
    let scene = scene_of(obedient(), Action::Change(json!({"do": "echo", "x": 1})));
    let returned = scene.run(json!({"do": "echo", "x": 1})).await;
    assert!(returned.outcome.is_ok());
    assert_eq!(returned.effective_args, None);
}

#[tokio::test]
async fn inner_middleware_sees_the_change_and_may_change_it_again() {
    let seen = Seen::default();
    let change = |name, x| {
        RecordingMiddleware(name, seen.clone(), Action::Change(json!({"do": "echo", "x": x})))
    };
    let middlewares =
        Middlewares::new().with_named("a", change("a", 2)).with_named("b", change("b", 3));
    let scene = scene(middlewares, seen, json!(["a", "b"]), obedient());
    let returned = scene.run(json!({"do": "echo", "x": 1})).await;
    assert_eq!(scene.seen()[1], r#"b> {"do":"echo","x":2}"#);
    assert_eq!(returned.effective_args.unwrap().args, json!({"do": "echo", "x": 3}));
}

#[tokio::test]
async fn changed_arguments_that_break_the_schema_reach_nobody() {
    let inner = Seen::default();
    let outer = RecordingMiddleware("m", Seen::default(), Action::Change(json!({"do": 7})));
    let middlewares = Middlewares::new()
        .with_named("m", outer)
        .with_named("n", RecordingMiddleware("n", inner.clone(), Action::Nothing));
    let scene = scene(middlewares, inner, json!(["m", "n"]), obedient());
    let returned = scene.run(json!({})).await;
    let Outcome::Err(why, error_type) = &returned.outcome else { panic!("{returned:?}") };
    assert_eq!(*error_type, ErrorType::ValidationError);
    assert!(why.starts_with("invalid tool arguments: do: "), "{why}");
    assert_eq!((scene.seen(), returned.effective_args), (Vec::new(), None));
}

#[tokio::test]
async fn changed_arguments_that_the_gate_refuses_reach_nobody() {
    let scene = scene_of(obedient(), Action::Change(json!({"do": "panic"})));
    // The conversation began to plan while the call waited for its approval.
    let planning = State { planning_override: Some(true), ..State::default() };
    let gate = Gate::new(scene.definition.clone(), &planning);
    let tool = &scene.definition.tools[0];
    let returned = scene.runner.call(tool, &gate, Box::new(a_run("t", json!({}))), |_| {}).await;
    let denied = "permission denied: t is refused by phase: plan";
    assert_eq!(returned.outcome, Outcome::Err(denied.to_owned(), ErrorType::PermissionDenied));
    assert_eq!(returned.effective_args.unwrap().verdict.decision, Decision::Deny);
}

#[tokio::test]
async fn middleware_answers_in_the_tools_place_refuses_and_rewords() {
    let answer = ToolReturn::ok("cached").with_ui("note", json!(1));
    let scene = scene_of(obedient(), answers(answer.clone()));
    assert_eq!(scene.run(json!({"do": "panic"})).await, answer);
    let scene = scene_of(obedient(), answers(ToolReturn::error("not today")));
    assert_eq!(scene.run(json!({"do": "panic"})).await, ToolReturn::error("not today"));
    let scene = scene_of(obedient(), Action::Reword);
    assert_eq!(scene.run(json!({})).await, ToolReturn::ok("reworded"));
}

#[tokio::test]
async fn a_builtins_changes_stay_with_a_result_that_middleware_changed() {
    let entry = json!({"name": "todo_write", "run": {"builtin": "todo_write"}});
    let scene = scene_of(entry, Action::Reword);
    let todos = json!({"todos": [{"content": "tea", "status": "pending"}]});
    let returned = scene.run(todos).await;
    assert_eq!(returned.outcome, Outcome::Ok(json!("reworded")));
    assert!(
        matches!(returned.state_changes[..], [StateChange::Todos(_)]),
        "{:?}",
        returned.state_changes
    );
}

#[tokio::test]
async fn a_panic_anywhere_in_it_is_a_crashed_tool_and_nothing_else() {
    let crashed = ToolReturn::failure("tool crashed", ErrorType::ToolCrashed);
    for action in [Action::Panic, Action::PanicAfterwards] {
        assert_eq!(scene_of(obedient(), action).run(json!({})).await, crashed);
    }
}

#[tokio::test(start_paused = true)]
async fn the_whole_chain_is_within_the_tools_time() {
    let late = ToolReturn::timeout("timed out after 90s");
    for (seconds, args) in [(100, json!({})), (50, json!({"do": "hang"}))] {
        let began = tokio::time::Instant::now();
        assert_eq!(scene_of(obedient(), Action::Sleep(seconds)).run(args).await, late);
        let took = began.elapsed().as_secs();
        assert_eq!(took, 90);
    }
}

#[tokio::test]
async fn a_run_that_is_dropped_drops_its_middleware() {
    struct Holds(tokio::sync::mpsc::Sender<()>);
    #[async_trait]
    impl Middleware for Holds {
        async fn call(&self, _: &Run, next: Next<'_>) -> ToolReturn {
            let alive = self.0.clone();
            alive.send(()).await.unwrap();
            std::future::pending::<()>().await;
            drop(alive);
            next.run().await
        }
    }
    let (sender, mut alive) = tokio::sync::mpsc::channel(1);
    let middlewares = Middlewares::new().with_global(Holds(sender));
    let scene = scene(middlewares, Seen::default(), json!([]), obedient());
    let running = tokio::spawn(async move { scene.run(json!({})).await });
    alive.recv().await.unwrap();
    running.abort();
    let gone = tokio::time::timeout(Duration::from_secs(20), alive.recv()).await;
    assert_eq!(gone, Ok(None), "the middleware still holds its sender");
}

#[tokio::test]
async fn progress_comes_through_and_results_keep_their_bound() {
    let mut entry = obedient();
    entry["streaming"] = json!(true);
    let scene = scene_of(entry, Action::Nothing);
    let reports = Mutex::new(Vec::new());
    let progress = |payload| reports.lock().unwrap().push(payload);
    let run = a_run("t", json!({"do": "report"}));
    scene.runner.call(&scene.definition.tools[0], &scene.gate(), Box::new(run), progress).await;
    assert_eq!(*reports.lock().unwrap(), [json!(0), json!(1), json!(2)]);
    let huge = answers(ToolReturn::ok("x".repeat(2_000_000)));
    let larger = ToolReturn::error("the result is larger than 1 MB");
    assert_eq!(scene_of(obedient(), huge).run(json!({})).await, larger);
}

#[tokio::test]
async fn a_run_without_a_grant_meets_no_middleware() {
    let scene = scene_of(obedient(), answers(ToolReturn::ok("let in")));
    let run = a_run("other", json!({}));
    let returned =
        scene.runner.call(&scene.definition.tools[0], &scene.gate(), Box::new(run), |_| {}).await;
    let Outcome::Err(_, error_type) = returned.outcome else { panic!("{returned:?}") };
    assert_eq!(error_type, ErrorType::PermissionDenied);
    assert_eq!(scene.seen(), Vec::<String>::new());
}

#[tokio::test]
async fn a_tool_whose_middleware_is_gone_does_not_run() {
    let scene = scene_of(obedient(), Action::Nothing);
    let runner = runner(Extensions::new().with_tool("obedient", ScriptedTool));
    let gone = Scene { runner: Arc::new(runner), ..scene };
    assert_eq!(gone.run(json!({})).await, ToolReturn::error("the tool is not configured"));
}

#[tokio::test]
async fn middleware_surrounds_the_start_of_a_child() {
    let kid = || json!({"name": "kid", "run": {"agent": "kid"}});
    let ask = async |action| {
        let scene = scene_of(kid(), action);
        let run = a_run("kid", json!({"prompt": "tea"}));
        let reply = scene
            .runner
            .run_child_middleware(&scene.definition.tools[0], &scene.gate(), Box::new(run))
            .await;
        reply
            .map(|(run, effective)| (run.grant.into_args(), effective.is_some()))
            .map_err(|it| it.outcome)
    };
    let (tea, milk) = (json!({"prompt": "tea"}), json!({"prompt": "milk"}));
    assert_eq!(ask(Action::Nothing).await, Ok((tea.clone(), false)));
    assert_eq!(ask(Action::Change(milk.clone())).await, Ok((milk, true)));
    assert_eq!(ask(Action::Reword).await, Ok((tea, false)), "there is no answer of the child yet");
    let refusal = ToolReturn::error("not today");
    assert_eq!(ask(answers(refusal.clone())).await, Err(refusal.outcome));
    assert_eq!(ask(answers(ToolReturn::ok(4))).await, Err(Outcome::Ok(json!(4))));
    assert_eq!(ask(answers(ToolReturn::halt("no"))).await, Err(Outcome::Ok(json!("no"))));
    let crashed = ToolReturn::failure("tool crashed", ErrorType::ToolCrashed).outcome;
    assert_eq!(ask(Action::PanicAfterwards).await, Err(crashed));
}
