//! Native tools without a conversation, for tests and scripts.

use std::time::Duration;

use abide_conversation::message::ErrorType;
use abide_conversation::{AgentName, CallId, ConversationId, Principal};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::Context;
use super::attempt::attempt;
use crate::definition::LONGEST_NAME;
use crate::expressions::schema::Schema;
use crate::limits::cut;
use crate::tools::runner::within;
use crate::tools::{Extensions, ToolReturn};

/// As long as a tool may run that says nothing of it.
const LONGEST: Duration = Duration::from_secs(60);
/// Whose call it is, wherever the tool asks.
const DIRECT: &str = "direct";

impl Extensions {
    /// Runs a tool by itself, for at most a minute: the arguments are validated and defaults filled
    /// in, as for a call. No gate judges it and no middleware is around it. Its agent, conversation,
    /// call and principal are all named `direct`.
    pub async fn run(&self, name: &str, args: Value) -> ToolReturn {
        let Some(native) = self.get(name) else {
            let unknown = format!("unknown tool: {}", cut(name, LONGEST_NAME));
            return ToolReturn::failed(unknown, ErrorType::ToolNotFound);
        };
        let schema = match Schema::compile(&native.parameters()) {
            Ok(schema) => schema,
            Err(why) => return ToolReturn::error(format!("the tool's parameters: {why}")),
        };
        if let Err(why) = schema.check(&args) {
            return ToolReturn::invalid(&why);
        }
        // Nobody listens: what is reported is lost.
        let (progress, _) = mpsc::channel(1);
        let context = Context {
            agent: &AgentName::new(DIRECT),
            conversation: &ConversationId::new(DIRECT),
            turn: None,
            call: &CallId::new(DIRECT),
            attempt: 1,
            assigns: &Map::new(),
            principal: &Principal::new(DIRECT),
            input: None,
            dependencies: &self.dependencies,
            progress: &progress,
        };
        within(LONGEST, attempt(&**native, schema.fill(args), context)).await
    }
}
