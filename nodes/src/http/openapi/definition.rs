//! The shape of an agent's definition, for the document; its parser is in `abide_actors::agent`.
#![expect(dead_code, reason = "only the schemas are used")]

use std::collections::BTreeMap;

use abide_conversation::AgentName;
use abide_conversation::event::{Executor, Intent, OnInterrupt};
use abide_conversation::permission::PermissionPhase;
use abide_conversation::usage::Budget;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// An agent. Unknown keys are an error. Null is the same as absent, except for `client_grace`.
#[derive(ToSchema)]
pub(in crate::http) struct AgentDefinition {
    /// In a PUT it may be left out; the path has it.
    name: Option<AgentName>,
    #[schema(max_length = 16384)]
    description: Option<String>,
    model: ModelSettings,
    system_prompt: Option<String>,
    /// A duration: how long an open suspension may wait.
    #[schema(default = "300s", example = "5m")]
    suspension_timeout: Option<String>,
    /// Model calls in one turn.
    #[schema(default = 25, minimum = 1, maximum = 1000)]
    max_steps: Option<u32>,
    budget: Option<Budget>,
    retry: Option<RetrySettings>,
    /// A duration: how long a client call waits for a page when no event stream is open; null: for
    /// its timeout.
    #[schema(default = "5s")]
    client_grace: Option<String>,
    audit: Option<AuditSettings>,
    /// A JSON Schema: every turn is then structured.
    response_format: Option<Map<String, Value>>,
    /// Handed to every tool call; a conversation's and a message's own win.
    assigns: Option<Map<String, Value>>,
    workspace: Option<WorkspaceSettings>,
    permissions: Option<PermissionSettings>,
    /// By name, `[A-Za-z0-9_-]{1,32}`: the servers whose tools `tools` may name; at most 16.
    /// Defining an agent connects to none of them.
    mcp_servers: Option<BTreeMap<String, McpServer>>,
    /// The program's middleware around the runs of all its server tools, outermost first.
    #[schema(max_items = 16)]
    middleware: Option<Vec<String>>,
    #[schema(max_items = 256)]
    tools: Option<Vec<ToolDefinition>>,
    #[schema(max_items = 64)]
    hooks: Option<Vec<HookDefinition>>,
    /// What `pre` hooks may add to one step, in tokens. More halts the turn.
    #[schema(default = 4000, minimum = 1, maximum = 1_000_000)]
    injection_reserve: Option<u32>,
    /// How many tokens a prompt may have, what hooks may add included; never more than three
    /// quarters of the model's window. What is over it is reduced: old results by their `retention`,
    /// then the oldest turns.
    #[schema(default = 30000, minimum = 1, maximum = 10_000_000)]
    working_budget: Option<u32>,
    /// `false`, or how the oldest turns are summarized. By default they are, but for `scripted`.
    #[schema(value_type = Option<SummarySettings>)]
    summary: Option<Value>,
}

/// How the oldest turns are summarized, when a turn has ended and beside those that follow.
#[derive(ToSchema)]
struct SummarySettings {
    /// The agent's own if absent.
    model: Option<ModelSettings>,
    /// What the model is told to do; there is a good one.
    #[schema(max_length = 16384)]
    prompt: Option<String>,
    /// A context of more tokens is summarized. By default three fifths of what `working_budget`
    /// leaves.
    #[schema(minimum = 1, maximum = 10_000_000)]
    over: Option<u32>,
}

