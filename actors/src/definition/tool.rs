//! One tool of a definition, parsed and compiled.

use std::sync::Arc;
use std::time::Duration;

use abide_conversation::AgentName;
use abide_conversation::approval::ApprovalPolicy;
use abide_conversation::event::{Executor, Intent, OnInterrupt, WaitingRules};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{Builtin, McpToolRef, QueueTarget, RunLimits, ToolRetry};
use crate::expressions::condition::Condition;
use crate::expressions::schema::Schema;
use crate::expressions::template::Template;
use crate::limits::{MAX_VALUE_BYTES, encoded_len};
use crate::model::prompt::retention::Retention;
use crate::outbound::Outbound;

/// The longest tool name that providers allow; a model may invent a longer one.
pub const MAX_TOOL_NAME_BYTES: usize = 64;

/// A tool: how it is described to the model, who executes it, and under which rules.
#[derive(Clone, Debug)]
pub struct Tool {
    pub name: String,
    pub description: String,
    pub parameters: Schema,
    /// Who executes it, and what only such a tool has.
    pub kind: ToolKind,
    pub approval: Approval,
    /// Who must approve; `None` for one approver who is not the requester.
    pub approvers: Option<ApprovalPolicy>,
    /// The names of its middleware, inside the agent's, outermost first.
    pub middleware: Vec<String>,
    /// How long its suspensions wait; `None` means the agent's default.
    pub timeout: Option<Duration>,
    /// What happens to its suspensions while nobody answers.
    pub waiting_rules: Option<Arc<WaitingRules>>,
    pub intent: Intent,
    pub audience: Audience,
    pub aliases: Vec<String>,
    /// Whether a decision about one call is never remembered for others.
    pub strict: bool,
    /// Whether it changes nothing, and so may run in the phase `plan`.
    pub read_only: bool,
    pub confirmation_message: Option<Template>,
    /// Options by provider, merged unchanged into the definition that the provider receives.
    pub provider_options: Map<String, Value>,
    /// How long its results stay in the prompt once the context has to shrink.
    pub retention: Retention,
}

/// The executor of a tool, and what only such a tool has.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "one is kept for each tool of a definition")]
pub enum ToolKind {
    Server(ServerTool),
    Client(ClientAnswer),
    Human { result_schema: Option<Schema> },
    Provider,
}

/// How a tool runs on the server.
#[derive(Clone, Debug)]
pub struct ServerTool {
    pub target: Target,
    pub run_timeout: Duration,
    pub on_interrupt: OnInterrupt,
    /// Whether its progress is streamed to clients.
    pub streaming: bool,
    /// `None`: the first failure is the call's result.
    pub retry: Option<ToolRetry>,
    /// `None`: all of its calls run at once.
    pub limits: Option<RunLimits>,
}

/// Where the result of a client tool comes from.
#[derive(Clone, Debug)]
pub enum ClientAnswer {
    /// From the page.
    Awaited { result_schema: Option<Schema> },
    /// From the definition: no call waits for the page.
    Default(Value),
}

/// When a call needs an approval.
#[derive(Clone, Debug)]
pub enum Approval {
    Auto,
    Required,
    When(Condition),
}

/// How a server tool runs.
#[derive(Clone, Debug)]
pub enum Target {
    Http(Endpoint),
    /// A native tool, by its name in `Extensions`.
    Native(String),
    Builtin(Builtin),
    /// A child conversation with that agent.
    Agent(AgentName),
    /// A tool of an MCP server.
    Mcp(McpToolRef),
    /// A worker, which takes the call from a queue.
    Queue(QueueTarget),
}

/// Where an HTTP tool is called.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub url: Url,
    pub headers: HeaderMap,
    /// Headers whose values are secrets, with the names of the environment variables that hold them.
    pub secret_headers: Vec<(HeaderName, String)>,
    /// The name of the environment variable that holds the secret, never the secret itself.
    pub signing_secret_env: Option<String>,
    /// What it may reach and name.
    pub outbound: Outbound,
}

