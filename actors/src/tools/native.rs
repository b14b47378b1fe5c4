//! Native tools: tools in Rust, for programs that embed these crates.
//!
//! ```
//! use abide_actors::tools::native::{Context, NativeTool};
//! use abide_actors::tools::{Extensions, ToolReturn};
//! use serde_json::{Value, json};
//!
//! struct Add;
//!
//! #[async_trait::async_trait]
//! impl NativeTool for Add {
//!     fn description(&self) -> String {
//!         "Adds two numbers.".to_owned()
//!     }
//!
//!     fn parameters(&self) -> Value {
//!         json!({"type": "object", "required": ["a", "b"],
//!                "properties": {"a": {"type": "number"}, "b": {"type": "number"}}})
//!     }
//!
//!     async fn run(&self, args: Value, context: Context<'_>) -> ToolReturn {
//!         context.report(json!({"about_to": "add"}));
//!         match (args["a"].as_f64(), args["b"].as_f64()) {
//!             (Some(a), Some(b)) => ToolReturn::ok(json!(a + b)),
//!             _ => ToolReturn::error("two numbers are needed"),
//!         }
//!     }
//! }
//!
//! // A definition names it: `run: {native: add}`.
//! let extensions = Extensions::new().with_tool("add", Add);
//! assert!(extensions.tool("add").is_some());
//! ```

pub(super) mod attempt;
pub(super) mod dependencies;
mod lifecycle;
mod testing;
mod typed;

use std::any::Any;

use abide_conversation::approval::Approver;
use abide_conversation::elicitation::PendingInput;
use abide_conversation::message::ErrorType;
use abide_conversation::{AgentName, Attempt, CallId, ConversationId, Principal, TurnId};
use async_trait::async_trait;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::ToolReturn;
use dependencies::Dependencies;
pub use lifecycle::StartError;
pub use typed::typed;

/// A tool that runs in this process.
///
/// A run may be aborted at any await, and may be repeated for the same call with a higher attempt
/// number. A panic ends only this call, as `tool crashed`.
#[async_trait]
pub trait NativeTool: Send + Sync + 'static {
    /// The description for the model, unless the definition has its own.
    fn description(&self) -> String;

    /// The JSON Schema of its arguments, an object. The arguments that `run` gets satisfy it.
    fn parameters(&self) -> Value;

    /// Runs one call.
    async fn run(&self, args: Value, context: Context<'_>) -> ToolReturn;

    /// May replace an error or a crash of the run by another result. It shares the run's time
    /// limit, so there is no recovery from a timeout.
    async fn recover(&self, _: &str, _: ErrorType, _: Context<'_>) -> Option<ToolReturn> {
        None
    }

    /// Called when the node starts. The node serves nothing before this is done, and does not start
    /// if it fails.
    async fn on_start(&self) -> Result<(), String> {
        Ok(())
    }

    /// Called when the node stops and no call runs any more; not called if the node crashes.
    async fn on_stop(&self) {}
}

/// The call that a native tool is running.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub agent: &'a AgentName,
    pub conversation: &'a ConversationId,
    /// `None` for a user's dispatch.
    pub turn: Option<&'a TurnId>,
    pub call: &'a CallId,
    /// 1 for the first attempt; `conversation` and `call` are the same for every attempt.
    pub attempt: Attempt,
    pub assigns: &'a Map<String, Value>,
    /// The key-value state of the conversation when the attempt began;
    /// [`ToolReturn::with_state`] changes it.
    pub state: &'a Map<String, Value>,
    pub principal: &'a Principal,
    /// Those whose votes approved the call.
    pub approvals: &'a [Approver],
    /// What an earlier attempt asked for with [`ToolReturn::input_required`], and the answer.
    pub input: Option<&'a PendingInput>,
    dependencies: &'a Dependencies,
    progress: &'a mpsc::Sender<Value>,
}

impl<'a> Context<'a> {
    /// The value of this type that the program provides for the agent, or else for all agents.
    pub fn dependency<T: Any>(&self) -> Option<&'a T> {
        self.dependencies.get(self.agent)
    }

    /// Reports progress to clients. Progress is lossy, is dropped unless the tool is declared
    /// `streaming`, and never blocks.
    pub fn report(&self, progress: Value) {
        let _ = self.progress.try_send(progress);
    }
}

#[cfg(test)]
mod tests;
