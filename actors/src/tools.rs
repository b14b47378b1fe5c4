//! The tools of a turn: which ones the model is offered, and how a call that it makes is planned.

mod answer_schema;
pub(crate) mod builtin;
mod call;
pub mod call_scope;
pub mod declared_tools;
pub mod extensions;
pub mod gate;
mod http;
mod isolated_task;
pub(crate) mod limiter;
pub mod mcp;
pub mod middleware;
pub mod native;
mod plan;
pub mod returned;
pub mod runner;

use std::sync::Arc;

use abide_conversation::command::PlannedCall;
use abide_conversation::event::Executor;
use serde_json::Value;

use crate::definition::{Approval, Definition, ServerTool, Tool};
use crate::hooks::tool_use::ToolUseVerdict;
use crate::model::{ModelToolCall, ToolSpec};
pub use builtin::BuiltinServices;
pub(crate) use call::NEW_TURN;
pub(crate) use call::idempotency_key;
pub use call::{Run, ToolEnvironment};
pub use call_scope::CallScope;
pub use declared_tools::DeclaredTools;
pub use extensions::Extensions;
pub use gate::{Gate, Grant};
use mcp::Listings;
pub use returned::ToolReturn;
pub use runner::Runner;

/// Calls with at most this many bytes of arguments are planned on the caller's thread.
const MAX_INLINE_ARGS_BYTES: usize = 16 * 1024;

/// The tools of an agent, and those that a client declared for its conversation.
#[derive(Clone, Debug)]
pub struct Toolbox {
    definition: Arc<Definition>,
    /// The agent's tools with those of its MCP servers; `None` if the agent uses no MCP server, so
    /// that the definition's list is complete.
    agent_tools_with_mcp: Option<Arc<[Tool]>>,
    /// The client's tools for the open turn, without those whose name an agent's tool already has.
    turn_tools: Arc<[Tool]>,
    /// Those for the conversation, without those whose name any of the others already has.
    client_tools: Arc<[Tool]>,
}

impl Toolbox {
    /// Joins the agent's tools and the client's; a client's tool never replaces one of the agent's.
    /// Compiles nothing, and copies the client's tools only if one of them has to be left out.
    ///
    /// A tool of an MCP server is absent unless a listing contains it.
    pub fn new(
        definition: Arc<Definition>,
        listings: &Listings,
        client_tools: Arc<[Tool]>,
    ) -> Self {
        Self::with_declared(definition, listings, client_tools.into())
    }

    /// Like [`Self::new`], also with the tools that the client declared for the open turn.
    pub fn with_declared(
        definition: Arc<Definition>,
        listings: &Listings,
        declared: DeclaredTools,
    ) -> Self {
        let DeclaredTools { conversation, turn, .. } = declared;
        let listed = mcp::uses_mcp(&definition).then(|| mcp::tools(&definition, listings).into());
        let agents: &[Tool] = listed.as_deref().unwrap_or(&definition.tools);
        let turn_tools = without(turn, |name| has(agents, name));
        let client_tools =
            without(conversation, |name| has(agents, name) || has(&turn_tools, name));
        Self { definition, agent_tools_with_mcp: listed, turn_tools, client_tools }
    }

    /// Whether all tools are those of the definition: no MCP server and no client adds any.
    pub(crate) fn is_of_definition(&self) -> bool {
        let Self { agent_tools_with_mcp, turn_tools, client_tools, .. } = self;
        agent_tools_with_mcp.is_none() && turn_tools.is_empty() && client_tools.is_empty()
    }

    /// The specifications that the model receives, in the order of declaration.
    pub fn specs(&self, gate: &Gate) -> Vec<ToolSpec> {
        let spec = |tool: &Tool| ToolSpec {
            name: tool.name.clone(),
            description: tool.description.clone(),
            parameters: answer_schema::parameters(tool),
            executor: tool.executor(),
            provider_options: tool.provider_options.clone(),
        };
        // A provider tool runs without asking us, so it is not even offered while it may not run.
        // For the other executors the phase may change with the next call, so only the lists count.
        let offered = |tool: &&Tool| match tool.executor() {
            Executor::Provider => gate.may_run(tool),
            Executor::Server | Executor::Human | Executor::Client => gate.is_listed(tool),
        };
        self.tools().filter(|tool| tool.is_for_model()).filter(offered).map(spec).collect()
    }

