//! One entry of `tools`, checked against the rules of its executor.

mod aliases;
mod mcp_tool_set;
pub(super) mod target;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use abide_conversation::event::Executor;
use serde_json::{Map, Value, json};

use super::error::DefinitionError;
use super::field_reader::Fields;
use super::mcp_servers::Servers;
use super::{LONGEST_DESCRIPTION, MOST_TOOLS, middleware, schema};
use crate::context::{Retention, RetentionMode};
use crate::mcp::McpToolSet;
use crate::tools::Builtin;
use crate::tools::condition::Condition;
use crate::tools::limits::cut;
use crate::tools::native::Extensions;
use crate::tools::schema::Schema;
use crate::tools::template::Template;
use crate::tools::tool::{Approval, Audience, MAX_TOOL_NAME_BYTES, Target, Tool};
use target::ToolDescription;

/// Other names of one tool.
const MOST_ALIASES: usize = 16;

/// Reads the tools that a client declares for its conversation: `client` and `human` ones.
///
/// Compiles their schemas, so it is done once for a conversation and what it returns is kept.
pub fn client_tools(entries: &[Value]) -> Result<Arc<[Tool]>, Vec<DefinitionError>> {
    let object = Map::from_iter([("tools".to_owned(), Value::from(entries))]);
    let mut fields = Fields::new(None, "", object);
    let mut warnings = Vec::new();
    let known = KnownNames { natives: &Extensions::new(), servers: &Servers::new() };
    let Entries { tools: read, .. } = tools(&mut fields, &known, &mut warnings);
    for tool in &read {
        match tool.executor {
            Executor::Client | Executor::Human => {}
            Executor::Server | Executor::Provider => {
                let mut own = Fields::new(Some(&tool.name), "", Map::new());
                own.wrong("executor", "of a conversation's own tool must be client or human");
                fields.absorb(own);
            }
        }
    }
    match fields.finish() {
        mistakes if mistakes.is_empty() => Ok(read.into()),
        mistakes => Err(mistakes),
    }
}

/// What entries may name.
pub(super) struct KnownNames<'a> {
    pub(super) natives: &'a Extensions,
    pub(super) servers: &'a Servers,
}

/// What the entries of `tools` say.
#[derive(Default)]
pub(super) struct Entries {
    pub(super) tools: Vec<Tool>,
    pub(super) sets: Vec<McpToolSet>,
}

/// Reads the tools of a definition; those with mistakes are left out.
pub(super) fn tools(
    fields: &mut Fields,
    known: &KnownNames<'_>,
    warnings: &mut Vec<String>,
) -> Entries {
    let mut read = Entries::default();
    let mut names = BTreeSet::new();
    for (at, entry) in fields.list("tools", MOST_TOOLS).into_iter().enumerate() {
        let place = format!("tools[{at}]");
        if mcp_tool_set::is_set(&entry) {
            if let Some(template) = mcp_tool_set::read(entry, fields, &place, known) {
                if read.sets.iter().any(|other| other.template.name == template.name) {
                    // Whose rules would hold?
                    fields.wrong(&format!("{place}.mcp"), "is the set of a server that has one");
                    continue;
                }
                read.sets.push(McpToolSet { before: read.tools.len(), template });
            }
            continue;
        }
        if let Some(set) = builtins(&entry, fields, &place) {
            for builtin in set {
                if !names.insert(builtin.name().to_owned()) {
                    let message = format!("{} is the name of two tools", builtin.name());
                    fields.wrong(&format!("{place}.builtin"), message);
                    continue;
                }
                let run = json!({"builtin": builtin.name()});
                let object = Map::from_iter([("run".to_owned(), run)]);
                let mut own = Fields::new(Some(builtin.name()), "", object);
                read.tools.extend(tool(builtin.name().to_owned(), &mut own, known, warnings));
                fields.absorb(own);
            }
            continue;
        }
        let Value::Object(object) = entry else {
            fields.wrong(&place, "must be an object");
            continue;
        };
        let Some(name) = name(&object) else {
            nameless(&object, fields, &place);
            continue;
        };
        let mut own = Fields::new(Some(&name), "", object);
        own.any("name");
        if !names.insert(name.clone()) {
            own.wrong("name", "is the name of two tools");
        }
        read.tools.extend(tool(name, &mut own, known, warnings));
        fields.absorb(own);
    }
    aliases::warn(&read.tools, warnings);
    read
}

