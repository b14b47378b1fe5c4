//! What an embedding program adds to a node: native tools, their dependencies, hooks, middleware.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::middleware::Middlewares;
use super::native::NativeTool;
use super::native::dependencies::Dependencies;
use crate::hooks::Hooks;

/// What a program adds to a node: native tools by the name that definitions use, the dependencies
/// of these tools, middleware, and hooks.
#[derive(Clone, Default)]
pub struct Extensions {
    pub(super) tools: BTreeMap<String, Arc<dyn NativeTool>>,
    pub(super) dependencies: Arc<Dependencies>,
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
