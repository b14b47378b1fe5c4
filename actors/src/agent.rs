//! Agents as data: definitions, checked whole, named by what they contain.

mod audit;
mod budget;
mod context;
mod duration;
mod endpoint;
mod error;
mod field_reader;
mod hooks;
mod load;
mod mcp_servers;
mod middleware;
mod permissions;
mod strict_value;
mod tool_entry;

use std::time::Duration;

use abide_conversation::{AgentName, Revision};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::definition::{Definition, HookSpec};
use crate::expressions::schema::Schema;
use crate::limits::{cut, encoded_len};
use crate::model::ModelSettings;
use crate::model::retry::RetryPolicy;
use crate::tools::Extensions;

pub use duration::parse as duration;
pub use error::{DefinitionError, joined};
use field_reader::Fields;
pub use load::{Format, LoadError, from_text, load_dir};
pub use tool_entry::client_tools;
use tool_entry::{Entries, KnownNames};

/// A definition is read, hashed and journalled in one piece: 1 MiB.
const LARGEST_DEFINITION: usize = 1024 * 1024;
/// Every one of them goes to the model with every step.
const MOST_TOOLS: usize = 256;
/// The longest text of a description; a system prompt is bounded by the definition.
const LONGEST_DESCRIPTION: usize = 16_384;

/// A definition that is in order, and what its author may still want to know.
#[derive(Clone, Debug)]
pub struct Parsed {
    pub definition: Definition,
    pub warnings: Vec<String>,
}

impl Definition {
    /// Reads a document, and reports all of its mistakes together.
    pub fn parse(source: Value, natives: &Extensions) -> Result<Parsed, Vec<DefinitionError>> {
        let whole = |message: &str| {
            let (field, message) = ("definition".to_owned(), message.to_owned());
            vec![DefinitionError { tool: None, field, message }]
        };
        if encoded_len(&source) > LARGEST_DEFINITION {
            return Err(whole("must be at most 1 MB"));
        }
        let Value::Object(object) = source.clone() else {
            return Err(whole("must be an object"));
        };
        let revision = revision_of(&source).map_err(|message| whole(&message))?;
        let mut fields = Fields::new(None, "", object);
        let mut warnings = Vec::new();
        let servers = mcp_servers::servers(&mut fields);
        let known = KnownNames { natives, servers: &servers };
        let entries = tool_entry::tools(&mut fields, &known, &mut warnings);
        let hooks = hooks::hooks(&mut fields, natives);
        let definition = definition(&mut fields, natives, (entries, hooks), source, revision);
        if let Some(definition) = &definition {
            context::check(&mut fields, definition);
        }
        warnings.extend(definition.iter().flat_map(permissions::warnings));
        warnings.extend(definition.iter().flat_map(budget::warnings));
        warnings.extend(definition.iter().flat_map(hooks::warnings));
        let mistakes = fields.finish();
        match definition {
            Some(definition) if mistakes.is_empty() => Ok(Parsed { definition, warnings }),
            Some(_) | None => Err(mistakes),
        }
    }
}

fn definition(
    fields: &mut Fields,
    natives: &Extensions,
    (entries, hooks): (Entries, Vec<HookSpec>),
    source: Value,
    revision: Revision,
) -> Option<Definition> {
    let name = name(fields);
    let model = model(fields);
    let reading = context::read(fields, model.as_ref());
    Some(Definition {
        description: fields.text("description", LONGEST_DESCRIPTION).unwrap_or_default(),
        system_prompt: fields.text("system_prompt", LARGEST_DEFINITION).unwrap_or_default(),
        suspension_timeout: fields
            .duration("suspension_timeout")
            .unwrap_or(Duration::from_secs(300)),
        max_steps: fields.number("max_steps", 1..=1000).unwrap_or(25),
        budget: budget::read(fields),
        retry: retry(fields),
        client_grace: client_grace(fields),
        audit: audit::ttl(fields),
        response_format: schema(fields, "response_format"),
        assigns: fields.map("assigns"),
        permissions: permissions::permissions(fields),
        workspace: permissions::workspace(fields),
        injection_reserve: reading.injection_reserve,
        working_budget: reading.working_budget,
        summary: reading.summary,
        middleware: middleware::read(fields, natives),
        tools: entries.tools,
        sets: entries.sets,
        hooks,
        source,
        revision,
        name: name?,
        model: model?,
    })
}

/// The first 16 hex digits of the SHA-256 of the document's canonical JSON.
fn revision_of(source: &Value) -> Result<Revision, String> {
    let canonical = serde_json_canonicalizer::to_vec(source)
        .map_err(|error| format!("has no canonical JSON: {}", cut(&error.to_string(), 200)))?;
    let digest = Sha256::digest(&canonical);
    Ok(Revision::new(digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<String>()))
}

fn name(fields: &mut Fields) -> Option<AgentName> {
    if !fields.says("name") {
        fields.wrong("name", "is missing");
    }
    let text = fields.text("name", 64)?;
    let name = AgentName::parse(&text);
    if name.is_none() {
        fields.wrong("name", "must be [a-z0-9][a-z0-9_-]{0,63}");
    }
    name
}

/// Another `model` within the definition is read by the same rules.
fn model(fields: &mut Fields) -> Option<ModelSettings> {
    let Some(value) = fields.any("model") else {
        fields.wrong("model", "is missing");
        return None;
    };
    match serde_path_to_error::deserialize::<_, ModelSettings>(value) {
        Ok(settings) => match settings.check() {
            Ok(()) => Some(settings),
            Err(mistake) => {
                fields.wrong(&mistake.field, cut(&mistake.message, 500));
                None
            }
        },
        Err(error) => {
            let field = match error.path().to_string().as_str() {
                "." => "model".to_owned(),
                path => format!("model.{path}"),
            };
            fields.wrong(&field, cut(&error.inner().to_string(), 500));
            None
        }
    }
}

fn retry(fields: &mut Fields) -> RetryPolicy {
    let default = RetryPolicy::default();
    let Some(mut nested) = fields.nested("retry") else { return default };
    let policy = RetryPolicy {
        max_attempts: nested.number("max_attempts", 1..=20).unwrap_or(default.max_attempts),
        base: nested.duration("base").unwrap_or(default.base),
        max: nested.duration("max").unwrap_or(default.max),
    };
    fields.absorb(nested);
    policy
}

/// Absent and null differ: five seconds, and no limit but the call's own.
fn client_grace(fields: &mut Fields) -> Option<Duration> {
    match (fields.has("client_grace"), fields.says("client_grace")) {
        (false, _) => Some(Duration::from_secs(5)),
        (true, true) => fields.grace("client_grace"),
        (true, false) => {
            fields.any("client_grace");
            None
        }
    }
}

fn schema(fields: &mut Fields, field: &str) -> Option<Schema> {
    let source = fields.any(field)?;
    Schema::compile(&source).map_err(|message| fields.wrong(field, message)).ok()
}

#[cfg(test)]
mod tests;
