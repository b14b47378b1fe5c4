//! Runs one call of a server tool to its end, whatever its executor is.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use abide_conversation::event::EffectiveArgs;
use abide_conversation::message::{ErrorType, Outcome};
use futures::FutureExt;
use serde_json::Value;

use super::http::Http;
use super::limiter::Limiter;
use super::middleware::{Chain, Middleware, Terminal};
use super::native::attempt;
use super::{BuiltinServices, Extensions, Gate, Run, ToolReturn};
use crate::clock::Clock;
use crate::definition::{Target, Tool};
use crate::environment::Env;
use crate::limits::{MAX_ERROR_BYTES, MAX_VALUE_BYTES, cut, encoded_len};
use crate::tools::mcp::Mcp;

/// The model's error for a tool that lacks something on this node; the log says what.
pub(super) const NOT_CONFIGURED: &str = "the tool is not configured";

/// The result of a run of a tool that somebody else executes.
pub(super) const NOT_ON_SERVER: &str = "the tool does not run on the server";

const INPUT_REQUEST_TOO_LARGE: &str = "the tool's request for input is larger than 1 MB";
/// The result of a run that the gate did not grant.
pub(crate) const NOT_GRANTED: &str = "permission denied: the gate did not grant this call";

/// The HTTP client of tools, hooks or MCP servers could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot create the HTTP client for tools and hooks: {0}")]
pub struct RunnerError(#[source] pub(crate) reqwest::Error);

/// Runs server tools. There is one for the whole program, since it keeps the connections.
pub struct Runner {
    extensions: Extensions,
    http: Http,
    mcp: Arc<Mcp>,
    services: BuiltinServices,
    limiter: Limiter,
}

impl Runner {
    /// A runner that reads secrets through `env`.
    pub fn new(
        extensions: Extensions,
        services: BuiltinServices,
        mcp: Arc<Mcp>,
        clock: Arc<dyn Clock>,
        env: Env,
    ) -> Result<Self, RunnerError> {
        let http = Http::new(clock, env).map_err(RunnerError)?;
        Ok(Self { extensions, http, mcp, services, limiter: Limiter::default() })
    }

    /// The limits of the tools on this node.
    pub(crate) fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Runs a granted call inside the middleware of its agent and its tool. Dropping the future
    /// stops it. Takes at most the tool's `run_timeout`.
    ///
    /// `progress` is called while it runs, if the tool is `streaming`.
    pub async fn call(
        self: &Arc<Self>,
        tool: &Tool,
        gate: &Gate,
        mut run: Box<Run>,
        progress: impl Fn(Value) + Send + Sync,
    ) -> ToolReturn {
        let Some(middlewares) = self.middleware_for(tool, gate) else {
            return ToolReturn::error(NOT_CONFIGURED);
        };
        if middlewares.is_empty() || !is_granted(tool, &run) {
            return self.run(tool, run, progress).await;
        }
        run.grant = run.grant.with_defaults(&tool.parameters);
        let chain = Chain::new(middlewares, tool, gate, Terminal::Tool(Arc::clone(self)));
        let (returned, record) = Box::pin(chain.run(run, &progress)).await;
        ToolReturn { effective_args: record.effective, ..returned }
    }

    /// Runs the middleware of a call that a child conversation will answer. Returns the run to
    /// start the child with, and the arguments if middleware changed them; or the result, if
    /// middleware answered in the child's place.
    pub(crate) async fn run_child_middleware(
        &self,
        tool: &Tool,
        gate: &Gate,
        mut run: Box<Run>,
    ) -> Result<(Box<Run>, Option<EffectiveArgs>), Box<ToolReturn>> {
        let middlewares = self.middleware_for(tool, gate);
        let middlewares = middlewares.ok_or_else(|| Box::new(ToolReturn::error(NOT_CONFIGURED)))?;
        if middlewares.is_empty() {
            return Ok((run, None));
        }
        let chain = Chain::new(middlewares, tool, gate, Terminal::Child);
        let (returned, record) = Box::pin(chain.run(run.clone(), &|_| {})).await;
        let continues =
            returned.outcome.is_ok() && returned.halt.is_none() && returned.input_request.is_none();
        match record.child_grant.filter(|_| continues) {
            Some(grant) => {
                run.grant = grant;
                Ok((run, record.effective))
            }
            None => Err(Box::new(ToolReturn { effective_args: record.effective, ..returned })),
        }
    }

    /// `None` if a middleware is unknown: the definition came from another version of the program.
    fn middleware_for(&self, tool: &Tool, gate: &Gate) -> Option<Vec<Arc<dyn Middleware>>> {
        let agent = gate.definition();
        let middlewares =
            self.extensions.middlewares().chain_for(&agent.middleware, &tool.middleware);
        if middlewares.is_none() {
            tracing::error!(agent = %agent.name, tool = tool.name, "tool not run: middleware missing");
        }
        middlewares
    }

    /// Runs a granted call without middleware.
    pub(crate) async fn run(
        &self,
        tool: &Tool,
        mut run: Box<Run>,
        progress: impl Fn(Value) + Send + Sync,
    ) -> ToolReturn {
        if !is_granted(tool, &run) {
            tracing::error!(
                tool = tool.name,
                granted = run.grant.tool(),
                "tool run denied: no grant"
            );
            return ToolReturn::failure(NOT_GRANTED, ErrorType::PermissionDenied);
        }
        let Some(server) = tool.server() else { return ToolReturn::error(NOT_ON_SERVER) };
        run.grant = run.grant.with_defaults(&tool.parameters);
        enforce_limits(run_within(server.run_timeout, self.execute(tool, run, &progress)).await)
    }

    /// Runs the tool itself, without a time limit. The futures are boxed: that of an MCP call is
    /// large, and most calls are something else.
    pub(super) async fn execute(
        &self,
        tool: &Tool,
        run: Box<Run>,
        progress: &(impl Fn(Value) + Send + Sync),
    ) -> ToolReturn {
        let Some(server) = tool.server() else { return ToolReturn::error(NOT_ON_SERVER) };
        let report = |payload: Value| {
            if server.streaming {
                progress(payload);
            }
        };
        match &server.target {
            Target::Http(endpoint) => {
                Box::pin(self.http.call(endpoint, &tool.name, &run, &report)).await
            }
            Target::Native(name) => match self.extensions.tool(name) {
                Some(native) => {
                    let (native, extensions) = (Arc::clone(native), &self.extensions);
                    let dependencies = Arc::clone(extensions.dependencies());
                    Box::pin(attempt::run_call(native, dependencies, run, &report)).await
                }
                None => {
                    tracing::error!(
                        tool = tool.name,
                        native = name,
                        "tool not run: native tool missing"
                    );
                    ToolReturn::error(NOT_CONFIGURED)
                }
            },
            Target::Builtin(builtin) => Box::pin(builtin.run(&run, &self.services)).await,
            Target::Mcp(tool_ref) => Box::pin(self.mcp.call(tool_ref, &run, &report)).await,
            // A child conversation or a worker answers these calls.
            Target::Agent(_) | Target::Queue(_) => ToolReturn::error(NOT_ON_SERVER),
        }
    }
}

fn is_granted(tool: &Tool, run: &Run) -> bool {
    run.grant.tool() == tool.name
}

/// Waits for the run, and returns a timeout error if it exceeds the limit, which begins now. It is not
/// an `async` function: the future of one has room for its argument twice.
pub(super) fn run_within(
    limit: Duration,
    run: impl Future<Output = ToolReturn>,
) -> impl Future<Output = ToolReturn> {
    tokio::time::timeout(limit, run).map(move |done| {
        done.unwrap_or_else(|_| {
            ToolReturn::timeout(format!("timed out after {}", format_timeout(limit)))
        })
    })
}

/// Holds a result to what may travel between nodes: a larger one becomes an error.
pub(super) fn enforce_limits(returned: ToolReturn) -> ToolReturn {
    let ToolReturn { outcome, ui, halt, state_changes, input_request, .. } = returned;
    let ToolReturn { awaits_callback, effective_args, failure, .. } = returned;
    let large = |value: &Value| encoded_len(value) > MAX_VALUE_BYTES;
    let request_too_large = input_request
        .as_ref()
        .is_some_and(|input_request| large(&input_request.requests) || input_request.is_long());
    let (outcome, input_request) = if request_too_large {
        (Outcome::Err(INPUT_REQUEST_TOO_LARGE.to_owned(), ErrorType::ToolError), None)
    } else {
        (outcome, input_request)
    };
    let outcome = match outcome {
        Outcome::Ok(result) if large(&result) => {
            Outcome::Err("the result is larger than 1 MB".to_owned(), ErrorType::ToolError)
        }
        Outcome::Ok(result) => Outcome::Ok(result),
        Outcome::Err(message, error_type) => {
            Outcome::Err(cut(&message, MAX_ERROR_BYTES), error_type)
        }
    };
    ToolReturn {
        outcome,
        ui: ui.filter(|ui| !large(&ui.payload)),
        halt: halt.map(|reason| cut(&reason, MAX_ERROR_BYTES)),
        state_changes,
        input_request,
        awaits_callback,
        effective_args,
        failure,
    }
}

/// `60s`, `1500ms`.
fn format_timeout(limit: Duration) -> String {
    match limit.subsec_nanos() {
        0 => format!("{}s", limit.as_secs()),
        _ => format!("{}ms", limit.as_millis()),
    }
}

#[cfg(test)]
mod tests;
