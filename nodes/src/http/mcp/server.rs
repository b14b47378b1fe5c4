//! What the protocol's library asks of the server.

use std::sync::Arc;

use abide_conversation::{AgentName, Scoped};
use abide_registry::store::StoredAgent;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::Value;

use super::{agent_call, reading};
use crate::access::Allowed;
use crate::access::permission::{CallTools, ListPending, Read, ReadAgents, Send};
use crate::http::Api;
use crate::http::extract::Idempotency;
use crate::problem::Problem;
use crate::protocols::mcp::tools;

const INSTRUCTIONS: &str = "Each agent is a tool that takes a message and returns the agent's \
    answer. Conversations are durable: go on with one by its conversation_id. Where an agent waits \
    for a person, the result says so; calling the tool again with the conversation_id and an empty \
    message goes on.";

/// The server of one request, for its caller.
#[derive(Clone)]
pub(super) struct McpServer(Arc<Caller>);

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

impl McpServer {
    pub(super) fn new(
        api: Api,
        allowed: Allowed<CallTools>,
        tools: Tools,
        idempotency: Idempotency,
    ) -> Self {
        Self(Arc::new(Caller { api, allowed, tools, idempotency }))
    }
}

impl Caller {
    /// The tools that the caller may use.
    async fn list(&self) -> Result<Vec<Tool>, Problem> {
        let mut listed = Vec::new();
        if self.allowed.with::<Send>().is_ok() {
            let agents = self.agents().await?;
            let agents = agents.iter().filter(|agent| !tools::is_taken(agent.name.as_str()));
            listed.extend(agents.map(tool));
        }
        if self.allowed.with::<ListPending>().is_ok() {
            listed.push(tools::pending());
        }
        if self.allowed.with::<Read>().is_ok() {
            listed.push(tools::conversation());
        }
        Ok(listed)
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
    async fn agent(&self, tool: &str) -> Result<AgentName, CallError> {
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

    async fn call(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, CallError> {
        let arguments = Value::Object(request.arguments.clone().unwrap_or_default());
        match request.name.as_ref() {
            tools::PENDING => Ok(reading::pending(self, arguments).await?.into()),
            tools::CONVERSATION => Ok(reading::conversation(self, arguments).await?.into()),
            tool => {
                let agent = self.agent(tool).await?;
                agent_call::call(self, &agent, request, &context).await
            }
        }
    }
}

fn tool(agent: &StoredAgent) -> Tool {
    let description = agent.definition.get("description").and_then(Value::as_str);
    tools::agent(agent.name.as_str(), description.unwrap_or_default())
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("abide", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let listed = self.0.list().await;
        listed
            .map(ListToolsResult::with_all_items)
            .map_err(|problem| ErrorData::internal_error(told(problem), None))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        match self.0.call(request, context).await {
            Ok(response) => Ok(response),
            Err(CallError::Protocol(error)) => Err(error),
            Err(CallError::Tool(problem)) => {
                Ok(CallToolResult::error(vec![ContentBlock::text(told(problem))]).into())
            }
        }
    }
}

/// What a client is told of a problem.
fn told(problem: Problem) -> String {
    let (_, document) = problem.into_document();
    document["detail"].as_str().unwrap_or_default().to_owned()
}