/// The tools that an entry such as `{builtin: all}` or `{builtin: [read]}` adds; `None` if it is
/// another kind of entry.
fn builtins(entry: &Value, fields: &mut Fields, place: &str) -> Option<Vec<Builtin>> {
    let set = entry.as_object().filter(|it| it.len() == 1)?.get("builtin")?;
    let place = format!("{place}.builtin");
    match set {
        Value::String(all) if all == "all" => return Some(Builtin::ALL.to_vec()),
        Value::Array(names) if names.len() <= Builtin::ALL.len() => {
            let mut read = |(at, name): (usize, &Value)| {
                let builtin = name.as_str().and_then(Builtin::from_name);
                if builtin.is_none() {
                    let name = cut(&name.to_string(), MAX_TOOL_NAME_BYTES);
                    fields.wrong(
                        &format!("{place}[{at}]"),
                        format!("names no built-in tool: {name}"),
                    );
                }
                builtin
            };
            return Some(names.iter().enumerate().filter_map(&mut read).collect());
        }
        Value::Null => {}
        _ => fields.wrong(&place, "must be all, or a list of built-in tools"),
    }
    Some(Vec::new())
}

fn name(object: &Map<String, Value>) -> Option<String> {
    object.get("name")?.as_str().filter(|name| is_name(name)).map(str::to_owned)
}

/// A tool whose name is wrong is named as it was given, or else by its place.
fn nameless(object: &Map<String, Value>, fields: &mut Fields, place: &str) {
    let legal = "must be [A-Za-z0-9_-]{1,64}";
    let Some(given) = object.get("name").and_then(Value::as_str) else {
        return fields.wrong(&format!("{place}.name"), legal);
    };
    let mut own = Fields::new(Some(&cut(given, MAX_TOOL_NAME_BYTES)), "", Map::new());
    own.wrong("name", legal);
    fields.absorb(own);
}

fn is_name(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=MAX_TOOL_NAME_BYTES).contains(&name.len()) && name.chars().all(legal)
}

fn tool(
    name: String,
    fields: &mut Fields,
    known: &KnownNames<'_>,
    warnings: &mut Vec<String>,
) -> Option<Tool> {
    let executor = fields.word("executor", "server, human, client, provider");
    let executor = executor.unwrap_or(Executor::Server);
    let described = target::read(fields, executor, known);
    rules(fields, executor);
    warn_idle(fields, &name, executor, warnings);
    let right = described.is_some();
    let ToolDescription { target, description, parameters, run_timeout } =
        described.unwrap_or_default();
    let parameters = parameters.or_else(|| fields.any("parameters"));
    let parameters = parameters.unwrap_or_else(|| match &target {
        Some(Target::Agent(_)) => {
            json!({"type": "object", "properties": {"prompt": {"type": "string"}}})
        }
        _ => json!({"type": "object", "properties": {}}),
    });
    let parameters = arguments(fields, &parameters);
    let approval = approval(fields, executor);
    let tool = Tool {
        name,
        description: fields
            .text("description", LONGEST_DESCRIPTION)
            .or(description)
            .unwrap_or_default(),
        executor,
        target,
        run_timeout: fields
            .duration("run_timeout")
            .or(run_timeout)
            .unwrap_or(Duration::from_secs(60)),
        read_only: fields.flag("read_only", false),
        strict: fields.flag("strict", false),
        middleware: middleware::of_tool(fields, executor, known.natives),
        on_interrupt: fields.word("on_interrupt", "redispatch, fail").unwrap_or_default(),
        timeout: fields.duration("timeout"),
        streaming: fields.flag("streaming", false),
        intent: fields.word("intent", "compute, action, render").unwrap_or_default(),
        audience: audience(fields),
        aliases: aliases::read(fields),
        confirmation_message: template(fields),
        requires_response: fields.flag("requires_response", true),
        default_result: fields.any("default_result").unwrap_or_default(),
        result_schema: schema(fields, "result_schema"),
        provider_options: provider_options(fields),
        retention: retention(fields),
        parameters: parameters?,
        approval: approval?,
    };
    right.then_some(tool)
}

