//! Runs one call of a server tool to its end, whatever the tool does.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use abide_conversation::elicitation::PendingInput;
use abide_conversation::event::EffectiveArgs;
use abide_conversation::message::{ErrorType, Outcome};
use abide_conversation::permission::PermissionPhase;
use abide_conversation::{AgentName, CallId, ConversationId, Principal, TurnId};
use serde_json::{Map, Value};

use super::http::Http;
use super::limits::{LARGEST_VALUE, LONGEST_ERROR, cut, encoded_len};
use super::middleware::{Chain, End, Middleware};
use super::native::{Extensions, ToolReturn, attempt};
use super::tool::{Target, Tool};
use super::{BuiltinServices, Gate, Grant};
use crate::clock::Clock;
use crate::mcp::Mcp;
use crate::workspace::WorkspaceRef;

/// What the model reads of a tool that lacks something here; the log says what.
pub(super) const NOT_CONFIGURED: &str = "the tool is not configured";

const ASKS_TOO_MUCH: &str = "the tool asks for more than 1 MB";
/// What becomes of a run that the gate did not let through.
pub(crate) const NOT_GRANTED: &str = "permission denied: the gate gave no leave";

/// One run of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub agent: AgentName,
    pub conversation: ConversationId,
    /// `None` for a user's own call.
    pub turn: Option<TurnId>,
    pub call: CallId,
    pub attempt: u32,
    /// What may run, and with what.
    pub grant: Grant,
    pub assigns: Map<String, Value>,
    pub principal: Principal,
    /// What an earlier attempt asked a person for, and the answer.
    pub input: Option<PendingInput>,
    pub place: ToolEnvironment,
}

/// Where a built-in tool works, and how far it may reach.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolEnvironment {
    pub site: WorkspaceRef,
    /// The storage that the workspace was on when it was used before.
    pub storage: Option<String>,
    /// Hosts, else refused, that may be fetched from.
    pub hosts: Vec<String>,
    /// Whether commands may use the network.
    pub network: bool,
    /// The phase that holds outside of planning.
    pub granted: PermissionPhase,
}

