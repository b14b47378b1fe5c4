//! An entry of `tools`, and how a tool runs.

use std::collections::BTreeSet;

use abide_conversation::approval::{DenyRule, Party};
use abide_conversation::event::{Executor, Intent, OnInterrupt};
use abide_conversation::identity::Role;
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{Items, LimitsDocument, PositiveDuration, Text, ToolRetryDocument, Whole};
use crate::definition::Audience;

/// A tool, unique by name in its agent; or a set: `builtin` alone, or `mcp` with the rules that hold
/// for each of its tools.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ToolDefinition)]
pub struct ToolDocument {
    /// Required, except for a set.
    #[schema(value_type = Option<String>, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    #[expect(dead_code, reason = "taken out of the entry before the rest is read")]
    pub(in crate::agent) name: Option<Value>,
    /// `all`, or a list of names; nothing else stands beside it.
    pub(in crate::agent) builtin: Option<Value>,
    /// The name of an MCP server of the agent: all of its tools, named `SERVER_TOOL`. Beside it may
    /// stand `approval`, `audience`, `intent`, `on_interrupt`, `provider_options`, `read_only`,
    /// `retention`, `retry`, `run_timeout`, `streaming`, `strict` and `timeout`. What the server says of its
    /// tools loosens none of these.
    #[schema(value_type = Option<String>)]
    #[expect(dead_code, reason = "taken out of the entry before the rest is read")]
    pub(in crate::agent) mcp: Option<Value>,
    #[schema(value_type = Option<String>, max_length = 16384)]
    pub(in crate::agent) description: Option<Text<16_384>>,
    /// A JSON Schema of type object, passed through as written.
    #[schema(value_type = Option<Map<String, Value>>)]
    pub(in crate::agent) parameters: Option<Value>,
    /// `server` if absent.
    pub(in crate::agent) executor: Option<Executor>,
    /// `auto` (default), `requires_approval`, or who must approve which calls. For `server` and
    /// `client` tools only.
    #[schema(value_type = Option<ApprovalSchema>)]
    pub(in crate::agent) approval: Option<Value>,
    /// Server tools only: the program's middleware around its runs, inside the agent's own, outermost
    /// first.
    #[schema(value_type = Option<Vec<String>>, max_items = 16)]
    pub(in crate::agent) middleware: Option<Items<16>>,
    pub(in crate::agent) run: Option<RunDocument>,
    /// A duration: how long one run may take.
    #[schema(value_type = Option<String>, default = "60s")]
    pub(in crate::agent) run_timeout: Option<PositiveDuration>,
    /// The fate of a run whose node dies; `redispatch` if absent.
    pub(in crate::agent) on_interrupt: Option<OnInterrupt>,
    /// Server tools only: when a failed attempt is followed by another one; never, if absent.
    pub(in crate::agent) retry: Option<ToolRetryDocument>,
    /// Server tools only: how many of its calls may run; any, if absent.
    pub(in crate::agent) limits: Option<LimitsDocument>,
    /// A duration: how long its suspensions wait; overrides `suspension_timeout`.
    #[schema(value_type = Option<String>)]
    pub(in crate::agent) timeout: Option<PositiveDuration>,
    /// Durations: how long before its expiry a suspension is told to expire.
    #[schema(value_type = Option<Vec<String>>, max_items = 8, example = json!(["1h", "10m"]))]
    pub(in crate::agent) remind: Option<Items<8>>,
    /// What becomes of a call whose suspension expires: `error` (default); `deny`, for an approval; or
    /// `{result: …}`, what a `human` or `client` tool then answers.
    #[schema(value_type = Option<Value>)]
    pub(in crate::agent) on_expiry: Option<Value>,
    /// Who else may approve a call that has waited for so long; the earliest first.
    #[schema(value_type = Option<Vec<EscalationDocument>>, max_items = 8)]
    pub(in crate::agent) escalate: Option<Items<8>>,
    /// Whether it reports progress while it runs.
    #[schema(default = false)]
    pub(in crate::agent) streaming: Option<bool>,
    /// Whether it changes nothing, and so may run while the conversation plans.
    #[schema(default = false)]
    pub(in crate::agent) read_only: Option<bool>,
    /// Whether every call needs a decision of its own: none may be remembered.
    #[schema(default = false)]
    pub(in crate::agent) strict: Option<bool>,
    /// `compute` if absent.
    pub(in crate::agent) intent: Option<Intent>,
    /// `model` if absent.
    pub(in crate::agent) audience: Option<Audience>,
    #[schema(value_type = Option<Vec<String>>, max_items = 16)]
    pub(in crate::agent) aliases: Option<Items<16>>,
    /// A template over `args`, `principal` and `conversation`.
    #[schema(value_type = Option<String>, example = "Send to {{args.to}}?")]
    pub(in crate::agent) confirmation_message: Option<Text<16_384>>,
    /// Client tools only: whether the page must answer.
    #[schema(default = true)]
    pub(in crate::agent) requires_response: Option<bool>,
    /// Client tools only: the result when no response is required.
    pub(in crate::agent) default_result: Option<Value>,
    /// Tools of people, clients and workers only: a JSON Schema that an answer must satisfy.
    #[schema(value_type = Option<Map<String, Value>>)]
    pub(in crate::agent) result_schema: Option<Value>,
    /// Provider name to opaque JSON, merged into the wire definition.
    pub(in crate::agent) provider_options: Option<Map<String, Value>>,
    pub(in crate::agent) retention: Option<RetentionDocument>,
}

