//! Runs one call through the chain of its middleware.

use std::sync::{Arc, Mutex, PoisonError};

use abide_conversation::CallArgs;
use abide_conversation::event::EffectiveArgs;
use abide_conversation::message::{ErrorType, Outcome};
use serde_json::Value;
use tokio::sync::mpsc;

use super::Middleware;
use crate::definition::Tool;
use crate::tools::isolated_task::run_isolated;
use crate::tools::runner::{NOT_ON_SERVER, Runner, enforce_limits, run_within};
use crate::tools::{Gate, Grant, Run, ToolReturn};

/// The middlewares of one run, and what comes after them.
pub(in crate::tools) struct Chain {
    middlewares: Vec<Arc<dyn Middleware>>,
    tool: Tool,
    gate: Gate,
    terminal: Terminal,
    args_record: Mutex<ArgsRecord>,
}

/// What the innermost middleware calls.
pub(in crate::tools) enum Terminal {
    Tool(Arc<Runner>),
    /// A child conversation is started once the chain has returned.
    Child,
}

/// How the chain changed the run's arguments.
#[derive(Default)]
pub(in crate::tools) struct ArgsRecord {
    /// The last change, whether or not the gate allowed it.
    pub(in crate::tools) effective: Option<EffectiveArgs>,
    /// The grant to start the child with.
    pub(in crate::tools) child_grant: Option<Grant>,
}

/// The rest of the chain with the tool at its end. It can be called once.
pub struct Next<'a> {
    chain: &'a Chain,
    position: usize,
    run: &'a Run,
    progress: &'a mpsc::Sender<Value>,
}

impl Chain {
    pub(in crate::tools) fn new(
        middlewares: Vec<Arc<dyn Middleware>>,
        tool: &Tool,
        gate: &Gate,
        terminal: Terminal,
    ) -> Self {
        Self {
            middlewares,
            tool: tool.clone(),
            gate: gate.clone(),
            terminal,
            args_record: Mutex::default(),
        }
    }

    /// Takes a granted run through the whole chain, within the tool's `run_timeout`.
    pub(in crate::tools) async fn run(
        self,
        run: Box<Run>,
        report: &(impl Fn(Value) + Send + Sync),
    ) -> (ToolReturn, ArgsRecord) {
        let Some(limit) = self.tool.server().map(|server| server.run_timeout) else {
            return (ToolReturn::error(NOT_ON_SERVER), ArgsRecord::default());
        };
        let chain = Arc::new(self);
        let shared = Arc::clone(&chain);
        let work = |progress| async move {
            Next { chain: &shared, position: 0, run: &run, progress: &progress }.run().await
        };
        let returned = run_within(limit, run_isolated(report, work)).await;
        (enforce_limits(returned), chain.with_record(std::mem::take))
    }

    fn with_record<T>(&self, update: impl FnOnce(&mut ArgsRecord) -> T) -> T {
        update(&mut self.args_record.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn run_terminal(&self, run: &Run, progress: &mpsc::Sender<Value>) -> ToolReturn {
        match &self.terminal {
            Terminal::Tool(runner) => {
                let report = |payload| {
                    // Progress is lossy.
                    let _ = progress.try_send(payload);
                };
                runner.execute(&self.tool, Box::new(run.clone()), &report).await
            }
            Terminal::Child => {
                self.with_record(|record| record.child_grant = Some(run.grant.clone()));
                ToolReturn::ok(())
            }
        }
    }

    /// Grants the run other arguments, like edited ones: the schema, the lists and the phase apply
    /// to them. Nobody is asked again; if nobody was asked before, the tool's approval must not
    /// require it for these arguments.
    async fn regrant(&self, run: &Run, args: Value) -> Result<Run, Outcome> {
        self.tool.check_args_async(&args).await.map_err(|why| {
            Outcome::Err(format!("invalid tool arguments: {why}"), ErrorType::ValidationError)
        })?;
        let scope = self.gate.scope(run);
        let args = CallArgs::from(args);
        let verdict = self.gate.recheck_changed(&self.tool, &args, &run.grant, &scope);
        let grant = run.grant.for_changed_args(&verdict, &args);
        let grant = grant.ok_or_else(|| verdict.to_error(&self.tool.name));
        self.with_record(|record| record.effective = Some(EffectiveArgs { args, verdict }));
        let grant = match self.terminal {
            Terminal::Tool(_) => grant?.with_defaults(&self.tool.parameters),
            Terminal::Child => grant?,
        };
        Ok(Run { grant, ..run.clone() })
    }
}

impl Next<'_> {
    /// Whether a child conversation answers the call.
    pub fn is_sub_agent_call(&self) -> bool {
        match self.chain.terminal {
            Terminal::Tool(_) => false,
            Terminal::Child => true,
        }
    }

    /// Continues with the run as it is.
    pub async fn run(self) -> ToolReturn {
        let Self { chain, position, run, progress } = self;
        match chain.middlewares.get(position) {
            Some(middleware) => middleware.call(run, Next { position: position + 1, ..self }).await,
            None => chain.run_terminal(run, progress).await,
        }
    }

    /// Continues with other arguments. They are checked against the tool's schema and by the gate;
    /// if either refuses them, nothing further runs, and this returns the refusal.
    pub async fn run_with(self, args: Value) -> ToolReturn {
        if args == *self.run.grant.args() {
            return self.run().await;
        }
        match self.chain.regrant(self.run, args).await {
            Ok(run) => Next { run: &run, ..self }.run().await,
            Err(refused) => ToolReturn::from_outcome(refused),
        }
    }
}
