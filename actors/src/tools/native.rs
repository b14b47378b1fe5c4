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
mod dependencies;
mod lifecycle;
mod testing;
mod typed;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use abide_conversation::command::StateChange;
use abide_conversation::elicitation::{InputRequest, PendingInput};
use abide_conversation::event::EffectiveArgs;
use abide_conversation::message::{ErrorType, Outcome, Ui};
use abide_conversation::{AgentName, CallId, ConversationId, Principal, TurnId};
use async_trait::async_trait;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::middleware::Middlewares;
use crate::hooks::Hooks;
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
    pub attempt: u32,
    pub assigns: &'a Map<String, Value>,
    pub principal: &'a Principal,
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

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolReturn {
    pub outcome: Outcome,
    /// A payload for user interfaces, never for the model.
    pub ui: Option<Ui>,
    /// Ends the turn as halted, with this reason.
    pub halt: Option<String>,
    /// Changes of the conversation by a built-in tool, committed with the result.
    pub(crate) state_changes: Vec<StateChange>,
    /// The input that the tool needs from a person first; there is no result yet.
    pub(crate) input_request: Option<InputRequest>,
    /// The arguments that it ran with, if middleware changed them.
    pub(crate) effective_args: Option<EffectiveArgs>,
}

impl ToolReturn {
    /// A result: text, any JSON, or content blocks. The model sees media blocks anywhere in it as
    /// media.
    pub fn ok(result: impl Into<Value>) -> Self {
        Self::from_outcome(Outcome::Ok(result.into()))
    }

    /// A failure; the model reads the message.
    pub fn error(message: impl Into<String>) -> Self {
        Self::failure(message, ErrorType::ToolError)
    }

    /// Ends the turn with this reason. The call still gets its result.
    pub fn halt(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { halt: Some(reason.clone()), ..Self::ok(reason) }
    }

    /// Asks a person for input first. The call waits, for days if its timeout allows, and then runs
    /// again on any node with the answer in [`Context::input`]; nothing else of this run is kept. A
    /// user's dispatch cannot wait: it ends with an error.
    pub fn input_required(request: InputRequest) -> Self {
        Self { input_request: Some(request), ..Self::from_outcome(Outcome::Ok(Value::Null)) }
    }

    /// Adds a payload for user interfaces.
    pub fn with_ui(self, kind: impl Into<String>, payload: impl Into<Value>) -> Self {
        Self { ui: Some(Ui { kind: kind.into(), payload: payload.into() }), ..self }
    }

    pub(crate) fn with_change(mut self, change: StateChange) -> Self {
        self.state_changes.push(change);
        self
    }

    /// A result with this outcome and nothing else.
    pub(crate) fn from_outcome(outcome: Outcome) -> Self {
        Self {
            outcome,
            ui: None,
            halt: None,
            state_changes: Vec::new(),
            input_request: None,
            effective_args: None,
        }
    }

    /// An error of a built-in tool: `code`, or `code: detail`.
    pub(crate) fn builtin_error(code: &str, detail: &str) -> Self {
        match detail {
            "" => Self::error(code),
            detail => Self::error(format!("{code}: {detail}")),
        }
    }

    /// An error for invalid arguments; `why` names each field.
    pub(crate) fn invalid_args(why: &str) -> Self {
        let why = format!("invalid tool arguments: {why}");
        Self::failure(why, ErrorType::ValidationError)
    }

    pub(crate) fn failure(message: impl Into<String>, error_type: ErrorType) -> Self {
        Self::from_outcome(Outcome::Err(message.into(), error_type))
    }
}

macro_rules! results {
    ($($type:ty),+) => {$(
        impl From<$type> for ToolReturn {
            fn from(result: $type) -> Self {
                Self::ok(result)
            }
        }
    )+};
}

results!(Value, Vec<Value>, String, &str, bool, i64, u64, f64, ());

/// The error becomes the text that the model reads.
impl<T: Into<ToolReturn>, E: fmt::Display> From<Result<T, E>> for ToolReturn {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(result) => result.into(),
            Err(error) => Self::error(error.to_string()),
        }
    }
}

/// What a program adds to a node: native tools by the name that definitions use, the dependencies
/// of these tools, middleware, and hooks.
#[derive(Clone, Default)]
pub struct Extensions {
    tools: BTreeMap<String, Arc<dyn NativeTool>>,
    dependencies: Arc<Dependencies>,
    middlewares: Middlewares,
    hooks: Hooks,
}

impl Extensions {
    /// No extensions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool; it replaces an earlier one of the same name.
    pub fn with_tool(mut self, name: impl Into<String>, tool: impl NativeTool) -> Self {
        self.tools.insert(name.into(), Arc::new(tool));
        self
    }

    /// Sets the program's hooks, replacing earlier ones.
    pub fn with_hooks(self, hooks: Hooks) -> Self {
        Self { hooks, ..self }
    }

    /// The hooks.
    pub fn hooks(&self) -> &Hooks {
        &self.hooks
    }

    /// Provides a value that tools find by its type; it replaces an earlier one of the same type.
    ///
    /// ```
    /// use abide_actors::tools::native::typed;
    /// use abide_actors::tools::{Extensions, ToolReturn};
    /// use serde_json::json;
    ///
    /// struct Rate(f64);
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Amount {
    ///     euros: f64,
    /// }
    ///
    /// let exchange = typed("Euros in dollars.", |args: Amount, context| {
    ///     Box::pin(async move {
    ///         let Rate(rate) = context.dependency().ok_or("there is no rate")?;
    ///         Ok::<_, &str>(args.euros * rate)
    ///     })
    /// });
    /// let extensions = Extensions::new().with_tool("exchange", exchange).provide(Rate(1.5));
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
    /// # .block_on(async {
    /// let result = extensions.run_tool("exchange", json!({"euros": 2})).await;
    /// assert_eq!(result, ToolReturn::ok(3.0));
    /// # });
    /// ```
    pub fn provide<T: Any + Send + Sync>(mut self, value: T) -> Self {
        Arc::make_mut(&mut self.dependencies).provide(None, value);
        self
    }

    /// Provides a value to the tools of one agent, in place of the value for all agents.
    pub fn provide_for<T: Any + Send + Sync>(mut self, agent: &str, value: T) -> Self {
        Arc::make_mut(&mut self.dependencies).provide(Some(agent), value);
        self
    }

    /// Sets the middleware, replacing earlier ones.
    pub fn with_middlewares(self, middlewares: Middlewares) -> Self {
        Self { middlewares, ..self }
    }

    /// The tool of that name.
    pub fn tool(&self, name: &str) -> Option<&Arc<dyn NativeTool>> {
        self.tools.get(name)
    }

    /// The middleware that definitions may name.
    pub fn middlewares(&self) -> &Middlewares {
        &self.middlewares
    }

    pub(super) fn dependencies(&self) -> &Arc<Dependencies> {
        &self.dependencies
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.tools.keys()).finish()
    }
}

#[cfg(test)]
mod tests;
