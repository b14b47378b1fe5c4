//! One entry of `tools`, checked against the rules of its executor.

mod aliases;
mod approval;
mod mcp_tool_set;
mod policy;
mod target;
mod waiting;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use abide_conversation::event::Executor;
use serde_json::{Map, Value, json};

use super::document::RetentionModeDocument as Mode;
use super::document::{Items, RetentionDocument, RunDocument, Text, ToolDocument};
use super::error::DefinitionError;
use super::mcp_servers::Servers;
use super::reader::Mistakes;
use super::{middleware, schema};
use crate::definition::{
    Builtin, ClientAnswer, Definition, MAX_TOOL_NAME_BYTES, McpToolSet, ServerTool, Target, Tool,
    ToolKind,
};
use crate::expressions::schema::{MAX_COMPILED_BYTES_IN_ALL, Schema};
use crate::expressions::template::Template;
use crate::limits::cut;
use crate::model::Provider;
use crate::model::prompt::retention::{Retention, RetentionMode};
use crate::tools::Extensions;
pub(super) use policy::limits;
use target::ResolvedTarget;

/// How long a run may take, unless the tool says otherwise.
const DEFAULT_RUN_TIMEOUT: Duration = Duration::from_secs(60);

/// Reads the tools that a client declares for its conversation or for a turn: `client` and `human`
/// ones.
///
/// Compiles their schemas, so it is done once and what it returns is kept.
pub fn client_tools(entries: &[Value]) -> Result<Arc<[Tool]>, Vec<DefinitionError>> {
    let mut mistakes = Mistakes::default();
    let object = json!({"tools": entries});
    let items: Option<ClientTools> = mistakes.read("", object);
    let items = items.and_then(|read| read.tools).map(|tools| tools.0).unwrap_or_default();
    let known = KnownNames { extensions: &Extensions::new(), servers: &Servers::new() };
    let Entries { tools: read, .. } = tools(&mut mistakes, items, &known, &mut Vec::new());
    for tool in &read {
        match tool.executor() {
            Executor::Client | Executor::Human => {}
            Executor::Server | Executor::Provider => {
                let mut own = Mistakes::new(Some(&tool.name), "");
                own.add("executor", "of a tool that a client declares must be client or human");
                mistakes.absorb(own);
            }
        }
    }
    match mistakes.finish() {
        mistakes if mistakes.is_empty() => Ok(read.into()),
        mistakes => Err(mistakes),
    }
}

#[derive(serde::Deserialize)]
struct ClientTools {
    /// None if the list has a wrong shape, which is a mistake of its own.
    tools: Option<Items<256>>,
}

/// What the names in entries may refer to.
pub(super) struct KnownNames<'a> {
    pub(super) extensions: &'a Extensions,
    pub(super) servers: &'a Servers,
}

/// The entries of `tools`: declared tools, and sets of MCP servers.
#[derive(Default)]
pub(super) struct Entries {
    pub(super) tools: Vec<Tool>,
    pub(super) sets: Vec<McpToolSet>,
}

