//! The native tools of a node under test.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_actors::tools::ToolReturn;
use abide_actors::tools::native::{Context, NativeTool};
use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// Controls the node's native tools, and records what they did.
#[derive(Clone)]
pub struct TestTools {
    /// How many runs of `hold` were started.
    pub runs: Arc<AtomicU32>,
    /// A permit lets one `hold` return.
    pub release: Arc<Semaphore>,
    /// Every started run of `hold` and `nap`: conversation, call, attempt.
    pub started: Arc<Mutex<Vec<(String, String, u32)>>>,
    /// Every event that hooks received, as JSON.
    pub hook_events: Arc<Mutex<Vec<Value>>>,
}

impl TestTools {
    fn record_start(&self, context: &Context<'_>) {
        let conversation = context.conversation.to_string();
        self.started.lock().unwrap().push((
            conversation,
            context.call.to_string(),
            context.attempt.get(),
        ));
    }
}

impl Default for TestTools {
    fn default() -> Self {
        Self {
            runs: Arc::default(),
            release: Arc::new(Semaphore::new(0)),
            started: Arc::default(),
            hook_events: Arc::default(),
        }
    }
}

pub struct Hold(pub TestTools);
pub struct Nap(pub TestTools);
pub struct Boom;
pub struct Halt;
pub struct Echo;

#[async_trait]
impl NativeTool for Hold {
    fn description(&self) -> String {
        "Holds until it is released.".to_owned()
    }

    fn parameters(&self) -> Value {
        json!({"type": "object"})
    }

    async fn run(&self, _args: Value, context: Context<'_>) -> ToolReturn {
        self.0.record_start(&context);
        self.0.runs.fetch_add(1, Ordering::SeqCst);
        self.0.release.acquire().await.unwrap().forget();
        ToolReturn::ok(json!({"attempt": context.attempt, "principal": context.principal}))
    }
}

#[async_trait]
impl NativeTool for Nap {
    fn description(&self) -> String {
        "Takes its time.".to_owned()
    }

    fn parameters(&self) -> Value {
        json!({"type": "object", "properties": {"ms": {"type": "integer"}}, "required": ["ms"]})
    }

    async fn run(&self, args: Value, context: Context<'_>) -> ToolReturn {
        self.0.record_start(&context);
        let ms = args["ms"].as_u64().unwrap_or_default();
        tokio::time::sleep(Duration::from_millis(ms)).await;
        ToolReturn::ok(json!({"attempt": context.attempt}))
    }
}

#[async_trait]
impl NativeTool for Boom {
    fn description(&self) -> String {
        "Panics.".to_owned()
    }

    fn parameters(&self) -> Value {
        json!({"type": "object"})
    }

    async fn run(&self, _args: Value, _context: Context<'_>) -> ToolReturn {
        panic!("secret");
    }
}

#[async_trait]
impl NativeTool for Halt {
    fn description(&self) -> String {
        "Halts the turn.".to_owned()
    }

    fn parameters(&self) -> Value {
        json!({"type": "object"})
    }

    async fn run(&self, _args: Value, _context: Context<'_>) -> ToolReturn {
        ToolReturn::halt("enough")
    }
}

#[async_trait]
impl NativeTool for Echo {
    fn description(&self) -> String {
        "Returns its arguments.".to_owned()
    }

    fn parameters(&self) -> Value {
        json!({
            "type": "object",
            "properties": {"n": {"type": "integer"}, "unit": {"type": "string", "default": "m"}},
            "required": ["n"],
        })
    }

    async fn run(&self, args: Value, context: Context<'_>) -> ToolReturn {
        ToolReturn::ok(json!({"args": args, "assigns": context.assigns}))
    }
}
