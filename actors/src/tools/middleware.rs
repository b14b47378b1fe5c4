//! Middleware: code of the embedding program around every run of a server tool, whether a model
//! called it or a user dispatched it.
//!
//! ```
//! use abide_actors::tools::middleware::{Middleware, Middlewares, Next};
//! use abide_actors::tools::{Extensions, Run, ToolReturn};
//!
//! /// Refuses payments of more than 100.
//! struct Frugal;
//!
//! #[async_trait::async_trait]
//! impl Middleware for Frugal {
//!     async fn call(&self, run: &Run, next: Next<'_>) -> ToolReturn {
//!         match run.grant.args()["amount"].as_f64() {
//!             Some(amount) if amount > 100.0 => ToolReturn::error("too much"),
//!             _ => next.run().await,
//!         }
//!     }
//! }
//!
//! // A definition names it, for the agent or for one of its tools: `middleware: [frugal]`.
//! let middlewares = Middlewares::new().with_named("frugal", Frugal);
//! let extensions = Extensions::new().with_middlewares(middlewares);
//! assert!(extensions.middlewares().contains("frugal"));
//! ```

mod chain;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use super::Run;
use super::ToolReturn;
pub use chain::Next;
pub(super) use chain::{Chain, Terminal};

/// Code around the runs of server tools.
///
/// The outermost middlewares of a run are the program's own ([`Middlewares::with_global`]), then
/// those that the agent names, then those that the tool names, each group in the order of
/// declaration, the first outermost. All of them and the tool together share the tool's
/// `run_timeout`; dropping the run drops them, too. A panic in any of them ends the call as `tool
/// crashed`. Like the tool, they may run again for the same call with a higher attempt number.
///
/// If a child conversation answers the call, middleware surrounds only the start of the child:
/// `next` returns null as soon as the child may be started. The child is started only if the whole
/// chain then ends with a result and no halt. Middleware never sees the child's answer, which may
/// come hours later.
#[async_trait]
pub trait Middleware: Send + Sync + 'static {
    /// Handles a run: returns the result of `next`, changed or not, or a result in its place.
    ///
    /// To change a result, change it in place: the value also carries the payload for user
    /// interfaces, the tool's request for input, and a built-in tool's changes of its conversation.
    async fn call(&self, run: &Run, next: Next<'_>) -> ToolReturn;
}

/// The middleware of a program: global ones for every tool, and named ones for definitions.
#[derive(Clone, Default)]
pub struct Middlewares {
    global: Vec<Arc<dyn Middleware>>,
    named: BTreeMap<String, Arc<dyn Middleware>>,
}

impl Middlewares {
    /// No middleware.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one around every tool of every agent, inside those added before.
    pub fn with_global(mut self, middleware: impl Middleware) -> Self {
        self.global.push(Arc::new(middleware));
        self
    }

    /// Adds one that definitions may name; it replaces an earlier one of the same name.
    pub fn with_named(mut self, name: impl Into<String>, middleware: impl Middleware) -> Self {
        self.named.insert(name.into(), Arc::new(middleware));
        self
    }

    /// Whether definitions may use this name.
    pub fn contains(&self, name: &str) -> bool {
        self.named.contains_key(name)
    }

    /// The middlewares of a tool's runs, outermost first; `None` if a name is unknown. An empty
    /// list needs no allocation.
    pub(super) fn chain_for(
        &self,
        agent: &[String],
        tool: &[String],
    ) -> Option<Vec<Arc<dyn Middleware>>> {
        let global = self.global.iter().map(Some);
        let named = agent.iter().chain(tool).map(|name| self.named.get(name));
        global.chain(named).map(|middleware| middleware.cloned()).collect()
    }
}

impl fmt::Debug for Middlewares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entry(&self.global.len()).entries(self.named.keys()).finish()
    }
}

#[cfg(test)]
mod tests;