/// Reads the tools of a definition; those with mistakes are left out.
pub(super) fn tools(
    mistakes: &mut Mistakes,
    items: Vec<Value>,
    known: &KnownNames<'_>,
    warnings: &mut Vec<String>,
) -> Entries {
    let mut entries = Entries::default();
    let mut names = BTreeSet::new();
    for (at, item) in items.into_iter().enumerate() {
        let field = format!("tools[{at}]");
        let Value::Object(object) = item else {
            mistakes.add(&field, "must be an object");
            continue;
        };
        if object.contains_key("mcp") {
            let Some(prototype) = mcp_tool_set::read(mistakes, &field, object, known) else {
                continue;
            };
            if entries.sets.iter().any(|set| set.prototype.name == prototype.name) {
                // With two sets of one server, it would be unclear whose rules apply.
                mistakes.add(&format!("{field}.mcp"), "is the set of a server that has one");
                continue;
            }
            entries.sets.push(McpToolSet { insert_before: entries.tools.len(), prototype });
        } else if object.len() == 1 && object.contains_key("builtin") {
            for builtin in builtins(mistakes, &format!("{field}.builtin"), &object["builtin"]) {
                if !names.insert(builtin.name().to_owned()) {
                    let message = format!("{} is the name of two tools", builtin.name());
                    mistakes.add(&format!("{field}.builtin"), message);
                    continue;
                }
                let mut own = Mistakes::new(Some(builtin.name()), "");
                let run = RunDocument {
                    builtin: Some(Text(builtin.name().to_owned())),
                    ..Default::default()
                };
                let document = ToolDocument { run: Some(run), ..ToolDocument::default() };
                let name = builtin.name().to_owned();
                entries.tools.extend(tool(&mut own, name, document, known, warnings));
                mistakes.absorb(own);
            }
        } else {
            let own = own_entry(mistakes, &field, object, &mut names, known, warnings);
            entries.tools.extend(own);
        }
    }
    check_memory(mistakes, &entries.tools);
    aliases::warn(&entries.tools, warnings);
    entries
}

/// Each schema is bounded, but there may be hundreds.
fn check_memory(mistakes: &mut Mistakes, tools: &[Tool]) {
    let bytes = tools.iter().map(Tool::compiled_bytes).fold(0, usize::saturating_add);
    if bytes > MAX_COMPILED_BYTES_IN_ALL {
        let most = MAX_COMPILED_BYTES_IN_ALL / (1024 * 1024);
        let message = format!("have schemas that take more than {most} MB when compiled");
        mistakes.add("tools", message);
    }
}

/// A tool that has an entry of its own.
fn own_entry(
    mistakes: &mut Mistakes,
    field: &str,
    mut object: Map<String, Value>,
    names: &mut BTreeSet<String>,
    known: &KnownNames<'_>,
    warnings: &mut Vec<String>,
) -> Option<Tool> {
    let name = match object.remove("name") {
        Some(Value::String(name)) if is_name(&name) => name,
        given => {
            add_name_mistake(mistakes, field, given.as_ref().and_then(Value::as_str));
            return None;
        }
    };
    let mut own = Mistakes::new(Some(&name), "");
    if !names.insert(name.clone()) {
        own.add("name", "is the name of two tools");
    }
    let document = own.read("", Value::Object(object));
    let tool = document.and_then(|document: ToolDocument| {
        if document.builtin.is_some() {
            own.add("builtin", "is not a known key");
        }
        tool(&mut own, name, document, known, warnings)
    });
    mistakes.absorb(own);
    tool
}

/// The tools that an entry such as `{builtin: all}` or `{builtin: [read]}` adds.
fn builtins(mistakes: &mut Mistakes, field: &str, set: &Value) -> Vec<Builtin> {
    match set {
        Value::String(all) if all == "all" => return Builtin::ALL.to_vec(),
        Value::Array(names) if names.len() <= Builtin::ALL.len() => {
            let mut named = |(at, name): (usize, &Value)| {
                let builtin = name.as_str().and_then(Builtin::from_name);
                if builtin.is_none() {
                    let name = cut(&name.to_string(), MAX_TOOL_NAME_BYTES);
                    let message = format!("names no built-in tool: {name}");
                    mistakes.add(&format!("{field}[{at}]"), message);
                }
                builtin
            };
            return names.iter().enumerate().filter_map(&mut named).collect();
        }
        Value::Null => {}
        _ => mistakes.add(field, "must be all, or a list of built-in tools"),
    }
    Vec::new()
}

/// Adds the mistake that a tool's name is illegal, under the name as it was given, or else under
/// its place in the list.
fn add_name_mistake(mistakes: &mut Mistakes, field: &str, given: Option<&str>) {
    let legal = "must be [A-Za-z0-9_-]{1,64}";
    let Some(given) = given else {
        return mistakes.add(&format!("{field}.name"), legal);
    };
    let mut own = Mistakes::new(Some(&cut(given, MAX_TOOL_NAME_BYTES)), "");
    own.add("name", legal);
    mistakes.absorb(own);
}

