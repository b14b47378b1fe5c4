//! What the protocol's library asks of the server.

use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ContentBlock,
    CustomRequest, CustomResult, ErrorCode, GetTaskParams, GetTaskResult, Implementation,
    InitializeRequestParams, ListToolsResult, PaginatedRequestParams, ServerCapabilities,
    ServerConfig, UpdateTaskParams,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::caller::{CallError, Caller};
use super::{agent_call, reading, tasks};
use crate::http::extract::deserialize;
use crate::problem::Problem;
use crate::protocols::mcp::tools;

const INSTRUCTIONS: &str = "Each agent is a tool that takes a message and returns the agent's \
    answer. Conversations are durable: go on with one by its conversation_id. Where an agent waits \
    for a person, the result says so; calling the tool again with the conversation_id and an empty \
    message goes on.";

/// The server of one request, for its caller.
#[derive(Clone)]
pub(super) struct McpServer(Arc<Caller>);

impl McpServer {
    pub(super) fn new(caller: Caller) -> Self {
        Self(Arc::new(caller))
    }

    async fn call(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, CallError> {
        let arguments = Value::Object(request.arguments.clone().unwrap_or_default());
        match request.name.as_ref() {
            tools::PENDING => Ok(reading::pending(&self.0, arguments).await?.into()),
            tools::CONVERSATION => Ok(reading::conversation(&self.0, arguments).await?.into()),
            tool => {
                let agent = self.0.agent(tool).await?;
                agent_call::call(&self.0, &agent, request, &context).await
            }
        }
    }
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_tasks().build())
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
            .map_err(|problem| ErrorData::internal_error(detail(problem), None))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        match self.call(request, context).await {
            Ok(response) => Ok(response),
            Err(CallError::Protocol(error)) => Err(error),
            Err(CallError::Tool(problem)) => {
                Ok(CallToolResult::error(vec![ContentBlock::text(detail(problem))]).into())
            }
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        tasks::get(&self.0, &request.task_id, &context).await.map_err(error)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        tasks::update(&self.0, request, &context).await.map_err(error)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        tasks::cancel_task(&self.0, request).await.map_err(error)
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        Err(unreadable(request))
    }
}

/// The error of a request that the library takes for one of another protocol: it does so, too, with
/// those whose parameters it cannot read.
fn unreadable(request: CustomRequest) -> ErrorData {
    let CustomRequest { method, params, .. } = request;
    let params = params.unwrap_or_else(|| json!({}));
    let why = match method.as_str() {
        "initialize" => wrong_parameter::<InitializeRequestParams>(params),
        "tools/call" => wrong_parameter::<CallToolRequestParams>(params),
        "tasks/get" => wrong_parameter::<GetTaskParams>(params),
        "tasks/update" => wrong_parameter::<UpdateTaskParams>(params),
        "tasks/cancel" => wrong_parameter::<CancelTaskParams>(params),
        _ => return ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None),
    };
    ErrorData::invalid_params(why, None)
}

/// Which of the parameters is wrong, and why.
fn wrong_parameter<T: DeserializeOwned>(params: Value) -> String {
    if !params.is_object() {
        return "params: must be an object".to_owned();
    }
    match deserialize::<T>(params) {
        Err(problem) => problem.detail().to_owned(),
        Ok(_) => "params: cannot be read".to_owned(),
    }
}

/// The error of a request that has no result of a tool.
fn error(error: CallError) -> ErrorData {
    match error {
        CallError::Protocol(error) => error,
        CallError::Tool(problem) if problem.status().is_server_error() => {
            ErrorData::internal_error(detail(problem), None)
        }
        CallError::Tool(problem) => ErrorData::invalid_params(detail(problem), None),
    }
}

/// What a client is told of a problem.
fn detail(problem: Problem) -> String {
    let (_, document) = problem.into_document();
    document["detail"].as_str().unwrap_or_default().to_owned()
}
