//! The demo agent: it has every kind of tool and needs no network and no key.

use std::time::Duration;

use abide_actors::agent::{Format, Parsed, from_text, join_errors};
use abide_actors::definition::Definition;
use abide_actors::tools::native::{Context, NativeTool};
use abide_actors::tools::{Extensions, ToolReturn};
use async_trait::async_trait;
use serde_json::{Value, json};

/// The definition, as a person would write it.
const AGENT: &str = include_str!("demo.yaml");
/// `look_up` reports its progress in this many steps, each of this duration.
const PROGRESS_STEPS: u32 = 10;
const STEP_DURATION: Duration = Duration::from_millis(100);

/// The demo's definition.
pub(crate) fn agent(extensions: &Extensions) -> Result<Parsed, String> {
    let source = from_text(AGENT, Format::Yaml).map_err(|error| error.to_string())?;
    Definition::parse(source, extensions).map_err(|errors| join_errors(&errors))
}

/// The extensions of a program, with the native tools of the demo added.
pub(crate) fn with_demo_tools(extensions: Extensions) -> Extensions {
    extensions.with_tool("demo_send_email", SendEmail).with_tool("demo_look_up", LookUp)
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

/// Takes a second and reports its progress.
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
        for step in 1..=PROGRESS_STEPS {
            tokio::time::sleep(STEP_DURATION).await;
            context.report(json!({"percent": step * 100 / PROGRESS_STEPS}));
        }
        ToolReturn::ok(
            json!({"query": args["query"], "answer": "it is so", "attempt": context.attempt}),
        )
    }
}
