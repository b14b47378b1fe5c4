//! What an embedding program adds to a node: native tools, their dependencies, hooks, middleware.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::middleware::Middlewares;
use super::native::NativeTool;
use super::native::dependencies::Dependencies;
use crate::hooks::Hooks;

/// The native tools that a program offers, by the name that definitions use, what they work with,
/// what is around all tools, and the program's hooks.
#[derive(Clone, Default)]
pub struct Extensions {
    pub(super) tools: BTreeMap<String, Arc<dyn NativeTool>>,
    pub(super) dependencies: Arc<Dependencies>,
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