fn is_name(name: &str) -> bool {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=MAX_TOOL_NAME_BYTES).contains(&name.len()) && name.chars().all(is_legal)
}

fn tool(
    mistakes: &mut Mistakes,
    name: String,
    mut document: ToolDocument,
    known: &KnownNames<'_>,
    warnings: &mut Vec<String>,
) -> Option<Tool> {
    let executor = document.executor.unwrap_or(Executor::Server);
    let described = target::read(mistakes, &mut document, executor, known);
    let target = described.as_ref().and_then(|described| described.target.as_ref());
    let is_worked = matches!(target, Some(Target::Queue(_)));
    let waiting_rules = waiting::rules(mistakes, &mut document, executor);
    check_rules(mistakes, &document, executor, is_worked);
    warn_idle(&document, &name, executor, warnings);
    let is_described = described.is_some();
    let ResolvedTarget { mut target, description, parameters, run_timeout } =
        described.unwrap_or_default();
    let parameters = parameters.or(document.parameters).unwrap_or_else(|| match &target {
        Some(Target::Agent(_)) => {
            json!({"type": "object", "properties": {"prompt": {"type": "string"}}})
        }
        _ => json!({"type": "object", "properties": {}}),
    });
    let parameters = arguments(mistakes, &parameters);
    let approval = approval::approval(mistakes, document.approval, executor);
    let middleware = middleware::of_tool(mistakes, document.middleware, executor, known.extensions);
    let aliases = aliases::aliases(mistakes, document.aliases);
    let confirmation_message = confirmation_message(mistakes, document.confirmation_message);
    let result_schema = schema(mistakes, "result_schema", document.result_schema);
    if let Some(Target::Queue(queue)) = &mut target {
        queue.result_schema = result_schema.clone();
    }
    let run_timeout = document.run_timeout.map(|span| span.0).or(run_timeout);
    let retry = policy::retry(mistakes, document.retry, executor, target.as_ref());
    let limits = policy::of_tool(mistakes, document.limits, executor, target.as_ref());
    let server = |target| ServerTool {
        target,
        run_timeout: run_timeout.unwrap_or(DEFAULT_RUN_TIMEOUT),
        on_interrupt: document.on_interrupt.unwrap_or_default(),
        streaming: document.streaming.unwrap_or(false),
        retry,
        limits,
    };
    let kind = match executor {
        Executor::Server => target.map(server).map(ToolKind::Server),
        Executor::Client if document.requires_response == Some(false) => {
            let result = document.default_result.unwrap_or_default();
            Some(ToolKind::Client(ClientAnswer::Default(result)))
        }
        Executor::Client => Some(ToolKind::Client(ClientAnswer::Awaited { result_schema })),
        Executor::Human => Some(ToolKind::Human { result_schema }),
        Executor::Provider => Some(ToolKind::Provider),
    };
    let (approval, approvers) = approval.unzip();
    waiting::check(mistakes, waiting_rules.as_deref(), approval.as_ref(), kind.as_ref());
    let tool = Tool {
        name,
        description: document.description.map(|text| text.0).or(description).unwrap_or_default(),
        read_only: document.read_only.unwrap_or(false),
        strict: document.strict.unwrap_or(false),
        middleware,
        timeout: document.timeout.map(|span| span.0),
        waiting_rules,
        intent: document.intent.unwrap_or_default(),
        audience: document.audience.unwrap_or_default(),
        aliases,
        confirmation_message,
        provider_options: provider_options(mistakes, document.provider_options),
        retention: retention(mistakes, document.retention),
        parameters: parameters?,
        approval: approval?,
        approvers: approvers?,
        kind: kind?,
    };
    is_described.then_some(tool)
}

