//! Hooks around a turn, its stream and its calls, in a whole node.

mod model_step;
mod notifications;
mod pre_tool_use;

use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_actors::hooks::{Hook, HookEvent, HookPayload, HookPoint, Hooks, Reply};
use async_trait::async_trait;
use serde_json::{Value, json};

use crate::test_node::{TestNode, TestTools};

const ID: &str = "x";

/// What the hooks of the tests do, each under its own name.
const PLAYS: [&str; 14] = [
    "note",
    "add",
    "nap",
    "hold",
    "halt",
    "refuse",
    "deny",
    "change",
    "spoil",
    "shout",
    "hang",
    "panic",
    "flood",
    "by_number",
];

/// The hooks of a rig.
pub fn hooks(tools: &TestTools) -> Hooks {
    let play = |hooks: Hooks, name: &'static str| hooks.with(name, Play(name, tools.clone()));
    PLAYS.into_iter().fold(Hooks::new(), play)
}

struct Play(&'static str, TestTools);

#[async_trait]
impl Hook for Play {
    async fn call(&self, event: &HookEvent) -> Reply {
        self.1.hook_events.lock().unwrap().push(json!(event));
        match (self.0, &event.what) {
            ("add", _) => Reply::add(event.hook.as_str()),
            ("nap", _) => {
                tokio::time::sleep(Duration::from_secs(1)).await;
                match event.on {
                    HookPoint::Pre => Reply::add(event.hook.as_str()),
                    _ => Reply::GoOn,
                }
            }
            ("hold", _) => {
                self.1.runs.fetch_add(1, Ordering::SeqCst);
                self.1.release.acquire().await.unwrap().forget();
                Reply::GoOn
            }
            ("halt", _) => Reply::Halt("enough".to_owned()),
            ("refuse", _) => Reply::Refuse("rude".to_owned()),
            ("deny", _) => Reply::Deny("not today".to_owned()),
            ("change", HookPayload::Call { args, .. }) => {
                Reply::Args(json!({"n": args["n"].as_i64().unwrap() + 1}))
            }
            ("spoil", _) => Reply::Args(json!({"n": "none"})),
            ("shout", HookPayload::Stream { text, .. }) => Reply::Show(text.to_uppercase()),
            ("hang", _) => std::future::pending().await,
            ("panic", _) => panic!("as the test wants it"),
            ("flood", _) => Reply::add("x".repeat(17_000)),
            ("by_number", HookPayload::Call { args, .. }) => match args["n"].as_i64() {
                Some(20) => Reply::Deny("not today".to_owned()),
                Some(21) => Reply::Halt("enough".to_owned()),
                Some(22) => Reply::Args(json!({"n": 23})),
                Some(24) => panic!("as the test wants it"),
                Some(25) => Reply::Args(json!([])),
                _ => Reply::GoOn,
            },
            _ => Reply::GoOn,
        }
    }
}

/// A hook of the program.
fn hook(on: &str, name: &str, native: &str) -> Value {
    json!({"on": on, "name": name, "native": native})
}

/// The same, and more.
fn with(mut hook: Value, key: &str, value: impl Into<Value>) -> Value {
    hook[key] = value.into();
    hook
}

/// An agent that says this, step by step, with these hooks, and `echo` and `hold`.
fn agent(script: Value, hooks: Vec<Value>) -> Value {
    json!({
        "name": "a",
        "model": {"provider": "scripted", "script": script},
        "hooks": hooks,
        "tools": [
            {"name": "echo", "run": {"native": "echo"}, "audience": "all",
             "approval": {"when": "args.n > 5"}},
            {"name": "hold", "run": {"native": "hold"}},
        ],
    })
}

/// A script of one call of `echo`.
fn echoes(n: u32) -> Value {
    json!([{"calls": [{"id": "c", "name": "echo", "args": {"n": n}}]}, {"text": "Well."}])
}

fn talks() -> Value {
    json!([{"thinking": "so it is", "text": "well well"}])
}

async fn start_node(script: Value, hooks: Vec<Value>) -> TestNode {
    TestNode::new(&agent(script, hooks).to_string()).await
}

/// What hooks have heard, one field of each.
fn heard(node: &TestNode, field: &str) -> Vec<Value> {
    node.tools.hook_events.lock().unwrap().iter().map(|event| event[field].clone()).collect()
}

/// Waits until hooks have heard so much.
async fn hearing(node: &TestNode, least: usize) {
    let look = async {
        while node.tools.hook_events.lock().unwrap().len() < least {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(7_200), look).await.expect("the hook was not told");
}
