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

use std::sync::Arc;
use std::time::Duration;

use abide_conversation::command::TurnSettings;
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::usage::Budget;
use abide_conversation::{AgentName, ConversationId, DecisionId, Revision};
use async_trait::async_trait;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::context::SummaryPolicy;
use crate::hooks::HookSpec;
use crate::journal::StoreError;
use crate::mcp::McpToolSet;
use crate::model::ModelSettings;
use crate::model::retry::RetryPolicy;
use crate::tools::limits::{cut, encoded_len};
use crate::tools::native::Extensions;
use crate::tools::schema::Schema;
use crate::tools::tool::Tool;
use crate::workspace::WorkspaceRef;

pub use duration::parse as duration;
pub use error::{DefinitionError, joined};
use field_reader::Fields;
pub use load::{Format, LoadError, from_text, load_dir};
pub use permissions::{Permissions, WorkspaceRoot};
pub use tool_entry::client_tools;
use tool_entry::{Entries, KnownNames};

/// A definition is read, hashed and journalled in one piece: 1 MiB.
const LARGEST_DEFINITION: usize = 1024 * 1024;
/// Every one of them goes to the model with every step.
const MOST_TOOLS: usize = 256;
/// The longest text of a description; a system prompt is bounded by the definition.
const LONGEST_DESCRIPTION: usize = 16_384;

/// An agent: model, prompt, tools and policies, as one revision of them says.
#[derive(Clone, Debug)]
pub struct Definition {
    pub name: AgentName,
    pub description: String,
    pub model: ModelSettings,
    pub system_prompt: String,
    /// How long an open suspension may wait, unless its tool says otherwise.
    pub suspension_timeout: Duration,
    /// Model calls in one turn.
    pub max_steps: u32,
    /// What a turn, and a whole conversation, may spend.
    pub budget: Budget,
    pub retry: RetryPolicy,
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
    /// In the order in which they were declared; of one that an MCP server has, its own part.
    pub tools: Vec<Tool>,
    /// In that order, too.
    pub sets: Vec<McpToolSet>,
    /// The same.
    pub hooks: Vec<HookSpec>,
    /// What `pre` hooks may add to one step, in tokens.
    pub injection_reserve: u32,
    /// How many tokens a prompt may have before it is reduced, what hooks add included.
    pub working_budget: u32,
    /// `None`: nothing is summarized.
    pub summary: Option<SummaryPolicy>,
    /// The document as it was given.
    pub source: Value,
    /// Of `source`.
    pub revision: Revision,
}

/// A definition that is in order, and what its author may still want to know.
#[derive(Clone, Debug)]
pub struct Parsed {
    pub definition: Definition,
    pub warnings: Vec<String>,
}

/// Where definitions are found.
#[async_trait]
pub trait Agents: Send + Sync + 'static {
    /// The newest revision of an agent; `None` if there is no such agent, or no longer.
    async fn newest(&self, name: &AgentName) -> Result<Option<Arc<Definition>>, StoreError>;

    /// One revision, also of an agent that was deleted, for the turns that began with it.
    async fn revision(&self, revision: &Revision) -> Result<Option<Arc<Definition>>, StoreError>;

    /// The same, if it is at hand: the store is not asked.
    fn kept(&self, revision: &Revision) -> Option<Arc<Definition>>;

    /// Keeps a decision for all conversations of the agent; again is harmless.
    async fn remember(
        &self,
        agent: &AgentName,
        decision: &RememberedDecision,
    ) -> Result<(), StoreError>;

    /// The decisions that hold for all conversations of the agent, oldest first; some may have
    /// expired.
    async fn decisions(&self, agent: &AgentName) -> Result<Vec<RememberedDecision>, StoreError>;

    /// Whether there was such a decision; now there is none.
    async fn revoke(&self, agent: &AgentName, decision: &DecisionId) -> Result<bool, StoreError>;
}

impl Definition {
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

    /// Where a conversation of this agent works.
    pub fn site(&self, owner: &ConversationId) -> WorkspaceRef {
        let workspace = self.workspace.as_ref();
        WorkspaceRef {
            root: workspace.map(|workspace| workspace.root.clone()),
            shared: workspace.is_some_and(|workspace| workspace.shared),
            owner: owner.to_string(),
        }
    }

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
        base_delay: nested.duration("base").unwrap_or(default.base_delay),
        max_delay: nested.duration("max").unwrap_or(default.max_delay),
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