/// How long a tool's results are shown to the model once its prompt is over the budget; later ones
/// read `[result expired]`.
#[derive(ToSchema)]
struct RetentionSettings {
    /// `age`: as long as they are at most `value` model steps old; `count`: the newest `value`. If
    /// the tool says nothing, 6 steps.
    mode: Option<RetentionMode>,
    #[schema(minimum = 1)]
    value: Option<u32>,
    /// They are always shown.
    #[schema(default = false)]
    never_evict: Option<bool>,
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
enum RetentionMode {
    Age,
    Count,
}

/// Keeps for operators what was sent to the model and what came back; left out, nothing is kept.
#[derive(ToSchema)]
struct AuditSettings {
    /// A duration of at most 30 days: how long each call is kept, of the newest 1,000 of a
    /// conversation.
    #[schema(example = "24h")]
    ttl: String,
}

/// A server of tools by the Model Context Protocol: exactly one of `url` and `command`.
#[derive(ToSchema)]
struct McpServer {
    /// Where it is reached over streamable HTTP.
    #[schema(max_length = 2048, example = "http://127.0.0.1:9200/mcp")]
    url: Option<String>,
    headers: Option<BTreeMap<String, String>>,
    /// Headers whose values are secret: the names of the variables that hold them.
    #[schema(example = json!({"authorization": "DOCS_AUTHORIZATION"}))]
    headers_env: Option<BTreeMap<String, String>>,
    /// A program that each node starts for itself and speaks to over standard input and output.
    command: Option<String>,
    #[schema(max_items = 64)]
    args: Option<Vec<String>>,
    /// The names of the variables that it gets besides `PATH`, `HOME`, `LANG` and `TMPDIR`.
    #[schema(max_items = 64)]
    env: Option<Vec<String>>,
    /// A duration: how long connecting and listing its tools may take. A model step waits no longer
    /// and goes on with what was listed before.
    #[schema(default = "10s")]
    timeout: Option<String>,
}

/// Where the file tools and `bash` work; left out, a directory of the conversation.
#[derive(ToSchema)]
struct WorkspaceSettings {
    /// An absolute path, on storage that every node mounts.
    root: Option<String>,
    /// Whether all conversations work in this one directory.
    #[schema(default = false)]
    shared: Option<bool>,
}

/// What the agent may do by itself.
#[derive(ToSchema)]
struct PermissionSettings {
    #[schema(default = "default")]
    phase: Option<PermissionPhase>,
    /// Null: all.
    allowed_tools: Option<Vec<String>>,
    /// Wins over everything else.
    disallowed_tools: Option<Vec<String>>,
    /// Hosts, else refused, that `web_fetch` may reach, such as 127.0.0.1.
    allowed_hosts: Option<Vec<String>>,
    /// Whether commands may use the network, where the sandbox could keep them from it.
    #[schema(default = false)]
    network: Option<bool>,
}

/// Which model speaks, and how.
#[derive(ToSchema)]
struct ModelSettings {
    provider: ModelProvider,
    name: Option<String>,
    /// Any compatible server.
    #[schema(example = "http://127.0.0.1:9000/v1")]
    base_url: Option<String>,
    /// The name of the variable that holds the key; never the key.
    #[schema(example = "OPENAI_API_KEY")]
    api_key_env: Option<String>,
    temperature: Option<f64>,
    max_tokens: Option<u32>,
    /// How many tokens the model reads at most, input and output together.
    window: Option<u32>,
    /// Merged into the request's body: what this provider understands besides, such as
    /// `{"reasoning_effort": "low"}`.
    options: Option<Map<String, Value>>,
    prices: Option<Prices>,
    /// Of `scripted`: one entry a step, or rules matched against the last user message.
    script: Option<Vec<Map<String, Value>>>,
}

/// What a million tokens cost, in dollars; for `budget`, and for `cost_usd` in usage.
#[derive(ToSchema)]
struct Prices {
    input: Option<f64>,
    output: Option<f64>,
    /// Input that was read from the provider's cache; as other input if absent.
    cached_input: Option<f64>,
    /// Input that was written into it; the same.
    cache_write: Option<f64>,
}

/// Who runs the model.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
enum ModelProvider {
    Scripted,
    Openai,
    OpenaiResponses,
    Anthropic,
    Gemini,
    Ollama,
}

/// How a model call is repeated before its first token.
#[derive(ToSchema)]
struct RetrySettings {
    #[schema(default = 3, minimum = 1, maximum = 20)]
    max_attempts: Option<u32>,
    /// A duration.
    #[schema(default = "500ms")]
    base: Option<String>,
    /// A duration.
    #[schema(default = "8s")]
    max: Option<String>,
}

/// A tool, unique by name in its agent; or a set: `builtin` alone, or `mcp` with the rules that hold
/// for each of its tools.
#[derive(ToSchema)]
pub(in crate::http) struct ToolDefinition {
    /// Of every tool.
    #[schema(pattern = "^[A-Za-z0-9_-]{1,64}$")]
    name: Option<String>,
    /// `all`, or a list of names; nothing else stands beside it.
    builtin: Option<Value>,
    /// The name of an MCP server of the agent: all of its tools, named `SERVER_TOOL`. Beside it may
    /// stand `approval`, `audience`, `intent`, `on_interrupt`, `provider_options`, `read_only`,
    /// `retention`, `run_timeout`, `streaming` and `timeout`. What the server says of its tools
    /// loosens none of these.
    mcp: Option<String>,
    #[schema(max_length = 16384)]
    description: Option<String>,
    /// A JSON Schema of type object, passed through as written.
    parameters: Option<Map<String, Value>>,
    /// `server` if absent.
    executor: Option<Executor>,
    /// `auto` (default), `requires_approval`, or `{"when": CONDITION}`, a CEL expression over
    /// `args`, `principal` and `conversation`. For `server` and `client` tools only.
    approval: Option<Value>,
    /// Of a server tool: the program's middleware around its runs, within the agent's own, outermost
    /// first.
    #[schema(max_items = 16)]
    middleware: Option<Vec<String>>,
    run: Option<RunTarget>,
    /// A duration: how long one run may take.
    #[schema(default = "60s")]
    run_timeout: Option<String>,
    /// What happens to a run whose node dies; `redispatch` if absent.
    on_interrupt: Option<OnInterrupt>,
    /// A duration, of its suspensions; overrides `suspension_timeout`.
    timeout: Option<String>,
    /// Whether it reports progress while it runs.
    #[schema(default = false)]
    streaming: Option<bool>,
    /// Whether it changes nothing, and so may run while the conversation plans.
    #[schema(default = false)]
    read_only: Option<bool>,
    /// Whether every call is to be decided anew: no decision about it may be remembered.
    #[schema(default = false)]
    strict: Option<bool>,
    /// `compute` if absent.
    intent: Option<Intent>,
    /// `model` if absent.
    audience: Option<Audience>,
    #[schema(max_items = 16)]
    aliases: Option<Vec<String>>,
    /// A template over `args`, `principal` and `conversation`.
    #[schema(example = "Send to {{args.to}}?")]
    confirmation_message: Option<String>,
    /// Of a client tool: whether its page must answer.
    #[schema(default = true)]
    requires_response: Option<bool>,
    /// Of a client tool: the result when no response is required.
    default_result: Option<Value>,
    /// Of a human or client tool: a JSON Schema that an answer must satisfy.
    result_schema: Option<Map<String, Value>>,
    /// Provider name to opaque JSON, merged into the wire definition.
    provider_options: Option<Map<String, Value>>,
    retention: Option<RetentionSettings>,
}

/// How a server tool runs: exactly one of these.
#[derive(ToSchema)]
struct RunTarget {
    http: Option<HttpTarget>,
    /// The name of a tool of the program.
    native: Option<String>,
    /// The name of a built-in tool.
    builtin: Option<String>,
    /// The name of an agent: a child conversation of it answers, with its last message.
    agent: Option<String>,
    mcp: Option<McpTarget>,
}

/// One tool of an MCP server, which brings its parameters, and its description unless the entry has
/// another.
#[derive(ToSchema)]
struct McpTarget {
    /// A name in `mcp_servers`.
    server: String,
    /// The tool's name there.
    #[schema(max_length = 256)]
    tool: String,
}

/// A tool behind HTTP.
#[derive(ToSchema)]
struct HttpTarget {
    #[schema(max_length = 2048, example = "http://127.0.0.1:9100/send")]
    url: String,
    headers: Option<Map<String, Value>>,
    /// The name of the variable that holds the secret; requests are then signed after Standard
    /// Webhooks.
    signing_secret_env: Option<String>,
}

/// Who is asked, or told, on the way of a conversation: `http` or `native`, exactly one of them.
///
/// A server is sent a POST with the event as JSON (`hook`, `on`, `conversation_id`, `turn_id`,
/// `principal`, `assigns`, and what happens) and answers 2xx with a JSON object of at most one key,
/// or without a body; anything else is a failure. To `pre`: `content` (blocks or a text, for the end
/// of the context) or `halt` (a reason); a failure halts the turn. To `post`: `halt` or `refuse` (a
/// reason; the model is asked once more, a second refusal in a turn halts it). To `stream`: `text`,
/// which stands in place of what was said. To `PreToolUse`: `deny` (a reason), `args` (judged as if
/// the model had given them) or `halt`; a failure denies. The other events are told after their
/// commit, in the order of the conversation's journal and at most once: a node that dies, or whose
/// queue is full, loses them.
#[derive(ToSchema)]
struct HookDefinition {
    /// Unique in its agent; left out, `on` and the place in the list.
    #[schema(pattern = "^[A-Za-z0-9_-]{1,64}$")]
    name: Option<String>,
    on: HookMoment,
    /// A regular expression that the tool's whole name satisfies, in upper or lower case; of hooks on
    /// tools only.
    #[schema(example = "write|edit")]
    r#match: Option<String>,
    http: Option<HttpTarget>,
    /// The name of a hook of the program.
    native: Option<String>,
    /// A duration of at most 60s: how long one call may take in all.
    #[schema(default = "5s")]
    timeout: Option<String>,
    /// Of `pre` hooks: neighbours with the same text are asked at once, and may only add.
    parallel: Option<String>,
    /// Of `pre` hooks: what it adds is journalled, once a step; else it is for one step only.
    #[schema(default = false)]
    durable: Option<bool>,
    /// Of `post` hooks: a failure halts the turn; of `stream` hooks: a failure fails it.
    #[schema(default = false)]
    fail_closed: Option<bool>,
}

/// When a hook is called: of summaries, `PreCompact` before and `PostCompact` after.
#[derive(ToSchema)]
enum HookMoment {
    #[schema(rename = "pre")]
    Pre,
    #[schema(rename = "post")]
    Post,
    #[schema(rename = "stream")]
    Stream,
    PreToolUse,
    PostToolUse,
    PostToolUseFailure,
    SessionStart,
    SessionEnd,
    UserPromptSubmit,
    Stop,
    StopFailure,
    SubagentStart,
    SubagentStop,
    PreCompact,
    PostCompact,
    PermissionDenied,
    Notification,
}

/// Who may see and call a tool.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
enum Audience {
    Model,
    User,
    All,
}