/// What only some executors may say.
fn rules(fields: &mut Fields, executor: Executor) {
    let (answers, page) = match executor {
        Executor::Human => (true, false),
        Executor::Client => (true, true),
        Executor::Server | Executor::Provider => (false, false),
    };
    for (field, allowed, whose) in [
        ("result_schema", answers, "a human or client tool"),
        ("default_result", page, "a client tool"),
    ] {
        if fields.says(field) && !allowed {
            fields.wrong(field, format!("is for {whose} only"));
        }
    }
    if !page && fields.peek("requires_response") == Some(&Value::Bool(false)) {
        fields.wrong("requires_response", "is for a client tool only");
    }
}

/// Settings that change nothing are legal, and worth a word.
fn warn_idle(fields: &Fields, name: &str, executor: Executor, warnings: &mut Vec<String>) {
    for field in ["run_timeout", "on_interrupt", "streaming"] {
        if executor != Executor::Server && fields.says(field) {
            warnings.push(format!("tool {name}: {field}: only a server tool's runs heed it"));
        }
    }
}

/// The schema of the arguments, which are always an object.
fn arguments(fields: &mut Fields, source: &Value) -> Option<Schema> {
    let schema = match source.get("type") {
        None => Schema::compile(source),
        Some(kind) if *kind == "object" => Schema::compile(source),
        Some(_) => Err("must describe an object: type: object".to_owned()),
    };
    schema.map_err(|message| fields.wrong("parameters", message)).ok()
}

fn approval(fields: &mut Fields, executor: Executor) -> Option<Approval> {
    let approval = match fields.any("approval") {
        None => return Some(Approval::Auto),
        Some(Value::String(word)) if word == "auto" => return Some(Approval::Auto),
        Some(Value::String(word)) if word == "requires_approval" => Some(Approval::Required),
        Some(Value::Object(object)) => condition(fields, object).map(Approval::When),
        Some(_) => {
            fields.wrong("approval", "must be auto, requires_approval or {when: CONDITION}");
            None
        }
    };
    match executor {
        Executor::Server | Executor::Client => {}
        Executor::Human => fields.wrong("approval", "cannot gate a human tool"),
        Executor::Provider => fields.wrong("approval", "cannot gate a provider tool"),
    }
    approval
}

fn condition(fields: &mut Fields, object: Map<String, Value>) -> Option<Condition> {
    let when = object.get("when").and_then(Value::as_str);
    let Some(when) = when.filter(|_| object.len() == 1) else {
        fields.wrong("approval", "must be {when: CONDITION} and nothing else");
        return None;
    };
    Condition::compile(when).map_err(|message| fields.wrong("approval.when", message)).ok()
}

fn audience(fields: &mut Fields) -> Audience {
    let word: Option<String> = fields.word("audience", "model, user, all");
    match word.as_deref() {
        None | Some("model") => Audience::Model,
        Some("user") => Audience::User,
        Some("all") => Audience::All,
        Some(word) => {
            let word = cut(word, MAX_TOOL_NAME_BYTES);
            fields.wrong("audience", format!("must be one of model, user, all, not {word}"));
            Audience::Model
        }
    }
}

fn template(fields: &mut Fields) -> Option<Template> {
    let source = fields.text("confirmation_message", LONGEST_DESCRIPTION)?;
    let compiled = Template::compile(&source);
    compiled.map_err(|message| fields.wrong("confirmation_message", message)).ok()
}

/// By provider, an object each.
fn provider_options(fields: &mut Fields) -> Map<String, Value> {
    let mut options = fields.map("provider_options");
    options.retain(|_, option| !option.is_null());
    for (provider, option) in &options {
        if !option.is_object() {
            fields.wrong(&format!("provider_options.{provider}"), "must be an object");
        }
    }
    options
}

/// `{mode: age | count, value: n, never_evict: bool}`.
fn retention(fields: &mut Fields) -> Retention {
    let Some(mut nested) = fields.nested("retention") else { return Retention::default() };
    let never_evict = nested.flag("never_evict", false);
    let mode: Option<String> = nested.word("mode", "age, count");
    let value = nested.number("value", 1..=u32::MAX);
    let keep = match (mode.as_deref(), value) {
        (Some("age"), Some(steps)) => RetentionMode::Age(steps),
        (Some("count"), Some(newest)) => RetentionMode::Count(newest),
        (None | Some("age" | "count"), _) if never_evict => Retention::default().keep,
        (Some("age" | "count"), None) => {
            nested.wrong("value", "is missing");
            Retention::default().keep
        }
        (None | Some(_), _) => {
            nested.wrong("mode", "must be one of age, count");
            Retention::default().keep
        }
    };
    fields.absorb(nested);
    Retention { keep, never_evict }
}
