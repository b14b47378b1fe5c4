//! Tools in Rust, for programs that embed these crates.
//!
//! ```
//! use abide_actors::tools::native::{Context, NativeTool, Natives, Returned};
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
//!     async fn run(&self, args: Value, context: Context<'_>) -> Returned {
//!         context.report(json!({"about_to": "add"}));
//!         match (args["a"].as_f64(), args["b"].as_f64()) {
//!             (Some(a), Some(b)) => Returned::ok(json!(a + b)),
//!             _ => Returned::error("two numbers are needed"),
//!         }
//!     }
//! }
//!
//! // A definition then says `run: {native: add}`.
//! let natives = Natives::new().with("add", Add);
//! assert!(natives.get("add").is_some());
//! ```

pub(super) mod attempt;
pub(super) mod dependencies;
mod lifecycle;
mod testing;
mod typed;

use std::any::Any;

use abide_conversation::elicitation::PendingInput;
use abide_conversation::message::ErrorType;
use abide_conversation::{AgentName, CallId, ConversationId, Principal, TurnId};
use async_trait::async_trait;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::ToolReturn;
use dependencies::Dependencies;
pub use lifecycle::StartError;
pub use typed::typed;

/// A tool that runs in this process.
///
/// It may be aborted at any await, and may run again for the same call with a higher attempt. A
/// panic ends the call as `tool crashed` and nothing else.
#[async_trait]
pub trait NativeTool: Send + Sync + 'static {
    /// What the model is told of it, unless the definition says otherwise.
    fn description(&self) -> String;

    /// The JSON Schema of its arguments, an object; they satisfy it when `run` is called.
    fn parameters(&self) -> Value;

    /// Runs one call.
    async fn run(&self, args: Value, context: Context<'_>) -> ToolReturn;

    /// May turn an error of its run, or a crash, into something else. The run's time goes on; of one
    /// that ran out of it there is nothing to recover.
    async fn recover(&self, _: &str, _: ErrorType, _: Context<'_>) -> Option<ToolReturn> {
        None
    }

    /// The node begins; it serves nothing before this is done, and not at all if it fails.
    async fn started(&self) -> Result<(), String> {
        Ok(())
    }

    /// The node ends, and no call runs any more. A node that dies has no time to say so.
    async fn stopped(&self) {}
}

/// The call that a native tool runs for.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub agent: &'a AgentName,
    pub conversation: &'a ConversationId,
    /// `None` for a user's own call.
    pub turn: Option<&'a TurnId>,
    pub call: &'a CallId,
    /// 1 for the first; `conversation` and `call` are the same for every attempt.
    pub attempt: u32,
    pub assigns: &'a Map<String, Value>,
    pub principal: &'a Principal,
    /// What an earlier attempt asked for with [`Returned::asking`], and the answer.
    pub input: Option<&'a PendingInput>,
    dependencies: &'a Dependencies,
    progress: &'a mpsc::Sender<Value>,
}

impl<'a> Context<'a> {
    /// What the program provides of this type: for the agent, else for all.
    pub fn dependency<T: Any>(&self) -> Option<&'a T> {
        self.dependencies.get(self.agent)
    }

    /// Tells whoever watches how far the run has come. Lossy, and lost unless the tool is declared
    /// `streaming`; never blocks.
    pub fn report(&self, progress: Value) {
        let _ = self.progress.try_send(progress);
    }
}

#[cfg(test)]
mod tests;
