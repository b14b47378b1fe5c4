//! Durable conversations between people, models and tools, as a node inside a program.
//!
//! The program `abide` is [`Node`] with a command line. A program that embeds a node brings its own
//! tools, hooks and middleware as [`Extensions`], and its own agents:
//!
//! ```
//! use abide::{Config, Context, Extensions, Node, NativeTool, StoreUrl, ToolReturn, async_trait};
//! use serde_json::{Value, json};
//!
//! struct Add;
//!
//! #[async_trait]
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
//!     async fn run(&self, args: Value, _: Context<'_>) -> ToolReturn {
//!         match (args["a"].as_f64(), args["b"].as_f64()) {
//!             (Some(a), Some(b)) => ToolReturn::ok(a + b),
//!             _ => ToolReturn::error("two numbers are needed"),
//!         }
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // First of all, before any thread: this process may have been started to run a command.
//! abide::run_launcher_if_asked();
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let node = Node::builder(Config::new(StoreUrl::Memory))
//!     .extensions(Extensions::new().with_tool("add", Add))
//!     .agent(json!({
//!         "name": "adder",
//!         "model": {"provider": "scripted", "script": [{"text": "hello"}]},
//!         "tools": [{"name": "add", "run": {"native": "add"}}],
//!     }))
//!     .start()
//!     .await?;
//! println!("POST http://{}/v1/conversations/c1/messages", node.public);
//! node.stop().await;
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! - **A node**: [`Node`], [`NodeBuilder`], [`Config`] and its parts, [`StartError`].
//! - **A tool**: [`NativeTool`] as a trait object, or [`typed`] for a function whose arguments have a
//!   Rust type; both get a [`Context`] and give a [`ToolReturn`].
//! - **A hook**: [`Hook`] gets a [`HookEvent`] and gives a [`HookReply`].
//! - **Middleware**: [`Middleware`] surrounds each [`Run`] of a server tool and calls [`Next`].
//! - **Commands**: [`run_launcher_if_asked`] lets the tool `bash` work.
//! - **Logs, metrics, traces**: [`start_logging`], [`start_metrics`], [`TraceExporter`]; all optional.
//!
//! The examples in `nodes/examples` are complete programs; the book's page `guide/embedding.md` walks
//! through them.

#[doc(hidden)]
pub mod access;
#[doc(hidden)]
pub mod admin;
mod callbacks;
mod client_host;
mod clock;
#[doc(hidden)]
pub mod config;
mod definition_warnings;
mod demo;
mod departures;
mod ephemeral;
mod headers;
#[doc(hidden)]
pub mod http;
mod keys_command;
mod launcher;
mod node;
mod operations;
#[doc(hidden)]
pub mod problem;
#[doc(hidden)]
pub mod protocols;
mod public_url;
mod readiness;
mod schedule_sender;
mod seed_agents;
mod server;
mod start_error;
mod store_transfer;
mod telemetry;

#[doc(hidden)]
pub use client_host::{client_arguments, end_with_parent_if_asked, run_client};
pub use config::{Config, Durability, LogFormat, Origin, SandboxChoice, StoreUrl};
pub use launcher::run_launcher_if_asked;
pub use node::{AuthReloader, Node, NodeBuilder};
pub use public_url::PublicUrl;
pub use start_error::StartError;
pub use telemetry::{TraceExporter, start_logging, start_metrics};

pub use abide_actors::definition::HookPoint;
pub use abide_actors::hooks::{Hook, HookContext, HookEvent, HookPayload, HookReply, Hooks};
pub use abide_actors::identity::NodeName;
pub use abide_actors::tools::middleware::{Middleware, Middlewares, Next};
pub use abide_actors::tools::native::{Context, NativeTool, typed};
pub use abide_actors::tools::{Extensions, Run, ToolReturn};
pub use abide_conversation::elicitation::{InputRequest, PendingInput};
pub use abide_conversation::message::{ErrorType, Outcome, Ui};
pub use abide_conversation::{AgentName, CallId, ConversationId, Principal, TurnId};
pub use abide_registry::placement::Policy as PlacementPolicy;
pub use abide_registry::store::redis::RedisUrl;
pub use async_trait::async_trait;
