//! Definitions, scopes and a clock for the tests of tools.

#![allow(clippy::unwrap_used)]

pub(crate) mod log;

use std::sync::Arc;

use abide_conversation::{AgentName, CallId, ConversationId, Principal, Timestamp, TurnId};
use async_trait::async_trait;
use serde_json::{Map, Value, json};

use super::BuiltinServices;
use super::call_scope::CallScope;
use super::gate::Grant;
use super::native::{Context, Extensions, NativeTool, ToolReturn};
use super::runner::{Env, Run, Runner};
use crate::agent::{Definition, DefinitionError, Parsed};
use crate::clock::Clock;
use crate::exec::{Launcher, Limits, Sandbox, Shell};
use crate::mcp::Mcp;
use crate::web_fetch::Fetcher;
use crate::workspace::Workspaces;

/// Does what its arguments say.
pub(crate) struct Obedient;

#[async_trait]
impl NativeTool for Obedient {
    fn description(&self) -> String {
        "Does what it is told.".to_owned()
    }

    fn parameters(&self) -> Value {
        json!({"type": "object", "properties": {"do": {"type": "string", "default": "echo"}}})
    }

    async fn run(&self, args: Value, context: Context<'_>) -> ToolReturn {
        match args["do"].as_str() {
            Some("panic") => unreachable!("it was told to"),
            Some("hang") => std::future::pending().await,
            Some("report") => {
                for n in 0..args["times"].as_u64().unwrap_or(3) {
                    context.report(json!(n));
                }
                ToolReturn::ok("reported")
            }
            Some("huge") => ToolReturn::ok("x".repeat(2_000_000)),
            Some("halt") => ToolReturn::halt("enough"),
            Some("show") => ToolReturn::ok("seen").with_ui("chart", json!({"x": 1})),
            Some("fail") => ToolReturn::error("no luck"),
            _ => ToolReturn::ok(json!({"args": args, "attempt": context.attempt,
                "call": context.call, "assigns": context.assigns,
                "principal": context.principal, "turn": context.turn})),
        }
    }
}

/// What is in a definition whatever its tools are.
pub(crate) fn source(tools: Value) -> Value {
    json!({"name": "support", "model": {"provider": "scripted", "script": []}, "tools": tools})
}

/// Tools that can do nothing here: no test of these reaches them.
pub(crate) fn kit() -> BuiltinServices {
    let shell = Shell::new(Launcher::of("/nowhere"), Sandbox::Off, Limits::default());
    BuiltinServices {
        workspaces: Arc::new(Workspaces::new("/nowhere".into(), StillClock::now())),
        shell: Arc::new(shell),
        fetcher: Fetcher::new().unwrap(),
    }
}

/// A runner without secrets, and without any tool but these.
pub(crate) fn runner(natives: Extensions) -> Runner {
    let variables: Env = Arc::new(|_: &str| None);
    let mcp = Arc::new(Mcp::new(variables.clone()).unwrap());
    Runner::new(natives, kit(), mcp, StillClock::now(), variables).unwrap()
}

pub(crate) fn natives() -> Extensions {
    Extensions::new().with("obedient", Obedient)
}

pub(crate) fn parse(source: Value) -> Result<Parsed, Vec<DefinitionError>> {
    Definition::parse(source, &natives())
}

pub(crate) fn definition(tools: Value) -> Arc<Definition> {
    Arc::new(parse(source(tools)).unwrap().definition)
}

pub(crate) fn scope() -> CallScope {
    CallScope {
        conversation: ConversationId::new("c1"),
        principal: Principal::new("ann"),
        assigns: Map::from_iter([("shop".to_owned(), json!("x"))]),
        metadata: Map::new(),
    }
}

pub(crate) fn a_run(tool: &str, args: Value) -> Run {
    Run {
        agent: AgentName::new("support"),
        conversation: ConversationId::new("c1"),
        turn: Some(TurnId::new("t1")),
        call: CallId::new("call_1"),
        attempt: 1,
        grant: Grant::of(tool, args),
        assigns: scope().assigns,
        principal: Principal::new("ann"),
        input: None,
        place: Default::default(),
    }
}

/// Stands at the moment at which it was made.
pub(crate) struct StillClock(Timestamp);

impl StillClock {
    #[allow(clippy::disallowed_methods)]
    pub(crate) fn now() -> Arc<Self> {
        Arc::new(Self(Timestamp::now()))
    }
}

impl Clock for StillClock {
    fn now(&self) -> Timestamp {
        self.0
    }

    fn id(&self, prefix: &str) -> String {
        format!("{prefix}_1")
    }

    fn chance(&self) -> f64 {
        0.5
    }
}
