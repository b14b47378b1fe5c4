//! Definitions, scopes and a clock for the tests of tools.

#![allow(clippy::unwrap_used)]

pub(crate) mod log;

use std::sync::Arc;

use abide_conversation::{
    AgentName, Attempt, CallId, ConversationId, Principal, Scoped, Tenant, Timestamp, TurnId,
};
use async_trait::async_trait;
use serde_json::{Map, Value, json};

use super::BuiltinServices;
use super::Run;
use super::Runner;
use super::call_scope::CallScope;
use super::gate::Grant;
use super::native::{Context, NativeTool};
use super::{Extensions, ToolReturn};
use crate::agent::{DefinitionError, Parsed};
use crate::assigns::Assigns;
use crate::clock::Clock;
use crate::definition::Definition;
use crate::environment::Env;
use crate::exec::{Launcher, Limits, Sandbox, Shell};
use crate::tools::mcp::Mcp;
use crate::web_fetch::Fetcher;
use crate::workspace::Workspaces;

/// A native tool that does what its arguments say.
pub(crate) struct ScriptedTool;

#[async_trait]
impl NativeTool for ScriptedTool {
    fn description(&self) -> String {
        "Does what it is told.".to_owned()
    }

    fn parameters(&self) -> Value {
        json!({"type": "object", "properties": {"do": {"type": "string", "default": "echo"}}})
    }

    async fn run(&self, args: Value, context: Context<'_>) -> ToolReturn {
        match args["do"].as_str() {
            Some("panic") => unreachable!("the test asked for a panic"),
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

/// A definition with these tools and nothing else of interest.
pub(crate) fn source(tools: Value) -> Value {
    json!({"name": "support", "model": {"provider": "scripted", "script": []}, "tools": tools})
}

/// Services that work on nothing: no test with this runner reaches them.
pub(crate) fn builtin_services() -> BuiltinServices {
    let shell = Shell::new(Launcher::of("/nowhere"), Sandbox::Off, Limits::default());
    BuiltinServices {
        workspaces: Arc::new(Workspaces::new("/nowhere".into(), StillClock::now())),
        shell: Arc::new(shell),
        fetcher: Fetcher::new().unwrap(),
    }
}

/// A runner without secrets, and without any tool but these.
pub(crate) fn runner(extensions: Extensions) -> Runner {
    let env: Env = Arc::new(|_: &str| None);
    let services = builtin_services();
    let mcp = Mcp::new(env.clone(), services.shell.clone(), "/nowhere".into()).unwrap();
    Runner::new(extensions, services, Arc::new(mcp), StillClock::now(), env).unwrap()
}

pub(crate) fn extensions() -> Extensions {
    Extensions::new().with_tool("obedient", ScriptedTool)
}

pub(crate) fn parse(source: Value) -> Result<Parsed, Vec<DefinitionError>> {
    Definition::parse(source, &extensions())
}

pub(crate) fn definition(tools: Value) -> Arc<Definition> {
    Arc::new(parse(source(tools)).unwrap().definition)
}

pub(crate) fn scope() -> CallScope {
    CallScope {
        conversation: ConversationId::new("c1"),
        principal: Principal::new("ann"),
        identity: None,
        owner: None,
        assigns: Arc::new(Assigns::new(
            &Map::new(),
            &Map::from_iter([("shop".to_owned(), json!("x"))]),
            &Map::new(),
        )),
        metadata: Map::new(),
    }
}

pub(crate) fn a_run(tool: &str, args: Value) -> Run {
    Run {
        agent: AgentName::new("support"),
        conversation: Scoped::new(&Tenant::default(), &ConversationId::new("c1")),
        turn: Some(TurnId::new("t1")),
        call: CallId::new("call_1"),
        attempt: Attempt::FIRST,
        grant: Grant::for_test(tool, args),
        assigns: scope().assigns,
        principal: Principal::new("ann"),
        identity: None,
        approvals: Vec::new(),
        input: None,
        callback: None,
        state: Default::default(),
        environment: Default::default(),
    }
}

/// A clock that stands still at the moment when it was made.
pub(crate) struct StillClock(Timestamp);

impl StillClock {
    #[allow(clippy::disallowed_methods)]
    pub(crate) fn now() -> Arc<Self> {
        Arc::new(Self(jiff::Timestamp::now().into()))
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
