//! Who makes a request of the server, and which tools they have.

use abide_conversation::{AgentName, Scoped};
use abide_registry::store::StoredAgent;
use rmcp::ErrorData;
use rmcp::model::Tool;
use serde_json::Value;

use crate::access::Allowed;
use crate::access::permission::{CallTools, ListPending, Read, ReadAgents, Send};
use crate::http::Api;
use crate::http::extract::Idempotency;
use crate::problem::Problem;
use crate::protocols::mcp::tools;

/// Who calls, and what they reach.
pub(super) struct Caller {
    pub(super) api: Api,
    pub(super) allowed: Allowed<CallTools>,
    pub(super) tools: Tools,
    pub(super) idempotency: Idempotency,
}

/// The agents that are tools.
#[derive(Debug)]
pub(super) enum Tools {
    All,
    Of(AgentName),
}

/// Why a call has no result.
pub(super) enum CallError {
    /// The request is wrong as one of the protocol.
    Protocol(ErrorData),
    /// What the model is told, so that it may do better.
    Tool(Problem),
}

impl From<Problem> for CallError {
    fn from(problem: Problem) -> Self {
        Self::Tool(problem)
    }
}

impl CallError {
    /// A parameter of the request with a wrong value.
    pub(super) fn parameter(name: &str, why: impl std::fmt::Display) -> Self {
        Self::Protocol(ErrorData::invalid_params(format!("{name}: {why}"), None))
    }

    fn unknown_tool(name: &str) -> Self {
        let name: String = name.chars().take(100).collect();
        Self::parameter("name", format!("there is no tool {name:?}"))
    }
}

impl Caller {
    /// The tools that the caller may use.
    pub(super) async fn list(&self) -> Result<Vec<Tool>, Problem> {
        let mut tools = Vec::new();
        if self.allowed.with::<Send>().is_ok() {
            let agents = self.agents().await?;
            let agents = agents.iter().filter(|agent| !tools::is_taken(agent.name.as_str()));
            tools.extend(agents.map(tool));
        }
        if self.allowed.with::<ListPending>().is_ok() {
            tools.push(tools::pending());
        }
        if self.allowed.with::<Read>().is_ok() {
            tools.push(tools::conversation());
        }
        Ok(tools)
    }

    /// The agents that are tools, as far as the caller may know of them.
    async fn agents(&self) -> Result<Vec<StoredAgent>, Problem> {
        match (&self.tools, self.allowed.with::<ReadAgents>()) {
            (Tools::Of(agent), _) => {
                let name: Scoped<AgentName> = self.allowed.scoped(agent);
                Ok(self.api.store.agent(&name).await?.into_iter().collect())
            }
            (Tools::All, Ok(reader)) => Ok(self.api.store.agents(&reader.tenant()).await?),
            // A token names its agent in the URL.
            (Tools::All, Err(_)) => Ok(Vec::new()),
        }
    }

    /// The agent behind a tool.
    pub(super) async fn agent(&self, tool: &str) -> Result<AgentName, CallError> {
        let unknown = || CallError::unknown_tool(tool);
        let name = AgentName::parse(tool).ok_or_else(unknown)?;
        match &self.tools {
            Tools::Of(only) if *only != name => return Err(unknown()),
            Tools::Of(_) | Tools::All => {}
        }
        let stored = self.api.store.agent(&self.allowed.scoped(&name)).await;
        stored.map_err(Problem::from)?.ok_or_else(unknown)?;
        Ok(name)
    }
}

fn tool(agent: &StoredAgent) -> Tool {
    let description = agent.definition.get("description").and_then(Value::as_str);
    tools::agent(agent.name.as_str(), description.unwrap_or_default())
}
