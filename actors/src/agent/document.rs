//! An agent's definition as written: one struct per section. The structs are what is parsed, and
//! also the schema in the OpenAPI document (reference/agent-definition.md).
//!
//! Unknown keys are mistakes; null is the same as absent. The code that turns a section into a part
//! of a [`Definition`](crate::definition::Definition) decides what it means.

mod hook;
mod leaf;
mod mcp_server;
mod tool;
mod tool_policy;

use abide_conversation::AgentName;
use abide_conversation::limits::MAX_STEPS;
use abide_conversation::permission::PermissionPhase;
use abide_conversation::usage::Budget;
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::model::ModelSettings;

pub(in crate::agent) use hook::HookDocument;
pub(in crate::agent) use leaf::{
    Dollars, Items, NonNegativeDuration, PositiveDuration, Text, Whole,
};
pub(in crate::agent) use mcp_server::McpServerDocument;
pub use tool::{
    ApprovalDocument, ApprovalSchema, ApprovalWord, ApproversDocument, EscalationDocument,
    EscalationGroupDocument, ToolDocument,
};
pub(in crate::agent) use tool::{
    HttpDocument, McpToolDocument, RetentionDocument, RetentionModeDocument, RunDocument,
};
pub(in crate::agent) use tool_policy::{LimitsDocument, ToolRetryDocument, word};

/// An agent. Unknown keys are an error. Null is the same as absent, except for `client_grace`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AgentDefinition)]
pub struct AgentDocument {
    /// Optional in a PUT: the path names the agent.
    #[schema(value_type = Option<AgentName>)]
    pub(super) name: Option<Text<64>>,
    #[schema(value_type = Option<String>, max_length = 16384)]
    pub(super) description: Option<Text<16_384>>,
    #[schema(value_type = ModelSettings)]
    pub(super) model: Option<Value>,
    /// The names, at the provider of `model`, that a call of another agent's tool may choose from for a
    /// child conversation of this agent.
    #[schema(value_type = Option<Vec<String>>, max_items = 64)]
    pub(super) models: Option<Items<64>>,
    /// Keys of the metadata by which its conversations are found; each of at most 128 bytes.
    #[schema(value_type = Option<Vec<String>>, max_items = 16)]
    pub(super) index: Option<Items<16>>,
    #[schema(value_type = Option<String>)]
    pub(super) system_prompt: Option<Text<1_048_576>>,
    /// A duration: how long an open suspension may wait.
    #[schema(value_type = Option<String>, default = "300s", example = "5m")]
    pub(super) suspension_timeout: Option<PositiveDuration>,
    /// Model calls in one turn.
    #[schema(value_type = Option<u32>, default = 25, minimum = 1, maximum = 1000)]
    pub(super) max_steps: Option<Whole<1, MAX_STEPS>>,
    #[schema(value_type = Option<Budget>)]
    pub(super) budget: Option<BudgetDocument>,
    pub(super) retry: Option<RetryDocument>,
    pub(super) retention: Option<ConversationRetentionDocument>,
    /// A duration: how long a client call waits while no page has the conversation's event stream
    /// open. Then it ends with the error `NO_CLIENT`. Null: it waits as long as its timeout allows.
    #[serde(default, deserialize_with = "leaf::nullable")]
    #[schema(value_type = Option<String>, default = "5s")]
    pub(super) client_grace: Option<Option<NonNegativeDuration>>,
    pub(super) audit: Option<AuditDocument>,
    /// A JSON Schema: every turn is then structured.
    #[schema(value_type = Option<Map<String, Value>>)]
    pub(super) response_format: Option<Value>,
    /// Passed to every tool call; a conversation's and a message's assigns override it.
    pub(super) assigns: Option<Map<String, Value>>,
    pub(super) workspace: Option<WorkspaceDocument>,
    pub(super) permissions: Option<PermissionsDocument>,
    /// By name, `[A-Za-z0-9_-]{1,32}`: the servers whose tools `tools` may name; at most 16.
    /// Defining an agent connects to none of them.
    #[schema(value_type = Option<BTreeMap<String, McpServerDocument>>)]
    pub(super) mcp_servers: Option<Map<String, Value>>,
    /// The program's middleware around the runs of all its server tools, outermost first.
    #[schema(value_type = Option<Vec<String>>, max_items = 16)]
    pub(super) middleware: Option<Items<16>>,
    #[schema(value_type = Option<Vec<ToolDocument>>, max_items = 256)]
    pub(super) tools: Option<Items<256>>,
    #[schema(value_type = Option<Vec<HookDocument>>, max_items = 64)]
    pub(super) hooks: Option<Items<64>>,
    /// The tokens that `pre` hooks may add to one step. More halts the turn.
    #[schema(value_type = Option<u32>, default = 4000, minimum = 1, maximum = 1_000_000)]
    pub(super) injection_reserve: Option<Whole<1, 1_000_000>>,
    /// The tokens that a prompt may have, including the additions of hooks; never more than three
    /// quarters of the model's window. A longer prompt is reduced: old results by their `retention`,
    /// then the oldest turns.
    #[schema(value_type = Option<u32>, default = 30000, minimum = 1, maximum = 10_000_000)]
    pub(super) working_budget: Option<Whole<1, 10_000_000>>,
    /// `false`, or how the oldest turns are summarized. By default they are, but for `scripted`.
    #[schema(value_type = Option<SummaryDocument>)]
    pub(super) summary: Option<Value>,
}