/// The HTTP client of tools, hooks or MCP servers could not be made.
#[derive(Debug, thiserror::Error)]
#[error("the client of tools and hooks cannot be made: {0}")]
pub struct RunnerError(#[source] pub(crate) reqwest::Error);

/// Reads a variable of the environment.
pub type Env = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Runs server tools; one for the whole program, since it keeps the connections.
pub struct Runner {
    natives: Extensions,
    http: Http,
    mcp: Arc<Mcp>,
    kit: BuiltinServices,
}

impl Runner {
    /// A runner that reads secrets from `variables`.
    pub fn new(
        natives: Extensions,
        kit: BuiltinServices,
        mcp: Arc<Mcp>,
        clock: Arc<dyn Clock>,
        variables: Env,
    ) -> Result<Self, RunnerError> {
        let http = Http::new(clock, variables).map_err(RunnerError)?;
        Ok(Self { natives, http, mcp, kit })
    }

    /// Runs the call that the gate granted, with the middleware of its agent and its tool around it;
    /// dropping the future stops it. Takes at most the tool's `run_timeout`.
    ///
    /// `progress` is called while it runs, if the tool is `streaming`.
    pub async fn call(
        self: &Arc<Self>,
        tool: &Tool,
        gate: &Gate,
        run: Run,
        progress: impl Fn(Value) + Send + Sync,
    ) -> ToolReturn {
        let Some(links) = self.around(tool, gate) else { return ToolReturn::error(NOT_CONFIGURED) };
        if links.is_empty() || !is_granted(tool, &run) {
            return self.run(tool, run, progress).await;
        }
        let run = Run { grant: run.grant.filled(&tool.parameters), ..run };
        let chain = Chain::new(links, tool, gate, End::Tool(Arc::clone(self)));
        let (returned, said) = Box::pin(chain.run(run, &progress)).await;
        ToolReturn { ran: said.ran, ..returned }
    }

    /// Asks the middleware around a call that a child conversation is to answer: with what the child
    /// may be asked, and what that has changed; or what the call comes to without it.
    pub(crate) async fn may_ask(
        &self,
        tool: &Tool,
        gate: &Gate,
        run: Run,
    ) -> Result<(Run, Option<EffectiveArgs>), Box<ToolReturn>> {
        let links = self.around(tool, gate);
        let links = links.ok_or_else(|| Box::new(ToolReturn::error(NOT_CONFIGURED)))?;
        if links.is_empty() {
            return Ok((run, None));
        }
        let chain = Chain::new(links, tool, gate, End::Child);
        let (returned, said) = chain.run(run.clone(), &|_| {}).await;
        let goes_on =
            returned.outcome.is_ok() && returned.halt.is_none() && returned.asks.is_none();
        match said.reached.filter(|_| goes_on) {
            Some(grant) => Ok((Run { grant, ..run }, said.ran)),
            None => Err(Box::new(ToolReturn { ran: said.ran, ..returned })),
        }
    }

    /// `None`: a definition of another version of the program names what is not here.
    fn around(&self, tool: &Tool, gate: &Gate) -> Option<Vec<Arc<dyn Middleware>>> {
        let agent = gate.definition();
        let links = self.natives.middlewares().around(&agent.middleware, &tool.middleware);
        if links.is_none() {
            tracing::error!(agent = %agent.name, tool = tool.name, "no such middleware");
        }
        links
    }

    /// Runs the call that the gate granted, and nothing around it.
    pub(crate) async fn run(
        &self,
        tool: &Tool,
        mut run: Run,
        progress: impl Fn(Value) + Send + Sync,
    ) -> ToolReturn {
        if !is_granted(tool, &run) {
            tracing::error!(tool = tool.name, granted = run.grant.tool(), "no leave to run");
            return ToolReturn::failed(NOT_GRANTED, ErrorType::PermissionDenied);
        }
        run.grant = run.grant.filled(&tool.parameters);
        bounded(within(tool.run_timeout, self.execute(tool, run, &progress)).await)
    }

    /// The tool itself, for as long as it takes. Boxed: an MCP server's takes much room, and most
    /// tools are none.
    pub(super) async fn execute(
        &self,
        tool: &Tool,
        run: Run,
        progress: &(impl Fn(Value) + Send + Sync),
    ) -> ToolReturn {
        let report = |payload: Value| {
            if tool.streaming {
                progress(payload);
            }
        };
        match &tool.target {
            Some(Target::Http(endpoint)) => {
                Box::pin(self.http.call(endpoint, &tool.name, &run, &report)).await
            }
            Some(Target::Native(name)) => match self.natives.get(name) {
                Some(native) => {
                    let (native, natives) = (Arc::clone(native), &self.natives);
                    let dependencies = Arc::clone(natives.dependencies());
                    Box::pin(attempt::run(native, dependencies, run, &report)).await
                }
                None => {
                    tracing::error!(tool = tool.name, native = name, "no such native tool");
                    ToolReturn::error(NOT_CONFIGURED)
                }
            },
            Some(Target::Builtin(builtin)) => Box::pin(builtin.run(&run, &self.kit)).await,
            Some(Target::Mcp(pick)) => Box::pin(self.mcp.call(pick, &run, &report)).await,
            // A child conversation has those.
            Some(Target::Agent(_)) | None => {
                ToolReturn::error("the tool does not run on the server")
            }
        }
    }
}

fn is_granted(tool: &Tool, run: &Run) -> bool {
    run.grant.tool() == tool.name
}

/// What the work comes to, if it ends in time.
pub(super) async fn within(
    limit: Duration,
    running: impl Future<Output = ToolReturn>,
) -> ToolReturn {
    match tokio::time::timeout(limit, running).await {
        Ok(returned) => returned,
        Err(_) => {
            ToolReturn::failed(format!("timed out after {}", spoken(limit)), ErrorType::Timeout)
        }
    }
}

/// No result is larger than what may travel between nodes.
pub(super) fn bounded(returned: ToolReturn) -> ToolReturn {
    let ToolReturn { outcome, ui, halt, changes, asks, ran } = returned;
    let large = |value: &Value| encoded_len(value) > LARGEST_VALUE;
    let asks_much = asks.as_ref().is_some_and(|asks| large(&asks.requests) || asks.is_long());
    let (outcome, asks) = match asks_much {
        true => (Outcome::Err(ASKS_TOO_MUCH.to_owned(), ErrorType::ToolError), None),
        false => (outcome, asks),
    };
    let outcome = match outcome {
        Outcome::Ok(result) if large(&result) => {
            Outcome::Err("the result is larger than 1 MB".to_owned(), ErrorType::ToolError)
        }
        Outcome::Ok(result) => Outcome::Ok(result),
        Outcome::Err(message, error_type) => Outcome::Err(cut(&message, LONGEST_ERROR), error_type),
    };
    ToolReturn {
        outcome,
        ui: ui.filter(|ui| !large(&ui.payload)),
        halt: halt.map(|reason| cut(&reason, LONGEST_ERROR)),
        changes,
        asks,
        ran,
    }
}

/// `60s`, `1500ms`.
fn spoken(limit: Duration) -> String {
    match limit.subsec_nanos() {
        0 => format!("{}s", limit.as_secs()),
        _ => format!("{}ms", limit.as_millis()),
    }
}

#[cfg(test)]
mod tests;