/// Refuses the keys that only some executors have.
fn check_rules(
    mistakes: &mut Mistakes,
    document: &ToolDocument,
    executor: Executor,
    is_worked: bool,
) {
    let is_answered = is_worked || matches!(executor, Executor::Human | Executor::Client);
    let is_client = executor == Executor::Client;
    if document.result_schema.is_some() && !is_answered {
        mistakes.add("result_schema", "is for a tool of a person, a client or a worker only");
    }
    if document.default_result.is_some() && !is_client {
        mistakes.add("default_result", "is for a client tool only");
    }
    if document.requires_response == Some(false) && !is_client {
        mistakes.add("requires_response", "is for a client tool only");
    }
}

/// Warns of settings that have no effect. They are legal.
fn warn_idle(document: &ToolDocument, name: &str, executor: Executor, warnings: &mut Vec<String>) {
    for (field, is_given) in [
        ("run_timeout", document.run_timeout.is_some()),
        ("on_interrupt", document.on_interrupt.is_some()),
        ("streaming", document.streaming.is_some()),
    ] {
        if executor != Executor::Server && is_given {
            warnings.push(format!("tool {name}: {field}: only a server tool's runs heed it"));
        }
    }
}

/// The schema of the arguments, which are always an object.
fn arguments(mistakes: &mut Mistakes, source: &Value) -> Option<Schema> {
    let schema = match source.get("type") {
        None => Schema::compile(source),
        Some(kind) if *kind == "object" => Schema::compile(source),
        Some(_) => Err("must describe an object: type: object".to_owned()),
    };
    schema.map_err(|message| mistakes.add("parameters", message)).ok()
}

fn confirmation_message(mistakes: &mut Mistakes, source: Option<Text<16_384>>) -> Option<Template> {
    let compiled = Template::compile(&source?.0);
    compiled.map_err(|message| mistakes.add("confirmation_message", message)).ok()
}

/// Warns of tools that the agent's provider is to run and does not learn of.
pub(super) fn warnings(definition: &Definition) -> Vec<String> {
    let provider = definition.model.provider;
    let is_lost = |tool: &&Tool| match tool.kind {
        ToolKind::Provider => !tool.provider_options.contains_key(provider.name()),
        ToolKind::Server(_) | ToolKind::Client(_) | ToolKind::Human { .. } => false,
    };
    // The scripted model is shown no tools.
    let tools = definition.tools.iter().filter(|_| provider != Provider::Scripted);
    let warning = |tool: &Tool| {
        let (name, provider) = (&tool.name, provider.name());
        format!("tool {name}: provider_options.{provider} is missing: the model does not see it")
    };
    tools.filter(is_lost).map(warning).collect()
}

/// Reads `provider_options`: one object per provider.
fn provider_options(
    mistakes: &mut Mistakes,
    options: Option<Map<String, Value>>,
) -> Map<String, Value> {
    let mut options = options.unwrap_or_default();
    options.retain(|_, option| !option.is_null());
    for (provider, option) in &options {
        if !option.is_object() {
            mistakes.add(&format!("provider_options.{provider}"), "must be an object");
        }
    }
    options
}

/// `{mode: age | count, value: n, never_evict: bool}`.
fn retention(mistakes: &mut Mistakes, document: Option<RetentionDocument>) -> Retention {
    let Some(document) = document else { return Retention::default() };
    let never_evict = document.never_evict.unwrap_or(false);
    let value = document.value.map(|value| value.0);
    let keep = match (document.mode, value) {
        (Some(Mode::Age), Some(steps)) => RetentionMode::Age(steps),
        (Some(Mode::Count), Some(newest)) => RetentionMode::Count(newest),
        (None | Some(_), _) if never_evict => Retention::default().keep,
        (Some(_), None) => {
            mistakes.add_missing("retention.value");
            Retention::default().keep
        }
        (None, _) => {
            if !mistakes.has("retention.mode") {
                mistakes.add("retention.mode", "must be one of age, count");
            }
            Retention::default().keep
        }
    };
    Retention { keep, never_evict }
}
