//! Hooks: code of the program, or a server, that a conversation asks or tells on its way.
//!
//! ```
//! use abide_actors::hooks::{Hook, HookEvent, Hooks, Reply, What};
//! use abide_actors::tools::Natives;
//!
//! struct Guard;
//!
//! #[async_trait::async_trait]
//! impl Hook for Guard {
//!     async fn call(&self, event: &HookEvent) -> Reply {
//!         match &event.what {
//!             What::Call { args, .. } if args["path"] == "/etc/passwd" => {
//!                 Reply::Deny("not that file".to_owned())
//!             }
//!             _ => Reply::GoOn,
//!         }
//!     }
//! }
//!
//! // A definition then says `hooks: [{on: PreToolUse, native: guard}]`.
//! let natives = Natives::new().with_hooks(Hooks::new().with("guard", Guard));
//! assert!(natives.hooks().get("guard").is_some());
//! ```

mod caller;
pub(crate) mod context;
mod event;
pub(crate) mod notifier;
pub(crate) mod post;
mod reply;
pub(crate) mod stream;
pub(crate) mod tool_use;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

pub(crate) use caller::HookCallError;
pub use caller::HookCaller;
pub(crate) use event::kept;
pub use event::{HookContext, HookEvent, HookPayload, Kind};
pub use reply::Reply;

/// A hook that runs in this process.
///
/// It may be aborted at any await. A panic is a failure, as is a reply that does not fit what it was
/// asked; what follows from a failure is in [`On`].
#[async_trait]
pub trait Hook: Send + Sync + 'static {
    /// Is asked, or told; it has its declared `timeout` for it.
    async fn call(&self, event: &HookEvent) -> Reply;
}

/// The hooks that a program offers, by the name that definitions use.
#[derive(Clone, Default)]
pub struct Hooks(BTreeMap<String, Arc<dyn Hook>>);

impl Hooks {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same and one more; a later hook of one name replaces the earlier.
    pub fn with(mut self, name: impl Into<String>, hook: impl Hook) -> Self {
        self.0.insert(name.into(), Arc::new(hook));
        self
    }

    /// The hook of that name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Hook>> {
        self.0.get(name)
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests;
