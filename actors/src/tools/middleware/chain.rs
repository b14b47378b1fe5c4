//! One run on its way through its middleware.

use std::sync::{Arc, Mutex, PoisonError};

use abide_conversation::event::EffectiveArgs;
use abide_conversation::message::{ErrorType, Outcome};
use serde_json::Value;
use tokio::sync::mpsc;

use super::Middleware;
use crate::tools::isolated_task::apart;
use crate::tools::native::ToolReturn;
use crate::tools::runner::{Run, Runner, bounded, within};
use crate::tools::{Gate, Grant, Tool};

/// What a run goes through.
pub(in crate::tools) struct Chain {
    links: Vec<Arc<dyn Middleware>>,
    tool: Tool,
    gate: Gate,
    end: End,
    said: Mutex<Said>,
}

/// What stands at the end of the chain.
pub(in crate::tools) enum End {
    Tool(Arc<Runner>),
    /// A child conversation is asked, once the chain is through.
    Child,
}

/// What became of the run's arguments on the way.
#[derive(Default)]
pub(in crate::tools) struct Said {
    /// The last change, whether or not the gate let it through.
    pub(in crate::tools) ran: Option<EffectiveArgs>,
    /// With what the child may be asked.
    pub(in crate::tools) reached: Option<Grant>,
}

/// The rest of the chain, and the tool at its end. It can be gone through once.
pub struct Next<'a> {
    chain: &'a Chain,
    place: usize,
    run: &'a Run,
    progress: &'a mpsc::Sender<Value>,
}

impl Chain {
    pub(in crate::tools) fn new(
        links: Vec<Arc<dyn Middleware>>,
        tool: &Tool,
        gate: &Gate,
        end: End,
    ) -> Self {
        Self { links, tool: tool.clone(), gate: gate.clone(), end, said: Mutex::default() }
    }

    /// Takes a run that the gate granted through all of it, within the tool's `run_timeout`.
    pub(in crate::tools) async fn run(
        self,
        run: Run,
        report: &(impl Fn(Value) + Send + Sync),
    ) -> (ToolReturn, Said) {
        let (limit, chain) = (self.tool.run_timeout, Arc::new(self));
        let whole = Arc::clone(&chain);
        let work = |progress| async move {
            Next { chain: &whole, place: 0, run: &run, progress: &progress }.run().await
        };
        let returned = within(limit, apart(report, work)).await;
        (bounded(returned), chain.note(std::mem::take))
    }

    fn note<T>(&self, note: impl FnOnce(&mut Said) -> T) -> T {
        note(&mut self.said.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn end(&self, run: &Run, progress: &mpsc::Sender<Value>) -> ToolReturn {
        match &self.end {
            End::Tool(runner) => {
                let report = |payload| {
                    // Lossy, as progress is.
                    let _ = progress.try_send(payload);
                };
                runner.execute(&self.tool, run.clone(), &report).await
            }
            End::Child => {
                self.note(|said| said.reached = Some(run.grant.clone()));
                ToolReturn::ok(())
            }
        }
    }

    /// The run with other arguments, as if they had been edited: the schema, the lists and the phase
    /// judge them. No person is asked again; where none was, the tool's approval must not want one.
    fn changed(&self, run: &Run, args: Value) -> Result<Run, Outcome> {
        self.tool.check_args(&args).map_err(|why| {
            Outcome::Err(format!("invalid tool arguments: {why}"), ErrorType::ValidationError)
        })?;
        let scope = self.gate.scope(run);
        let gate = self.gate.judge_changed(&self.tool, &args, &run.grant, &scope);
        let grant = run.grant.changed(&gate, &args);
        let grant = grant.ok_or_else(|| gate.to_error(&self.tool.name));
        self.note(|said| said.ran = Some(EffectiveArgs { args, gate }));
        let grant = match self.end {
            End::Tool(_) => grant?.filled(&self.tool.parameters),
            End::Child => grant?,
        };
        Ok(Run { grant, ..run.clone() })
    }
}

impl Next<'_> {
    /// Whether a child conversation answers the call.
    pub fn asks_a_child(&self) -> bool {
        match self.chain.end {
            End::Tool(_) => false,
            End::Child => true,
        }
    }

    /// Goes on with the run as it is.
    pub async fn run(self) -> ToolReturn {
        let Self { chain, place, run, progress } = self;
        match chain.links.get(place) {
            Some(link) => link.around(run, Next { place: place + 1, ..self }).await,
            None => chain.end(run, progress).await,
        }
    }

    /// Goes on with other arguments. They are held against the tool's schema and judged by the gate
    /// again: if either refuses them, nothing further runs, and the refusal is what this returns.
    pub async fn run_with(self, args: Value) -> ToolReturn {
        if args == *self.run.grant.args() {
            return self.run().await;
        }
        match self.chain.changed(self.run, args) {
            Ok(run) => Next { run: &run, ..self }.run().await,
            Err(refused) => ToolReturn::of(refused),
        }
    }
}
