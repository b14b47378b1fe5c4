//! Middleware: code of the program around every run of a server tool, model-called or dispatched.
//!
//! ```
//! use abide_actors::tools::middleware::{Middleware, Middlewares, Next};
//! use abide_actors::tools::{Natives, Returned, Run};
//!
//! /// Lets nobody pay more than 100.
//! struct Frugal;
//!
//! #[async_trait::async_trait]
//! impl Middleware for Frugal {
//!     async fn around(&self, run: &Run, next: Next<'_>) -> Returned {
//!         match run.grant.args()["amount"].as_f64() {
//!             Some(amount) if amount > 100.0 => Returned::error("too much"),
//!             _ => next.run().await,
//!         }
//!     }
//! }
//!
//! // A definition then says `middleware: [frugal]`, as a whole or of one of its tools.
//! let natives = Natives::new().with_middlewares(Middlewares::new().with("frugal", Frugal));
//! assert!(natives.middlewares().has("frugal"));
//! ```

mod chain;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use super::Run;
use super::ToolReturn;
pub use chain::Next;
pub(super) use chain::{Chain, End};

/// Code around the runs of server tools.
///
/// Around each run stand the program's own ([`Middlewares::everywhere`]), then those that the agent
/// names, then those that the tool names, each in the order declared, the first outermost. All of
/// them and the tool together have the tool's `run_timeout`; dropping the run drops them, too. A
/// panic in any of them ends the call as `tool crashed`. Like the tool, they may run again for the
/// same call, with a higher attempt.
///
/// Of a call that a child conversation answers they surround the asking: `next` returns null as soon
/// as the child may be asked, and it is asked if the whole chain then ends with a result and no
/// halt. The child's answer, hours later, is nothing that they see.
#[async_trait]
pub trait Middleware: Send + Sync + 'static {
    /// Answers a run: with what `next` returns, changed or not, or in its place.
    ///
    /// To change a result, change it where it is: with it go a user interface's payload, what the
    /// tool asks for, and what a built-in tool changes in its conversation.
    async fn around(&self, run: &Run, next: Next<'_>) -> ToolReturn;
}

/// The middleware that a program offers: for every tool, and by the name that definitions use.
#[derive(Clone, Default)]
pub struct Middlewares {
    everywhere: Vec<Arc<dyn Middleware>>,
    named: BTreeMap<String, Arc<dyn Middleware>>,
}

impl Middlewares {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same and one more, around every tool of every agent, within those added before.
    pub fn everywhere(mut self, middleware: impl Middleware) -> Self {
        self.everywhere.push(Arc::new(middleware));
        self
    }

    /// The same and one that definitions may name; a later one of the name replaces the earlier.
    pub fn with(mut self, name: impl Into<String>, middleware: impl Middleware) -> Self {
        self.named.insert(name.into(), Arc::new(middleware));
        self
    }

    /// Whether definitions may name it.
    pub fn has(&self, name: &str) -> bool {
        self.named.contains_key(name)
    }

    /// What is around a tool's runs, outermost first; `None` if a name is not known. An empty list
    /// costs no allocation.
    pub(super) fn around(
        &self,
        agent: &[String],
        tool: &[String],
    ) -> Option<Vec<Arc<dyn Middleware>>> {
        let everywhere = self.everywhere.iter().map(Some);
        let named = agent.iter().chain(tool).map(|name| self.named.get(name));
        everywhere.chain(named).map(|middleware| middleware.cloned()).collect()
    }
}

impl fmt::Debug for Middlewares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entry(&self.everywhere.len()).entries(self.named.keys()).finish()
    }
}

#[cfg(test)]
mod tests;
