//! One tool of a definition, parsed and compiled.

use std::time::Duration;

use abide_conversation::AgentName;
use abide_conversation::event::{Executor, Intent, OnInterrupt};
use reqwest::Url;
use reqwest::header::HeaderMap;
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{Builtin, McpToolRef};
use crate::expressions::condition::Condition;
use crate::expressions::schema::Schema;
use crate::expressions::template::Template;
use crate::limits::{LARGEST_VALUE, encoded_len};
use crate::model::prompt::retention::Retention;

/// The longest name of a tool, in bytes, as providers allow; a model may make up a longer one.
pub const LONGEST_NAME: usize = 64;

/// A tool: what the model is told of it, who produces its results, and under which rules.
#[derive(Clone, Debug)]
pub struct Tool {
    pub name: String,
    pub description: String,
    pub parameters: Schema,
    pub executor: Executor,
    pub approval: Approval,
    /// What is around its runs within the agent's own, outermost first.
    pub middleware: Vec<String>,
    /// How it runs; `Some` of a server tool and of no other.
    pub target: Option<Target>,
    pub run_timeout: Duration,
    pub on_interrupt: OnInterrupt,
    /// Of its suspensions; else the agent's.
    pub timeout: Option<Duration>,
    /// Whether its progress is shown.
    pub streaming: bool,
    pub intent: Intent,
    pub audience: Audience,
    pub aliases: Vec<String>,
    /// Whether a decision about it holds for its one call only.
    pub strict: bool,
    /// Whether it changes nothing, and so may run while the conversation plans.
    pub read_only: bool,
    pub confirmation_message: Option<Template>,
    /// Of a client tool; `false`: answered at once with `default_result`.
    pub requires_response: bool,
    pub default_result: Value,
    /// What a person's or a page's answer must satisfy.
    pub result_schema: Option<Schema>,
    /// By provider, merged into the wire definition as it is.
    pub provider_options: Map<String, Value>,
    /// How long its results stay in the prompt once room is needed.
    pub retention: Retention,
}

/// The gate in front of a call.
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
    /// The name in `Natives`.
    Native(String),
    Builtin(Builtin),
    /// A child conversation of that agent.
    Agent(AgentName),
    /// A tool of an MCP server.
    Mcp(McpToolRef),
}

/// Where an HTTP tool is called.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub url: Url,
    pub headers: HeaderMap,
    /// The name of the variable that holds the secret; never the secret.
    pub signing_secret_env: Option<String>,
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
    /// Whether the model is told of it and may call it.
    pub fn is_for_model(&self) -> bool {
        match self.audience {
            Audience::Model | Audience::All => true,
            Audience::User => false,
        }
    }

    /// Whether a child conversation answers its calls.
    pub fn asks_a_child(&self) -> bool {
        match &self.target {
            Some(Target::Agent(_)) => true,
            Some(Target::Builtin(builtin)) => *builtin == Builtin::SpawnAgent,
            Some(Target::Http(_) | Target::Native(_) | Target::Mcp(_)) | None => false,
        }
    }

    /// The rules for its arguments, whoever gives them; the error names each field.
    pub fn check_args(&self, args: &Value) -> Result<(), String> {
        if !args.is_object() {
            return Err("must be an object".to_owned());
        }
        if encoded_len(args) > LARGEST_VALUE {
            return Err("must be at most 1 MB".to_owned());
        }
        self.parameters.check(args)
    }
}