/// How long conversations are kept.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ConversationRetention)]
pub(super) struct ConversationRetentionDocument {
    /// A duration of one minute to 3652 days: a conversation in which nothing has happened for so long
    /// is deleted with its children. Absent: it is kept until somebody deletes it.
    #[schema(value_type = Option<String>, example = "90d")]
    pub(super) idle: Option<Text<64>>,
}

/// What a turn, and a whole conversation, may spend.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BudgetDocument {
    pub(super) max_turn_tokens: Option<Whole<1, { u32::MAX }>>,
    pub(super) max_turn_cost: Option<Dollars>,
    pub(super) max_conversation_tokens: Option<Whole<1, { u32::MAX }>>,
    pub(super) max_conversation_cost: Option<Dollars>,
}

/// How the oldest turns are summarized: after a turn has ended, in parallel with the next ones.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SummarySettings)]
pub(super) struct SummaryDocument {
    /// The agent's own if absent.
    #[schema(value_type = Option<ModelSettings>)]
    pub(super) model: Option<Value>,
    /// The instructions for the summarizing model; there is a good default.
    #[schema(value_type = Option<String>, max_length = 16384)]
    pub(super) prompt: Option<Text<16_384>>,
    /// A context of more tokens is summarized. By default three fifths of what `working_budget`
    /// leaves.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 10_000_000)]
    pub(super) over: Option<Whole<1, 10_000_000>>,
}

/// Records the requests to the model and its replies for operators; without it, nothing is recorded.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AuditSettings)]
pub(super) struct AuditDocument {
    /// A duration of at most 30 days: how long each model call stays in the audit. Only the newest
    /// 1,000 of a conversation are kept.
    #[schema(value_type = String, example = "24h")]
    pub(super) ttl: Option<PositiveDuration>,
}

/// Where the file tools and `bash` work; left out, a directory of the conversation.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = WorkspaceSettings)]
pub(super) struct WorkspaceDocument {
    /// An absolute path, on storage that every node mounts.
    #[schema(value_type = Option<String>)]
    pub(super) root: Option<Text<4_096>>,
    /// Whether all conversations work in this one directory.
    #[schema(default = false)]
    pub(super) shared: Option<bool>,
}

/// The limits on what the agent does by itself.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = PermissionSettings)]
pub(super) struct PermissionsDocument {
    #[schema(default = "default")]
    pub(super) phase: Option<PermissionPhase>,
    /// Null: all.
    #[schema(value_type = Option<Vec<String>>)]
    pub(super) allowed_tools: Option<Items<256>>,
    /// Wins over everything else.
    #[schema(value_type = Option<Vec<String>>)]
    pub(super) disallowed_tools: Option<Items<256>>,
    /// Private hosts that `web_fetch` may reach, as `HOST` or `HOST:PORT`, such as `127.0.0.1`. It
    /// refuses all other private hosts.
    #[schema(value_type = Option<Vec<String>>)]
    pub(super) allowed_hosts: Option<Items<256>>,
    /// Whether commands may use TCP: true, false, or the ports that they may connect to. True is never
    /// for the ports of the node, of the other nodes, and of their Redis. Where no sandbox can prevent
    /// it, commands may use TCP unless this names ports; then they do not run.
    #[schema(value_type = Option<NetworkDocument>, default = false)]
    pub(super) network: Option<Value>,
}

/// The `network` of `permissions`, as it is written.
#[derive(Deserialize, ToSchema)]
#[schema(as = NetworkSettings)]
#[serde(untagged)]
#[expect(dead_code, reason = "it is a schema; `permissions.rs` reads the value")]
pub(super) enum NetworkDocument {
    All(bool),
    Ports(NetworkPortsDocument),
}

/// The TCP ports that commands may connect to. They accept no connections.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NetworkPorts)]
pub(super) struct NetworkPortsDocument {
    #[schema(value_type = Vec<u16>, min_items = 1, max_items = 64)]
    pub(super) ports: Items<64>,
}

/// How a failed model call is retried. It is retried only if nothing of its reply has arrived.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RetrySettings)]
pub(super) struct RetryDocument {
    /// How often the model is called at most, including the first attempt.
    #[schema(value_type = Option<u32>, default = 3, minimum = 1, maximum = 20)]
    pub(super) max_attempts: Option<Whole<1, 20>>,
    /// A duration: the back-off after the first attempt. It doubles after each further one.
    #[schema(value_type = Option<String>, default = "500ms")]
    pub(super) base: Option<PositiveDuration>,
    /// A duration: the longest back-off.
    #[schema(value_type = Option<String>, default = "8s")]
    pub(super) max: Option<PositiveDuration>,
}
