//! What a server lists: its tools with their schemas, compiled once.

use std::collections::HashSet;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{PaginatedRequestParams, Tool};
use rmcp::service::{Peer, ServiceError};
use serde_json::Value;

use super::LONGEST_TOOL_NAME;
use crate::expressions::schema::Schema;
use crate::limits::{cut, encoded_len};

/// Every one of them goes to the model with every step.
const MOST_TOOLS: usize = 256;
/// Of all tools together.
const LARGEST_LISTING: usize = 1024 * 1024;
/// A server that hands its tools out one by one, or in a circle, has an end.
const MOST_PAGES: usize = 32;
/// A schema is compiled, and sent with every step.
const LARGEST_SCHEMA: usize = 128 * 1024;
/// The same as for a declared tool.
const LONGEST_DESCRIPTION: usize = 16_384;
/// A listing is asked for again after this, unless its server says how long it stays fresh.
const FRESH: Duration = Duration::from_secs(60);
/// Within these a server is believed: less would ask with every step, more never hear of a change.
const FRESH_BOUNDS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(600));

/// The tools of a server, in its order. Never changes: a refresh makes another.
#[derive(Debug)]
pub struct Listing {
    tools: Vec<Listed>,
    /// How long it need not be asked for again.
    pub(super) fresh: Duration,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Listed {
    /// The server's own.
    pub(super) name: String,
    pub(super) description: String,
    pub(super) parameters: Schema,
    pub(super) output: Option<Schema>,
}

impl Listing {
    /// Asks for all pages, within bounds. What is beyond them is left out and logged.
    pub(super) async fn fetch(server: &str, peer: &Peer<RoleClient>) -> Result<Self, ServiceError> {
        let mut tools = Vec::new();
        let (mut size, mut fresh, mut cursor) = (0, None, None);
        for _ in 0..MOST_PAGES {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let page = peer.list_tools(Some(params)).await?;
            fresh = fresh.or(page.ttl_ms.map(Duration::from_millis));
            for tool in page.tools {
                size += encoded_len(&serde_json::to_value(&tool).unwrap_or_default());
                if tools.len() == MOST_TOOLS || size > LARGEST_LISTING {
                    tracing::warn!(server, "its list of tools is too long; the rest is left out");
                    return Ok(Self::compiled(server, tools, fresh).await);
                }
                tools.push(tool);
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(Self::compiled(server, tools, fresh).await);
            }
        }
        tracing::warn!(server, "its list of tools has too many pages; the rest is left out");
        Ok(Self::compiled(server, tools, fresh).await)
    }

    /// Compiles the schemas, aside: that may take a while.
    async fn compiled(server: &str, tools: Vec<Tool>, fresh: Option<Duration>) -> Self {
        let server = server.to_owned();
        let compiled = tokio::task::spawn_blocking(move || compile(&server, tools)).await;
        let tools = compiled.unwrap_or_else(|error| {
            tracing::error!(said = %error, "a list of tools could not be compiled");
            Vec::new()
        });
        let (least, most) = FRESH_BOUNDS;
        Self { tools, fresh: fresh.unwrap_or(FRESH).clamp(least, most) }
    }

    /// The tool that has this name at its server.
    pub(super) fn tool(&self, name: &str) -> Option<&Listed> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// All of them.
    pub(super) fn tools(&self) -> &[Listed] {
        &self.tools
    }
}

fn compile(server: &str, tools: Vec<Tool>) -> Vec<Listed> {
    let mut names = HashSet::new();
    let mut listed = Vec::new();
    for tool in tools {
        let name = cut(&tool.name, LONGEST_TOOL_NAME);
        let compiled = match names.insert(tool.name.to_string()) {
            true => listed_tool(tool),
            false => Err("its name is listed twice".to_owned()),
        };
        match compiled {
            Ok(tool) => listed.push(tool),
            Err(why) => tracing::warn!(server, tool = name, said = why, "a tool is left out"),
        }
    }
    listed
}

/// Hints of the server are not kept: they could only loosen a gate.
fn listed_tool(tool: Tool) -> Result<Listed, String> {
    if tool.name.is_empty() || tool.name.len() > LONGEST_TOOL_NAME {
        return Err(format!("its name must have 1 to {LONGEST_TOOL_NAME} bytes"));
    }
    let parameters = Value::Object((*tool.input_schema).clone());
    if parameters.get("type").is_some_and(|kind| *kind != "object") {
        return Err("its parameters must be an object".to_owned());
    }
    let output = tool.output_schema.map(|schema| Value::Object((*schema).clone()));
    let description = tool.description.unwrap_or_default();
    Ok(Listed {
        name: tool.name.into_owned(),
        description: cut(&description, LONGEST_DESCRIPTION),
        parameters: schema(&parameters)?,
        output: output.as_ref().map(schema).transpose()?,
    })
}

fn schema(source: &Value) -> Result<Schema, String> {
    if encoded_len(source) > LARGEST_SCHEMA {
        return Err("its schema is too large".to_owned());
    }
    Schema::compile(source)
}
