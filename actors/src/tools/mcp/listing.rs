//! The tools that a server lists, with their compiled schemas.

use std::collections::HashSet;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{PaginatedRequestParams, Tool};
use rmcp::service::{Peer, ServiceError};
use serde_json::Value;

use super::MAX_SERVER_TOOL_NAME_BYTES;
use crate::expressions::schema::{MAX_COMPILED_BYTES_IN_ALL, Schema};
use crate::limits::{cut, encoded_len};

/// Tools of one server; all of them go to the model with every step.
const MAX_TOOLS: usize = 256;
/// The size of all tools together.
const MAX_LISTING_BYTES: usize = 1024 * 1024;
/// Ends the listing of a server that sends its tools one by one, or in a loop.
const MAX_PAGES: usize = 32;
/// Bounded, since a schema is compiled, and sent with every step.
const MAX_SCHEMA_BYTES: usize = 128 * 1024;
/// A listed tool has the limit of a declared tool.
const MAX_DESCRIPTION_BYTES: usize = 16_384;
/// How long a listing is fresh if its server does not say.
const DEFAULT_TTL: Duration = Duration::from_secs(60);
/// The limits for a server's own TTL: below, it would be fetched with every step; above, a change
/// would never be noticed.
const MIN_TTL: Duration = Duration::from_secs(1);
const MAX_TTL: Duration = Duration::from_secs(600);

/// The tools of a server, in its order. Immutable: a refresh makes a new one.
#[derive(Debug)]
pub struct Listing {
    tools: Vec<ListedTool>,
    /// How long it is fresh.
    pub(super) ttl: Duration,
}

/// One tool of a listing.
#[derive(Debug)]
pub(super) struct ListedTool {
    /// The server's own name of the tool.
    pub(super) name: String,
    pub(super) description: String,
    pub(super) parameters: Schema,
    pub(super) output: Option<Schema>,
}

impl ListedTool {
    fn compiled_bytes(&self) -> usize {
        let output = self.output.as_ref().map_or(0, Schema::compiled_bytes);
        self.parameters.compiled_bytes().saturating_add(output)
    }
}

impl Listing {
    /// Fetches all pages, within limits. Tools beyond them are left out and logged.
    pub(super) async fn fetch(server: &str, peer: &Peer<RoleClient>) -> Result<Self, ServiceError> {
        let mut tools = Vec::new();
        let mut size = 0;
        let mut ttl = None;
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let page = peer.list_tools(Some(params)).await?;
            ttl = ttl.or(page.ttl_ms.map(Duration::from_millis));
            for tool in page.tools {
                size += encoded_len(&serde_json::to_value(&tool).unwrap_or_default());
                if tools.len() == MAX_TOOLS || size > MAX_LISTING_BYTES {
                    tracing::warn!(server, "MCP listing truncated: too large");
                    return Ok(Self::compile(server, tools, ttl).await);
                }
                tools.push(tool);
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(Self::compile(server, tools, ttl).await);
            }
        }
        tracing::warn!(server, "MCP listing truncated: too many pages");
        Ok(Self::compile(server, tools, ttl).await)
    }

    /// Compiles the schemas on a blocking thread, since that may take a while.
    async fn compile(server: &str, tools: Vec<Tool>, ttl: Option<Duration>) -> Self {
        let server = server.to_owned();
        let compiled = tokio::task::spawn_blocking(move || compile_tools(&server, tools)).await;
        let tools = compiled.unwrap_or_else(|error| {
            tracing::error!(content = %error, "MCP listing lost: compilation crashed");
            Vec::new()
        });
        Self { tools, ttl: ttl.unwrap_or(DEFAULT_TTL).clamp(MIN_TTL, MAX_TTL) }
    }

    /// The tool with this name at its server.
    pub(super) fn tool(&self, name: &str) -> Option<&ListedTool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// All tools.
    pub(super) fn tools(&self) -> &[ListedTool] {
        &self.tools
    }
}

fn compile_tools(server: &str, tools: Vec<Tool>) -> Vec<ListedTool> {
    let mut names = HashSet::new();
    let mut listed = Vec::new();
    let mut bytes_left = MAX_COMPILED_BYTES_IN_ALL;
    for tool in tools {
        let name = cut(&tool.name, MAX_SERVER_TOOL_NAME_BYTES);
        let compiled = if names.insert(tool.name.to_string()) {
            compile_tool(tool).and_then(|tool| {
                let left = bytes_left.checked_sub(tool.compiled_bytes());
                bytes_left = left.ok_or("the schemas of its server are too large together")?;
                Ok(tool)
            })
        } else {
            Err("its name is listed twice".to_owned())
        };
        match compiled {
            Ok(tool) => listed.push(tool),
            Err(why) => tracing::warn!(server, tool = name, content = why, "MCP tool left out"),
        }
    }
    listed
}

/// The server's hints, such as "read-only", are ignored: they could only weaken the gate.
fn compile_tool(tool: Tool) -> Result<ListedTool, String> {
    if tool.name.is_empty() || tool.name.len() > MAX_SERVER_TOOL_NAME_BYTES {
        return Err(format!("its name must have 1 to {MAX_SERVER_TOOL_NAME_BYTES} bytes"));
    }
    let parameters = Value::Object((*tool.input_schema).clone());
    if parameters.get("type").is_some_and(|kind| *kind != "object") {
        return Err("its parameters must be an object".to_owned());
    }
    let output = tool.output_schema.map(|schema| Value::Object((*schema).clone()));
    let description = tool.description.unwrap_or_default();
    Ok(ListedTool {
        name: tool.name.into_owned(),
        description: cut(&description, MAX_DESCRIPTION_BYTES),
        parameters: compile_schema(&parameters)?,
        output: output.as_ref().map(compile_schema).transpose()?,
    })
}

fn compile_schema(source: &Value) -> Result<Schema, String> {
    if encoded_len(source) > MAX_SCHEMA_BYTES {
        return Err("its schema is too large".to_owned());
    }
    Schema::compile(source)
}
