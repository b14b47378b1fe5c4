//! Hooks: code of the program, or a server, that a conversation asks or notifies as it proceeds.
//!
//! ```
//! use abide_actors::hooks::{Hook, HookEvent, HookPayload, Hooks, HookReply};
//! use abide_actors::tools::Extensions;
//!
//! struct Guard;
//!
//! #[async_trait::async_trait]
//! impl Hook for Guard {
//!     async fn call(&self, event: &HookEvent) -> HookReply {
//!         match &event.payload {
//!             HookPayload::Call { args, .. } if args["path"] == "/etc/passwd" => {
//!                 HookReply::Deny("not that file".to_owned())
//!             }
//!             _ => HookReply::GoOn,
//!         }
//!     }
//! }
//!
//! // A definition then says `hooks: [{on: PreToolUse, native: guard}]`.
//! let extensions = Extensions::new().with_hooks(Hooks::new().with("guard", Guard));
//! assert!(extensions.hooks().get("guard").is_some());
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
pub(crate) use event::newest_messages;
pub use event::{HookContext, HookEvent, HookPayload, Kind};
pub use reply::HookReply;

/// A hook that runs in this process.
///
/// It may be aborted at any await. A panic counts as a failure, and so does a reply that does not
/// fit the [`HookPoint`], whose documentation says what follows from a failure.
#[async_trait]
pub trait Hook: Send + Sync + 'static {
    /// Handles an event within the declared `timeout`. The reply to a notification is ignored.
    async fn call(&self, event: &HookEvent) -> HookReply;
}

/// The hooks that a program offers, by the name that definitions use.
#[derive(Clone, Default)]
pub struct Hooks(BTreeMap<String, Arc<dyn Hook>>);

impl Hooks {
    /// No hooks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a hook, and replaces an earlier one of the same name.
    pub fn with(mut self, name: impl Into<String>, hook: impl Hook) -> Self {
        self.0.insert(name.into(), Arc::new(hook));
        self
    }

    /// The hook of this name.
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
