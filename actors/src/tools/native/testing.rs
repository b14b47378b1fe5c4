//! Runs native tools without a conversation, for tests and scripts.

use std::time::Duration;

use abide_conversation::message::ErrorType;
use abide_conversation::{AgentName, Attempt, CallId, ConversationId, Principal};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::Context;
use super::attempt::run_guarded;
use crate::definition::MAX_TOOL_NAME_BYTES;
use crate::expressions::schema::Schema;
use crate::limits::cut;
use crate::tools::runner::run_within;
use crate::tools::{Extensions, ToolReturn};

/// The default `run_timeout` of a tool.
const RUN_TIMEOUT: Duration = Duration::from_secs(60);
/// The id and name of everything in the call's context.
const DIRECT_ID: &str = "direct";

impl Extensions {
    /// Runs a tool directly, for at most a minute. The arguments are validated and defaults filled
    /// in, as for a call, but no gate and no middleware applies. Its agent, conversation, call and
    /// principal are all named `direct`.
    pub async fn run_tool(&self, name: &str, args: Value) -> ToolReturn {
        let Some(native) = self.tool(name) else {
            let unknown = format!("unknown tool: {}", cut(name, MAX_TOOL_NAME_BYTES));
            return ToolReturn::failure(unknown, ErrorType::ToolNotFound);
        };
        let schema = match Schema::compile(&native.parameters()) {
            Ok(schema) => schema,
            Err(why) => return ToolReturn::error(format!("the tool's parameters: {why}")),
        };
        if let Err(why) = schema.check_async(&args).await {
            return ToolReturn::invalid_args(&why);
        }
        // Progress reports are dropped: nobody listens.
        let (progress, _) = mpsc::channel(1);
        let context = Context {
            agent: &AgentName::new(DIRECT_ID),
            conversation: &ConversationId::new(DIRECT_ID),
            turn: None,
            call: &CallId::new(DIRECT_ID),
            attempt: Attempt::FIRST,
            assigns: &Map::new(),
            state: &Map::new(),
            principal: &Principal::new(DIRECT_ID),
            approvals: &[],
            input: None,
            dependencies: &self.dependencies,
            progress: &progress,
        };
        run_within(RUN_TIMEOUT, run_guarded(&**native, schema.fill_defaults(args), context)).await
    }
}
