//! Parses an agent: from a document, checked whole, to a definition that is named by its contents.

mod audit;
mod budget;
mod context;
pub mod document;
mod duration;
mod endpoint;
mod error;
mod hooks;
mod index;
mod load;
mod mcp_servers;
mod middleware;
mod models;
mod outbound;
mod permissions;
mod reader;
mod retention;
mod strict_value;
mod tool_entry;

use std::time::Duration;

use abide_conversation::{AgentName, Revision};
use data_encoding::HEXLOWER;
use serde_json::Value;
use sha2::{Digest, Sha256};

use self::document::{AgentDocument, NonNegativeDuration, RetryDocument, Text};
use self::reader::Mistakes;
use self::tool_entry::{Entries, KnownNames};
use crate::definition::{Definition, HookSpec};
use crate::expressions::schema::Schema;
use crate::limits::{cut, encoded_len};
use crate::model::ModelSettings;
use crate::model::retry::RetryPolicy;
use crate::outbound::Outbound;
use crate::tools::Extensions;

pub use duration::parse as duration;
pub use error::{DefinitionError, join_errors};
pub use load::{Format, LoadError, WHOLE_DOCUMENT, from_text, load_dir, load_file};
pub use retention::{idle_retention, idle_retention_of};
pub use tool_entry::client_tools;

/// A definition is read, hashed and journalled in one piece: 1 MiB.
const MAX_DEFINITION_BYTES: usize = 1024 * 1024;

/// A definition that is in order, and what its author may still want to know.
#[derive(Clone, Debug)]
pub struct Parsed {
    pub definition: Definition,
    pub warnings: Vec<String>,
}

impl Definition {
    /// Reads a document, and reports all of its mistakes together.
    pub fn parse(source: Value, extensions: &Extensions) -> Result<Parsed, Vec<DefinitionError>> {
        if encoded_len(&source) > MAX_DEFINITION_BYTES {
            return Err(whole("must be at most 1 MB"));
        }
        if !source.is_object() {
            return Err(whole("must be an object"));
        }
        let revision = revision_of(&source).map_err(|message| whole(&message))?;
        let mut mistakes = Mistakes::default();
        let Some(mut document) = mistakes.read::<AgentDocument>("", source.clone()) else {
            return Err(mistakes.finish());
        };
        let mut warnings = Vec::new();
        let servers = mcp_servers::servers(&mut mistakes, document.mcp_servers.take());
        let known = KnownNames { extensions, servers: &servers };
        let items = document.tools.take().unwrap_or_default().0;
        let entries = tool_entry::tools(&mut mistakes, items, &known, &mut warnings);
        let items = document.hooks.take().unwrap_or_default().0;
        let hooks = hooks::hooks(&mut mistakes, items, extensions);
        let parts = Parts { entries, hooks, source, revision };
        let definition = definition(&mut mistakes, document, parts, extensions);
        if let Some(definition) = &definition {
            context::check(&mut mistakes, definition);
        }
        warnings.extend(definition.iter().flat_map(permissions::warnings));
        warnings.extend(definition.iter().flat_map(tool_entry::warnings));
        warnings.extend(definition.iter().flat_map(budget::warnings));
        warnings.extend(definition.iter().flat_map(hooks::warnings));
        let mistakes = mistakes.finish();
        match definition {
            Some(definition) if mistakes.is_empty() => Ok(Parsed { definition, warnings }),
            Some(_) | None => Err(mistakes),
        }
    }
}

/// A mistake of the document as a whole.
fn whole(message: &str) -> Vec<DefinitionError> {
    let (field, message) = ("definition".to_owned(), message.to_owned());
    vec![DefinitionError { tool: None, field, message }]
}

/// The parts of a definition that are read before the rest.
struct Parts {
    entries: Entries,
    hooks: Vec<HookSpec>,
    source: Value,
    revision: Revision,
}