    /// Plans one call that the model made; `gate` has already seen the calls before it in the
    /// message.
    pub fn plan(&self, given: &ModelToolCall, scope: &CallScope, gate: &mut Gate) -> PlannedCall {
        plan::plan(self, given, scope, gate)
    }

    /// Whether these calls can be planned without blocking: their arguments are short, quick
    /// to check, and no condition and no computing template applies to them.
    pub(crate) fn is_cheap_to_plan(&self, calls: &[ModelToolCall]) -> bool {
        let bytes = calls.iter().map(ModelToolCall::encoded_bytes).fold(0, usize::saturating_add);
        let quick = |name: &str| self.tool(name).is_none_or(Tool::is_cheap_to_plan);
        bytes <= MAX_INLINE_ARGS_BYTES && calls.iter().all(|call| quick(&call.name))
    }

    /// Plans a call again that the gate let through, with the verdict of the hooks on it.
    pub(crate) fn replan(
        &self,
        planned: PlannedCall,
        verdict: ToolUseVerdict,
        scope: &CallScope,
        gate: &mut Gate,
    ) -> PlannedCall {
        plan::replan(self, planned, verdict, scope, gate)
    }

    /// Whether remembered decisions may exist for any of these tools.
    pub fn uses_remembered_decisions<'a>(&self, mut tools: impl Iterator<Item = &'a str>) -> bool {
        let gated = |tool: &Tool| !matches!(tool.approval, Approval::Auto) && !tool.strict;
        tools.any(|name| self.tool(name).is_some_and(gated))
    }

    /// The tool of that name, whatever its audience.
    pub fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools().find(|tool| tool.name == name)
    }

    /// The server tool that a user's dispatch addresses, by name first and then by alias, whatever
    /// its audience.
    pub fn dispatchable(&self, name: &str) -> Option<(&Tool, &ServerTool)> {
        // Nobody waits for a worker: what a queue has may take days.
        let runs_here = |tool: &&Tool| tool.queue().is_none();
        let tools = self.agent_tools().iter().filter(runs_here);
        let tools = || tools.clone().filter_map(|tool| Some((tool, tool.server()?)));
        let has_alias = |tool: &Tool| tool.aliases.iter().any(|alias| alias == name);
        let by_alias = || tools().find(|(tool, _)| has_alias(tool));
        tools().find(|(tool, _)| tool.name == name).or_else(by_alias)
    }

    /// Checks the answer of a person or a client against the tool's result schema. Any answer is
    /// valid if the tool no longer exists.
    pub async fn check_answer(&self, tool: &str, answer: &Value) -> Result<(), String> {
        match self.tool(tool).and_then(Tool::result_schema) {
            Some(schema) => schema.check_async(answer).await,
            None => Ok(()),
        }
    }

    /// The definition that declares the agent's tools.
    pub fn definition(&self) -> &Arc<Definition> {
        &self.definition
    }

    pub(crate) fn tools(&self) -> impl Iterator<Item = &Tool> {
        let declared = self.client_tools.iter().chain(self.turn_tools.iter());
        self.agent_tools().iter().chain(declared)
    }

    /// Whether the agent has a tool of this name.
    pub fn is_of_agent(&self, name: &str) -> bool {
        has(self.agent_tools(), name)
    }

    /// Whether the client declared the tool for this turn only: it answers when it likes, because
    /// clients that bring their tools with each message keep no stream open.
    pub(crate) fn is_of_turn(&self, name: &str) -> bool {
        has(&self.turn_tools, name)
    }

    fn agent_tools(&self) -> &[Tool] {
        self.agent_tools_with_mcp.as_deref().unwrap_or(&self.definition.tools)
    }
}

fn has(tools: &[Tool], name: &str) -> bool {
    tools.iter().any(|tool| tool.name == name)
}

/// The tools without those whose name is taken; copies them only if there is one.
fn without(tools: Arc<[Tool]>, is_taken: impl Fn(&str) -> bool) -> Arc<[Tool]> {
    if tools.iter().any(|tool| is_taken(&tool.name)) {
        tools.iter().filter(|tool| !is_taken(&tool.name)).cloned().collect()
    } else {
        tools
    }
}

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;
