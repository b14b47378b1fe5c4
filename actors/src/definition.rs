//! An agent's definition as plain data: checked, compiled, and without I/O.

mod builtin;
mod hook;
mod limits;
mod mcp_server;
mod outbound;
mod permissions;
mod queue_target;
mod summary;
mod tool;
mod tool_retry;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use abide_conversation::command::TurnSettings;
use abide_conversation::usage::Budget;
use abide_conversation::{AgentName, ConversationId, Revision, Scoped, State};
use serde_json::{Map, Value};

use crate::expressions::schema::Schema;
use crate::model::ModelSettings;
use crate::model::retry::RetryPolicy;
use crate::outbound::Outbound;
use crate::workspace::WorkspaceRef;

pub use builtin::Builtin;
pub use hook::{HookPoint, HookSpec, HookTarget, Matcher};
pub use limits::{LimitScope, Rate, RunLimits};
pub use mcp_server::{McpServer, McpToolRef, McpToolSet, McpTransport};
pub use permissions::{Permissions, WorkspaceRoot};
pub use queue_target::QueueTarget;
pub use summary::SummaryPolicy;
pub use tool::{
    Approval, Audience, ClientAnswer, Endpoint, MAX_TOOL_NAME_BYTES, ServerTool, Target, Tool,
    ToolKind,
};
pub use tool_retry::{RetryOn, ToolRetry};

/// An agent: model, prompt, tools and policies, as one revision of them says.
#[derive(Clone, Debug)]
pub struct Definition {
    pub name: AgentName,
    pub description: String,
    pub model: ModelSettings,
    /// The names that a call which starts a child of this agent may choose from.
    pub models: Vec<String>,
    /// The keys of the metadata by which its conversations are found.
    pub index: Arc<[String]>,
    pub system_prompt: String,
    /// How long an open suspension may wait, unless its tool says otherwise.
    pub suspension_timeout: Duration,
    /// Model calls in one turn.
    pub max_steps: u32,
    /// What a turn, and a whole conversation, may spend.
    pub budget: Budget,
    pub retry: RetryPolicy,
    /// How long conversations are kept in which nothing happens; `None`: until somebody deletes them.
    pub retention: Option<Duration>,
    /// How long a client call waits while no page is connected; `None`: as long as it may.
    pub client_grace: Option<Duration>,
    /// For how long the audit keeps what was sent to the model and what came back; `None`: not at
    /// all.
    pub audit: Option<Duration>,
    /// What every answer must satisfy, unless a message says otherwise.
    pub response_format: Option<Schema>,
    pub assigns: Map<String, Value>,
    pub permissions: Permissions,
    /// `None`: a directory of the conversation.
    pub workspace: Option<WorkspaceRoot>,
    /// What is around the runs of all its server tools, outermost first.
    pub middleware: Vec<String>,
    /// In the order of the document. A tool picked from an MCP server has only the definition's part.
    pub tools: Vec<Tool>,
    /// The sets of MCP servers, in the order of the document.
    pub sets: Vec<McpToolSet>,
    /// In the order of the document.
    pub hooks: Vec<HookSpec>,
    /// The tokens that `pre` hooks may add to one step.
    pub injection_reserve: u32,
    /// The tokens that a prompt may have before it is reduced, including the additions of hooks.
    pub working_budget: u32,
    /// `None`: nothing is summarized.
    pub summary: Option<SummaryPolicy>,
    /// The document as it was given.
    pub source: Value,
    /// The first 16 hex digits of the SHA-256 of the canonical `source`.
    pub revision: Revision,
    /// What its conversations may reach and name.
    pub outbound: Outbound,
    /// The tokens of the system prompt and of all its tools for its own model, once a step that sends
    /// all of them has counted them.
    pub(crate) head_tokens: OnceLock<u64>,
}

impl Definition {
    /// An estimate of the memory that its schemas take.
    pub fn compiled_bytes(&self) -> usize {
        let answer = self.response_format.as_ref().map_or(0, Schema::compiled_bytes);
        self.tools.iter().map(Tool::compiled_bytes).fold(answer, usize::saturating_add)
    }

    /// The model of a conversation: the agent's own, under the name that the call chose which started
    /// the conversation, if that is still among those that may be chosen.
    pub fn model_of(&self, state: &State) -> ModelSettings {
        let chosen = state.parent.as_ref().and_then(|parent| parent.model.as_ref());
        match chosen.filter(|name| self.models.contains(name)) {
            Some(name) => ModelSettings { name: name.clone(), ..self.model.clone() },
            None => self.model.clone(),
        }
    }

    /// The facts that a turn of this definition starts with.
    pub fn basis(&self) -> TurnSettings {
        TurnSettings {
            agent: self.name.clone(),
            revision: self.revision.clone(),
            max_steps: self.max_steps,
            budget: self.budget,
            summarize_over: self.summary.as_ref().map(|summary| summary.threshold_tokens),
        }
    }

    /// The agents that its tools ask, with the name of the tool.
    pub fn asked_agents(&self) -> impl Iterator<Item = (&str, &AgentName)> {
        self.tools.iter().filter_map(|tool| match tool.target() {
            Some(Target::Agent(agent)) => Some((tool.name.as_str(), agent)),
            Some(
                Target::Http(_)
                | Target::Native(_)
                | Target::Builtin(_)
                | Target::Mcp(_)
                | Target::Queue(_),
            )
            | None => None,
        })
    }

    /// Where a conversation of this agent works.
    pub fn site(&self, owner: &Scoped<ConversationId>) -> WorkspaceRef {
        let workspace = self.workspace.as_ref();
        WorkspaceRef {
            root: workspace.map(|workspace| workspace.root.clone()),
            shared: workspace.is_some_and(|workspace| workspace.shared),
            owner: owner.to_string(),
        }
    }
}