fn definition(
    mistakes: &mut Mistakes,
    document: AgentDocument,
    parts: Parts,
    extensions: &Extensions,
) -> Option<Definition> {
    let Parts { entries, hooks, source, revision } = parts;
    let name = name(mistakes, document.name);
    let model = model(mistakes, "", document.model);
    let context = context::settings(
        mistakes,
        document.injection_reserve,
        document.working_budget,
        document.summary,
        model.as_ref(),
    );
    Some(Definition {
        description: document.description.map(|text| text.0).unwrap_or_default(),
        system_prompt: document.system_prompt.map(|text| text.0).unwrap_or_default(),
        suspension_timeout: document
            .suspension_timeout
            .map_or(Duration::from_secs(300), |span| span.0),
        max_steps: document.max_steps.map_or(25, |steps| steps.0),
        budget: budget::budget(document.budget.unwrap_or_default()),
        retry: retry(document.retry.unwrap_or_default()),
        retention: retention::retention(mistakes, document.retention),
        client_grace: client_grace(document.client_grace),
        audit: audit::ttl(mistakes, document.audit),
        response_format: schema(mistakes, "response_format", document.response_format),
        assigns: document.assigns.unwrap_or_default(),
        permissions: permissions::permissions(mistakes, document.permissions.unwrap_or_default()),
        workspace: permissions::workspace(mistakes, document.workspace),
        injection_reserve: context.injection_reserve,
        working_budget: context.working_budget,
        summary: context.summary,
        middleware: middleware::of_agent(mistakes, document.middleware, extensions),
        models: models::models(mistakes, document.models),
        index: index::index(mistakes, document.index),
        tools: entries.tools,
        sets: entries.sets,
        hooks,
        source,
        revision,
        outbound: Outbound::Unbound,
        head_tokens: Default::default(),
        name: name?,
        model: model?,
    })
}

/// The first 16 hex digits of the SHA-256 of the document's canonical JSON.
fn revision_of(source: &Value) -> Result<Revision, String> {
    let canonical = serde_json_canonicalizer::to_vec(source)
        .map_err(|error| format!("has no canonical JSON: {}", cut(&error.to_string(), 200)))?;
    let digest = Sha256::digest(&canonical);
    Ok(Revision::new(HEXLOWER.encode(&digest[..8])))
}

fn name(mistakes: &mut Mistakes, text: Option<Text<64>>) -> Option<AgentName> {
    let Some(Text(text)) = text else {
        mistakes.add_missing("name");
        return None;
    };
    let name = AgentName::parse(&text);
    if name.is_none() {
        mistakes.add("name", "must be [a-z0-9][a-z0-9_-]{0,63}");
    }
    name
}

/// The `model` of the section at `prefix`: of the agent, or of its summaries.
fn model(mistakes: &mut Mistakes, prefix: &str, value: Option<Value>) -> Option<ModelSettings> {
    let field = format!("{prefix}model");
    let Some(value) = value else {
        mistakes.add_missing(&field);
        return None;
    };
    let settings: ModelSettings = mistakes.read(&field, value)?;
    match settings.check().and_then(|()| settings.check_fallbacks()) {
        Ok(()) => Some(settings),
        Err(mistake) => {
            mistakes.add(&format!("{prefix}{}", mistake.field), mistake.message);
            None
        }
    }
}

fn retry(document: RetryDocument) -> RetryPolicy {
    let default = RetryPolicy::default();
    RetryPolicy {
        max_attempts: document.max_attempts.map_or(default.max_attempts, |attempts| attempts.0),
        base_delay: document.base.map_or(default.base_delay, |span| span.0),
        max_delay: document.max.map_or(default.max_delay, |span| span.0),
    }
}

/// Absent and null differ: five seconds, and no limit but the call's own.
fn client_grace(grace: Option<Option<NonNegativeDuration>>) -> Option<Duration> {
    match grace {
        None => Some(Duration::from_secs(5)),
        Some(None) => None,
        Some(Some(NonNegativeDuration(grace))) => Some(grace),
    }
}

fn schema(mistakes: &mut Mistakes, field: &str, source: Option<Value>) -> Option<Schema> {
    Schema::compile(&source?).map_err(|message| mistakes.add(field, message)).ok()
}

#[cfg(test)]
mod tests;
