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
mod dependencies;
mod direct;
mod life;
mod typed;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use abide_conversation::command::StateChange;
use abide_conversation::event::EffectiveArgs;
use abide_conversation::input::{InputRequest, PendingInput};
use abide_conversation::message::{ErrorType, Outcome, Ui};
use abide_conversation::{AgentName, CallId, ConversationId, Principal, TurnId};
use async_trait::async_trait;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::middleware::Middlewares;
use crate::hooks::Hooks;
use dependencies::Dependencies;
pub use life::StartError;
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

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolReturn {
    pub outcome: Outcome,
    /// Shown to people, never to the model.
    pub ui: Option<Ui>,
    /// Ends the turn as halted, with this reason.
    pub halt: Option<String>,
    /// What a built-in tool changes in its conversation, in the same commit.
    pub(crate) changes: Vec<StateChange>,
    /// What the tool must know first; there is no result yet.
    pub(crate) asks: Option<InputRequest>,
    /// With what it ran, if middleware changed the arguments.
    pub(crate) ran: Option<EffectiveArgs>,
}

impl ToolReturn {
    /// A result: text, any JSON, or content blocks. Media blocks, wherever they stand in it, are
    /// shown to the model as what they are.
    pub fn ok(result: impl Into<Value>) -> Self {
        Self::of(Outcome::Ok(result.into()))
    }

    /// The tool failed; the model reads the message.
    pub fn error(message: impl Into<String>) -> Self {
        Self::failed(message, ErrorType::ToolError)
    }

    /// The turn is to end here, with this reason. The call still gets its result.
    pub fn halt(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { halt: Some(reason.clone()), ..Self::ok(reason) }
    }

    /// The tool needs something from a person first. The call waits, for days if it may, and runs
    /// again with the answer as [`Context::input`], on whichever node; nothing else of this run is
    /// kept. A user's own call cannot wait: it ends with an error.
    pub fn asking(asks: InputRequest) -> Self {
        Self { asks: Some(asks), ..Self::of(Outcome::Ok(Value::Null)) }
    }

    /// The same, with something to show to people.
    pub fn with_ui(self, kind: impl Into<String>, payload: impl Into<Value>) -> Self {
        Self { ui: Some(Ui { kind: kind.into(), payload: payload.into() }), ..self }
    }

    pub(crate) fn with_change(mut self, change: StateChange) -> Self {
        self.changes.push(change);
        self
    }

    /// This outcome and nothing else.
    pub(crate) fn of(outcome: Outcome) -> Self {
        Self { outcome, ui: None, halt: None, changes: Vec::new(), asks: None, ran: None }
    }

    /// A built-in tool's own error: `code`, or `code: detail`.
    pub(crate) fn coded(code: &str, detail: &str) -> Self {
        match detail {
            "" => Self::error(code),
            detail => Self::error(format!("{code}: {detail}")),
        }
    }

    /// The arguments are wrong; `why` names each field.
    pub(crate) fn invalid(why: &str) -> Self {
        let why = format!("invalid tool arguments: {why}");
        Self::failed(why, ErrorType::ValidationError)
    }

    pub(crate) fn failed(message: impl Into<String>, error_type: ErrorType) -> Self {
        Self::of(Outcome::Err(message.into(), error_type))
    }
}

macro_rules! results {
    ($($type:ty),+) => {$(
        impl From<$type> for Returned {
            fn from(result: $type) -> Self {
                Self::ok(result)
            }
        }
    )+};
}

results!(Value, Vec<Value>, String, &str, bool, i64, u64, f64, ());

/// The model reads the error.
impl<T: Into<ToolReturn>, E: fmt::Display> From<Result<T, E>> for ToolReturn {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(result) => result.into(),
            Err(error) => Self::error(error.to_string()),
        }
    }
}

/// The native tools that a program offers, by the name that definitions use, what they work with,
/// what is around all tools, and the program's hooks.
#[derive(Clone, Default)]
pub struct Extensions {
    tools: BTreeMap<String, Arc<dyn NativeTool>>,
    dependencies: Arc<Dependencies>,
    middlewares: Middlewares,
    hooks: Hooks,
}

impl Extensions {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same and one more; a later tool of one name replaces the earlier.
    pub fn with(mut self, name: impl Into<String>, tool: impl NativeTool) -> Self {
        self.tools.insert(name.into(), Arc::new(tool));
        self
    }

    /// The same with these hooks, and no others.
    pub fn with_hooks(self, hooks: Hooks) -> Self {
        Self { hooks, ..self }
    }

    /// The hooks.
    pub fn hooks(&self) -> &Hooks {
        &self.hooks
    }

    /// The same, with a value that tools find by its type; a later one of a type replaces the
    /// earlier.
    ///
    /// ```
    /// use abide_actors::tools::native::{Natives, Returned, typed};
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
    /// let natives = Natives::new().with("exchange", exchange).provide(Rate(1.5));
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
    /// # .block_on(async {
    /// assert_eq!(natives.run("exchange", json!({"euros": 2})).await, Returned::ok(3.0));
    /// # });
    /// ```
    pub fn provide<T: Any + Send + Sync>(mut self, value: T) -> Self {
        Arc::make_mut(&mut self.dependencies).provide(None, value);
        self
    }

    /// The same for one agent, whose tools find this value and not the one for all.
    pub fn provide_for<T: Any + Send + Sync>(mut self, agent: &str, value: T) -> Self {
        Arc::make_mut(&mut self.dependencies).provide(Some(agent), value);
        self
    }

    /// The same, with this middleware and no other.
    pub fn with_middlewares(self, middlewares: Middlewares) -> Self {
        Self { middlewares, ..self }
    }

    /// The tool of that name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn NativeTool>> {
        self.tools.get(name)
    }

    /// What may be around the runs of tools.
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