/// Who may call a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Audience {
    #[default]
    Model,
    User,
    All,
}

impl Tool {
    /// Who must approve a call that needs it; `None`: whoever answers first decides, because the tool
    /// does not say and nobody was authenticated.
    pub fn approval_policy(&self, is_authenticated: bool) -> Option<ApprovalPolicy> {
        let usual = || is_authenticated.then(ApprovalPolicy::default);
        self.approvers.clone().or_else(usual)
    }

    /// Whether the model is offered the tool and may call it.
    pub fn is_for_model(&self) -> bool {
        match self.audience {
            Audience::Model | Audience::All => true,
            Audience::User => false,
        }
    }

    /// Whether a child conversation answers its calls.
    pub fn is_sub_agent(&self) -> bool {
        match self.target() {
            Some(Target::Agent(_)) => true,
            Some(Target::Builtin(builtin)) => *builtin == Builtin::SpawnAgent,
            Some(Target::Http(_) | Target::Native(_) | Target::Mcp(_) | Target::Queue(_))
            | None => false,
        }
    }

    /// The queue that workers take its calls from.
    pub fn queue(&self) -> Option<&QueueTarget> {
        match self.target() {
            Some(Target::Queue(queue)) => Some(queue),
            Some(
                Target::Http(_)
                | Target::Native(_)
                | Target::Builtin(_)
                | Target::Agent(_)
                | Target::Mcp(_),
            )
            | None => None,
        }
    }

    /// Who produces the results of its calls.
    pub fn executor(&self) -> Executor {
        match &self.kind {
            ToolKind::Server(_) => Executor::Server,
            ToolKind::Client(_) => Executor::Client,
            ToolKind::Human { .. } => Executor::Human,
            ToolKind::Provider => Executor::Provider,
        }
    }

    /// What a server tool has; `None` for the other tools.
    pub fn server(&self) -> Option<&ServerTool> {
        match &self.kind {
            ToolKind::Server(server) => Some(server),
            ToolKind::Client(_) | ToolKind::Human { .. } | ToolKind::Provider => None,
        }
    }

    /// How it runs; `Some` exactly for server tools.
    pub fn target(&self) -> Option<&Target> {
        self.server().map(|server| &server.target)
    }

    /// The schema that the answer of a person, a client or a worker must satisfy, if there is one.
    pub fn result_schema(&self) -> Option<&Schema> {
        match &self.kind {
            ToolKind::Client(ClientAnswer::Awaited { result_schema })
            | ToolKind::Human { result_schema } => result_schema.as_ref(),
            ToolKind::Server(_) => self.queue().and_then(|queue| queue.result_schema.as_ref()),
            ToolKind::Client(ClientAnswer::Default(_)) | ToolKind::Provider => None,
        }
    }

    /// An estimate of the memory that its schemas take.
    pub fn compiled_bytes(&self) -> usize {
        let result = self.result_schema().map_or(0, Schema::compiled_bytes);
        self.parameters.compiled_bytes().saturating_add(result)
    }

    /// Checks arguments, whoever gives them; the error names each wrong field.
    ///
    /// May take 50 ms: in asynchronous code, see [`Self::check_args_async`].
    pub fn check_args(&self, args: &Value) -> Result<(), String> {
        check_size(args)?;
        self.parameters.check(args)
    }

    /// Like [`Self::check_args`], for asynchronous code.
    pub async fn check_args_async(&self, args: &Value) -> Result<(), String> {
        check_size(args)?;
        self.parameters.check_async(args).await
    }
}

fn check_size(args: &Value) -> Result<(), String> {
    if !args.is_object() {
        return Err("must be an object".to_owned());
    }
    if encoded_len(args) > MAX_VALUE_BYTES {
        return Err("must be at most 1 MB".to_owned());
    }
    Ok(())
}
