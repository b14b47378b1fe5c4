//! Hooks around a turn, its stream and its calls, in a whole node.

mod model_step;
mod notifications;
mod pre_tool_use;

use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_actors::definition::HookPoint;
use abide_actors::hooks::{Hook, HookEvent, HookPayload, HookReply, Hooks};
use async_trait::async_trait;
use serde_json::{Value, json};

use crate::test_node::{TestNode, TestTools};

const ID: &str = "x";

/// The test hooks; each does what its name says.
const TEST_HOOKS: [&str; 14] = [
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

/// The native hooks of a test node.
pub fn hooks(tools: &TestTools) -> Hooks {
    let add = |hooks: Hooks, name: &'static str| hooks.with(name, TestHook(name, tools.clone()));
    TEST_HOOKS.into_iter().fold(Hooks::new(), add)
}

struct TestHook(&'static str, TestTools);

#[async_trait]
impl Hook for TestHook {
    async fn call(&self, event: &HookEvent) -> HookReply {
        self.1.hook_events.lock().unwrap().push(json!(event));
        match (self.0, &event.payload) {
            ("add", _) => HookReply::add(event.hook.as_str()),
            ("nap", _) => {
                tokio::time::sleep(Duration::from_secs(1)).await;
                match event.on {
                    HookPoint::Pre => HookReply::add(event.hook.as_str()),
                    _ => HookReply::GoOn,
                }
            }
            ("hold", _) => {
                self.1.runs.fetch_add(1, Ordering::SeqCst);
                self.1.release.acquire().await.unwrap().forget();
                HookReply::GoOn
            }
            ("halt", _) => HookReply::Halt("enough".to_owned()),
            ("refuse", _) => HookReply::Refuse("rude".to_owned()),
            ("deny", _) => HookReply::Deny("not today".to_owned()),
            ("change", HookPayload::Call { args, .. }) => {
                HookReply::Args(json!({"n": args["n"].as_i64().unwrap() + 1}))
            }
            ("spoil", _) => HookReply::Args(json!({"n": "none"})),
            ("shout", HookPayload::Stream { text, .. }) => HookReply::Show(text.to_uppercase()),
            ("hang", _) => std::future::pending().await,
            ("panic", _) => panic!("the test asked for this panic"),
            ("flood", _) => HookReply::add("x".repeat(17_000)),
            ("by_number", HookPayload::Call { args, .. }) => match args["n"].as_i64() {
                Some(20) => HookReply::Deny("not today".to_owned()),
                Some(21) => HookReply::Halt("enough".to_owned()),
                Some(22) => HookReply::Args(json!({"n": 23})),
                Some(24) => panic!("the test asked for this panic"),
                Some(25) => HookReply::Args(json!([])),
                _ => HookReply::GoOn,
            },
            _ => HookReply::GoOn,
        }
    }
}

/// A definition entry for a native hook.
fn hook(on: &str, name: &str, native: &str) -> Value {
    json!({"on": on, "name": name, "native": native})
}

/// Adds a key to the entry of a hook.
fn with(mut hook: Value, key: &str, value: impl Into<Value>) -> Value {
    hook[key] = value.into();
    hook
}

/// An agent with this script, these hooks, and the tools `echo` and `hold`.
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

/// A script with one call of `echo`.
fn echoes(n: u32) -> Value {
    json!([{"calls": [{"id": "c", "name": "echo", "args": {"n": n}}]}, {"text": "Well."}])
}

fn talks() -> Value {
    json!([{"thinking": "so it is", "text": "well well"}])
}

async fn start_node(script: Value, hooks: Vec<Value>) -> TestNode {
    TestNode::new(&agent(script, hooks).to_string()).await
}

/// One field of every event that hooks received.
fn hook_fields(node: &TestNode, field: &str) -> Vec<Value> {
    node.tools.hook_events.lock().unwrap().iter().map(|event| event[field].clone()).collect()
}

/// Waits until hooks have received at least this many events.
async fn wait_for_hook_events(node: &TestNode, least: usize) {
    let received = async {
        while node.tools.hook_events.lock().unwrap().len() < least {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(7_200), received)
        .await
        .expect("the hooks received too few events");
}
