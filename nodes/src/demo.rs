//! The demo agent: every kind of tool, no network and no key.

use std::time::Duration;

use abide_actors::agent::{Format, Parsed, from_text, joined};
use abide_actors::definition::Definition;
use abide_actors::tools::native::{Context, NativeTool};
use abide_actors::tools::{Extensions, ToolReturn};
use async_trait::async_trait;
use serde_json::{Value, json};

/// The definition, as a person would write it.
const AGENT: &str = include_str!("demo.yaml");
/// How long `look_up` takes, in so many steps of progress.
const STEP: Duration = Duration::from_millis(100);
const STEPS: u32 = 10;

/// The demo's definition.
pub fn agent(natives: &Extensions) -> Result<Parsed, String> {
    let source = from_text(AGENT, Format::Yaml).map_err(|error| error.to_string())?;
    Definition::parse(source, natives).map_err(|mistakes| joined(&mistakes))
}

/// The native tools of a program, and the demo's.
pub fn natives(own: Extensions) -> Extensions {
    own.with_tool("demo_send_email", SendEmail).with_tool("demo_look_up", LookUp)
}

/// Pretends to send an e-mail.
struct SendEmail;

#[async_trait]
impl NativeTool for SendEmail {
    fn description(&self) -> String {
        "Sends one e-mail (in the demo: it only says so).".to_owned()
    }

    fn parameters(&self) -> Value {
        json!({
            "type": "object",
            "properties": {"to": {"type": "string"}, "subject": {"type": "string"}},
            "required": ["to"],
        })
    }

    async fn run(&self, args: Value, context: Context<'_>) -> ToolReturn {
        ToolReturn::ok(json!({"sent_to": args["to"], "approved_by": context.principal}))
    }
}

/// Takes a second and says how far it has come.
struct LookUp;

#[async_trait]
impl NativeTool for LookUp {
    fn description(&self) -> String {
        "Looks something up; takes a second.".to_owned()
    }

    fn parameters(&self) -> Value {
        json!({
            "type": "object",
            "properties": {"query": {"type": "string"}},
            "required": ["query"],
        })
    }

    async fn run(&self, args: Value, context: Context<'_>) -> ToolReturn {
        for step in 1..=STEPS {
            tokio::time::sleep(STEP).await;
            context.report(json!({"percent": step * 100 / STEPS}));
        }
        ToolReturn::ok(
            json!({"query": args["query"], "answer": "it is so", "attempt": context.attempt}),
        )
    }
}
