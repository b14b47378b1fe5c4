//! The tools that a turn has, and what becomes of a call that the model makes.

mod big_stack;
pub(crate) mod builtin;
pub mod call_scope;
pub mod condition;
pub mod gate;
mod http;
mod isolated_task;
pub(crate) mod limits;
pub mod middleware;
pub mod native;
mod plan;
pub mod runner;
pub mod schema;
pub mod template;
pub mod tool;

use std::sync::Arc;

use abide_conversation::command::PlannedCall;
use abide_conversation::event::Executor;
use serde_json::Value;

use crate::agent::Definition;
use crate::hooks::tool_use::ToolUseVerdict;
use crate::mcp::{self, Listings};
use crate::model::{ModelToolCall, ToolSpec};
pub use builtin::{Builtin, BuiltinServices};
pub use call_scope::{CallScope, merged};
pub use gate::{Gate, Grant};
pub use native::{Extensions, ToolReturn};
pub use runner::{Run, Runner};
pub use tool::{Approval, LONGEST_NAME, Tool};

/// Arguments of so many bytes are checked where they are.
const SHORT: usize = 16 * 1024;

/// An agent's tools, and those that a client declared for its conversation.
#[derive(Clone, Debug)]
pub struct Toolbox {
    definition: Arc<Definition>,
    /// The agent's, where MCP servers have some of them; else they are the definition's.
    listed: Option<Arc<[Tool]>>,
    /// The client's, without those whose names the agent's tools have.
    own: Arc<[Tool]>,
}

impl Toolbox {
    /// Joins the two; a conversation's own tool never replaces one of the agent's. Compiles nothing,
    /// and copies the client's tools only if one of them has to be left out.
    ///
    /// What no listing has of an MCP server's tools is absent.
    pub fn new(
        definition: Arc<Definition>,
        listings: &Listings,
        client_tools: Arc<[Tool]>,
    ) -> Self {
        let listed = mcp::uses(&definition).then(|| mcp::tools(&definition, listings).into());
        let agents: &[Tool] = listed.as_deref().unwrap_or(&definition.tools);
        let free = |tool: &&Tool| agents.iter().all(|other| other.name != tool.name);
        let own = match client_tools.iter().all(|tool| free(&tool)) {
            true => client_tools,
            false => client_tools.iter().filter(free).cloned().collect(),
        };
        Self { definition, listed, own }
    }

    /// What the model is told, in the order of declaration.
    pub fn specs(&self, gate: &Gate) -> Vec<ToolSpec> {
        let spec = |tool: &Tool| ToolSpec {
            name: tool.name.clone(),
            description: tool.description.clone(),
            parameters: match tool.builtin() {
                Some(builtin) => builtin.parameters(),
                None => tool.parameters.source().clone(),
            },
            executor: tool.executor,
            provider_options: tool.provider_options.clone(),
        };
        // What the provider runs by itself it must not even be offered while it may not run; of the
        // rest the phase may change with the next call.
        let offered = |tool: &&Tool| match tool.executor {
            Executor::Provider => gate.offers(tool),
            Executor::Server | Executor::Human | Executor::Client => gate.lists(tool),
        };
        self.tools().filter(|tool| tool.is_for_model()).filter(offered).map(spec).collect()
    }

    /// What is to become of a call that the model made, after those before it in its message.
    pub fn plan(&self, given: &ModelToolCall, scope: &CallScope, gate: &mut Gate) -> PlannedCall {
        plan::plan(self, given, scope, gate)
    }

    /// Whether planning these calls takes no time: they are short, and neither conditions nor
    /// templates that compute are about them.
    pub(crate) fn plans_quickly(&self, calls: &[ModelToolCall]) -> bool {
        let bytes = calls.iter().map(ModelToolCall::encoded_bytes).fold(0, usize::saturating_add);
        let quick = |name: &str| self.tool(name).is_none_or(Tool::is_planned_quickly);
        bytes <= SHORT && calls.iter().all(|call| quick(&call.name))
    }

    /// The same for a planned call that the gate let through, after what hooks said to it.
    pub(crate) fn replan(
        &self,
        planned: PlannedCall,
        said: ToolUseVerdict,
        scope: &CallScope,
        gate: &mut Gate,
    ) -> PlannedCall {
        plan::replan(self, planned, said, scope, gate)
    }

    /// Whether decisions about calls of these tools may have been remembered.
    pub fn recalls<'a>(&self, mut tools: impl Iterator<Item = &'a str>) -> bool {
        let gated = |tool: &Tool| !matches!(tool.approval, Approval::Auto) && !tool.strict;
        tools.any(|name| self.tool(name).is_some_and(gated))
    }

    /// The tool of that name, whoever may call it.
    pub fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools().find(|tool| tool.name == name)
    }

    /// The server tool that a user's own call means: by name before alias, of any audience.
    pub fn dispatchable(&self, name: &str) -> Option<&Tool> {
        let tools = || self.agents().iter().filter(|tool| tool.target.is_some());
        let by_alias = || tools().find(|tool| tool.aliases.iter().any(|alias| alias == name));
        tools().find(|tool| tool.name == name).or_else(by_alias)
    }

    /// Whether this may be a person's or a page's answer. A tool that is gone takes any.
    pub fn check_answer(&self, tool: &str, answer: &Value) -> Result<(), String> {
        let schema = self.tool(tool).and_then(|tool| tool.result_schema.as_ref());
        schema.map_or(Ok(()), |schema| schema.check(answer))
    }

    /// The definition whose tools these are.
    pub fn definition(&self) -> &Arc<Definition> {
        &self.definition
    }

    pub(crate) fn tools(&self) -> impl Iterator<Item = &Tool> {
        self.agents().iter().chain(self.own.iter())
    }

    fn agents(&self) -> &[Tool] {
        self.listed.as_deref().unwrap_or(&self.definition.tools)
    }
}

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;