/// How a server tool runs: exactly one of these.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RunTarget)]
pub(in crate::agent) struct RunDocument {
    pub(in crate::agent) http: Option<HttpDocument>,
    /// The name of a tool of the program.
    #[schema(value_type = Option<String>)]
    pub(in crate::agent) native: Option<Text<256>>,
    /// The name of a built-in tool.
    #[schema(value_type = Option<String>)]
    pub(in crate::agent) builtin: Option<Text<256>>,
    /// The name of an agent: a child conversation of it answers, with its last message.
    #[schema(value_type = Option<String>)]
    pub(in crate::agent) agent: Option<Text<256>>,
    pub(in crate::agent) mcp: Option<McpToolDocument>,
    /// The name of a queue, `[a-z0-9][a-z0-9_-]{0,63}`: a worker takes the call from it and answers.
    #[schema(value_type = Option<String>)]
    pub(in crate::agent) queue: Option<Text<64>>,
}

/// One tool of an MCP server, which brings its parameters, and its description unless the entry has
/// another.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = McpTarget)]
pub(in crate::agent) struct McpToolDocument {
    /// A name in `mcp_servers`.
    #[schema(value_type = String)]
    pub(in crate::agent) server: Option<Text<256>>,
    /// The tool's name there.
    #[schema(value_type = String, max_length = 256)]
    pub(in crate::agent) tool: Option<Text<256>>,
}

/// A tool behind HTTP.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = HttpTarget)]
pub(in crate::agent) struct HttpDocument {
    #[schema(value_type = String, max_length = 2048, example = "http://127.0.0.1:9100/send")]
    pub(in crate::agent) url: Option<Text<2_048>>,
    pub(in crate::agent) headers: Option<Map<String, Value>>,
    /// The names of the environment variables that hold the values of these headers.
    #[schema(value_type = Option<Map<String, Value>>)]
    pub(in crate::agent) headers_env: Option<Map<String, Value>>,
    /// The name of the variable that holds the secret; requests are then signed after Standard
    /// Webhooks.
    #[schema(value_type = Option<String>)]
    pub(in crate::agent) signing_secret_env: Option<Text<128>>,
}

/// How long a tool's results are shown to the model once its prompt is over the budget; expired
/// results read `[result expired]`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RetentionSettings)]
pub(in crate::agent) struct RetentionDocument {
    /// `age`: as long as they are at most `value` model steps old; `count`: the newest `value`. If
    /// the tool says nothing, 6 steps.
    pub(in crate::agent) mode: Option<RetentionModeDocument>,
    #[schema(value_type = Option<u32>, minimum = 1)]
    pub(in crate::agent) value: Option<Whole<1, { u32::MAX }>>,
    /// They are always shown.
    #[schema(default = false)]
    pub(in crate::agent) never_evict: Option<bool>,
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = RetentionMode, rename_all = "snake_case")]
pub(in crate::agent) enum RetentionModeDocument {
    Age,
    Count,
}

/// `approval` of a tool, as the description has it.
#[derive(ToSchema)]
#[schema(as = ToolApproval)]
#[serde(untagged)]
pub enum ApprovalSchema {
    Word(ApprovalWord),
    Rule(ApprovalDocument),
}

/// Whether every call needs an approval, or none.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalWord {
    Auto,
    RequiresApproval,
}

/// Which calls need an approval, and whose.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ApprovalRule)]
pub struct ApprovalDocument {
    /// A CEL expression over `args`, `principal` and `conversation`; absent: every call.
    #[schema(value_type = Option<String>)]
    pub(in crate::agent) when: Option<Text<16_384>>,
    /// Absent: one approver, who is not the requester.
    pub(in crate::agent) by: Option<ApproversDocument>,
}

/// Who else may approve a call, from when on.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ToolEscalation)]
pub struct EscalationDocument {
    /// A duration, counted from the suspension.
    #[schema(value_type = String, example = "30m")]
    pub(in crate::agent) after: PositiveDuration,
    pub(in crate::agent) by: EscalationGroupDocument,
}

/// More approvers: those of the tool's `by` stay.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ToolEscalationGroup)]
pub struct EscalationGroupDocument {
    /// Each has one of these; `[approver]` if absent.
    #[schema(min_items = 1)]
    pub(in crate::agent) roles: Option<BTreeSet<Role>>,
    /// Each is in one of these; anybody is, if there are none.
    #[schema(value_type = Option<Vec<String>>, max_items = 32)]
    pub(in crate::agent) groups: Option<Items<32>>,
}

/// Who may approve. It counts where requests are authenticated.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Approvers)]
pub struct ApproversDocument {
    /// An approver has one of these; `[approver]` if absent.
    #[schema(min_items = 1)]
    pub(in crate::agent) roles: Option<BTreeSet<Role>>,
    /// An approver is in one of these; anybody is, if there are none.
    #[schema(value_type = Option<Vec<String>>, max_items = 32)]
    pub(in crate::agent) groups: Option<Items<32>>,
    /// How many must approve.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 16, default = 1)]
    pub(in crate::agent) quorum: Option<Whole<1, 16>>,
    /// Who may not approve, whatever their roles; `[requester]` if absent.
    pub(in crate::agent) not: Option<BTreeSet<Party>>,
    /// Whether a program may approve by its API key.
    #[schema(default = false)]
    pub(in crate::agent) services: Option<bool>,
    /// A duration: how long ago an approver may have proved a second factor; absent: none is needed.
    #[schema(value_type = Option<String>)]
    pub(in crate::agent) mfa_within: Option<PositiveDuration>,
    /// Whether one denial denies, or as many as must approve.
    pub(in crate::agent) deny: Option<DenyRule>,
}
