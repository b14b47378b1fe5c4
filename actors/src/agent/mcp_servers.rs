//! The MCP servers of a definition.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::endpoint;
use super::field_reader::Fields;
use crate::mcp::{McpServer, McpTransport};

/// A model step lists them all at once.
const MOST_SERVERS: usize = 16;
/// Names are the beginning of tools' names, and those have 64 bytes.
const LONGEST_NAME: usize = 32;
const MOST_ARGS: usize = 64;
const MOST_VARIABLES: usize = 64;
const LONGEST_ARG: usize = 4_096;
/// A server that takes longer to connect and to list its tools is away.
const TIMEOUT: Duration = Duration::from_secs(10);

/// By name.
pub(super) type Servers = BTreeMap<String, Arc<McpServer>>;

/// Reads `mcp_servers`; those with mistakes are left out. Connects to none of them.
pub(super) fn servers(fields: &mut Fields) -> Servers {
    let mut servers = Servers::new();
    let given = fields.map("mcp_servers");
    if given.len() > MOST_SERVERS {
        fields.wrong("mcp_servers", format!("must be at most {MOST_SERVERS}"));
        return servers;
    }
    for (name, value) in given {
        let place = format!("mcp_servers.{name}");
        let Value::Object(object) = value else {
            fields.wrong(&place, "must be an object");
            continue;
        };
        if !is_name(&name) {
            fields.wrong(&place, "must have a name of [A-Za-z0-9_-]{1,32}");
            continue;
        }
        if let Some(server) = server(&name, object, &place, fields) {
            servers.insert(name, Arc::new(server));
        }
    }
    let begins = |name: &String| servers.keys().any(|other| name.starts_with(&format!("{other}_")));
    for name in servers.keys().filter(|name| begins(name)) {
        // One's tools could else be taken for the other's.
        fields.wrong(&format!("mcp_servers.{name}"), "begins with the name of another and _");
    }
    servers
}

fn is_name(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(legal)
}

fn server(
    name: &str,
    object: Map<String, Value>,
    place: &str,
    fields: &mut Fields,
) -> Option<McpServer> {
    let key = Value::from(object.clone()).to_string();
    let mut own = Fields::new(None, &format!("{place}."), object);
    let timeout = own.duration("timeout").unwrap_or(TIMEOUT);
    let reach = match (own.says("url"), own.says("command")) {
        (true, false) => endpoint::url(&mut own).map(|url| McpTransport::Http {
            url,
            headers: endpoint::headers(&mut own, is_reserved),
            secret_headers: endpoint::secret_headers(&mut own, is_reserved),
        }),
        (false, true) => command(&mut own),
        (true, true) | (false, false) => {
            let both = ["url", "headers", "headers_env", "command", "args", "env"];
            both.into_iter().for_each(|field| drop(own.any(field)));
            fields.wrong(place, "must have exactly one of url, command");
            None
        }
    };
    fields.absorb(own);
    Some(McpServer { name: name.to_owned(), key, transport: reach?, timeout })
}

/// Headers to which the protocol gives a meaning.
fn is_reserved(name: &str) -> bool {
    matches!(name, "accept" | "last-event-id") || name.starts_with("mcp-")
}

fn command(own: &mut Fields) -> Option<McpTransport> {
    let command = own.text("command", LONGEST_ARG)?;
    let mut args = Vec::new();
    for arg in own.list("args", MOST_ARGS) {
        match arg {
            Value::String(arg) if arg.len() <= LONGEST_ARG && !arg.contains('\0') => args.push(arg),
            _ => own.wrong("args", format!("must be texts of at most {LONGEST_ARG} bytes")),
        }
    }
    let mut env = Vec::new();
    for name in own.list("env", MOST_VARIABLES) {
        match name {
            Value::String(name) if endpoint::is_variable(&name) => env.push(name),
            _ => own.wrong("env", endpoint::NO_VARIABLE),
        }
    }
    if command.is_empty() || command.contains('\0') {
        own.wrong("command", "must be a program");
        return None;
    }
    Some(McpTransport::Stdio { command, args, env })
}

#[cfg(test)]
mod tests;
