//! The MCP servers of a definition.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use abide_conversation::permission::Network;
use serde_json::{Map, Value};

use super::document::{Items, McpServerDocument, Text};
use super::endpoint;
use super::permissions;
use super::reader::Mistakes;
use super::tool_entry::limits;
use crate::definition::{McpServer, McpTransport};
use crate::outbound::Outbound;

/// Bounded because a model step lists the tools of all servers at once.
const MAX_SERVERS: usize = 16;
/// A server's name begins the names of its tools, which have at most 64 bytes.
const MAX_NAME_BYTES: usize = 32;
const MAX_ARG_BYTES: usize = 4_096;
/// A server that takes longer to connect and to list its tools counts as unavailable.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// The servers by name.
pub(super) type Servers = BTreeMap<String, Arc<McpServer>>;

/// Reads `mcp_servers`; those with mistakes are left out. Connects to none of them.
pub(super) fn servers(mistakes: &mut Mistakes, given: Option<Map<String, Value>>) -> Servers {
    let mut servers = Servers::new();
    let given = given.unwrap_or_default();
    if given.len() > MAX_SERVERS {
        mistakes.add("mcp_servers", format!("must be at most {MAX_SERVERS}"));
        return servers;
    }
    for (name, value) in given {
        let field = format!("mcp_servers.{name}");
        if !is_name(&name) {
            mistakes.add(&field, "must have a name of [A-Za-z0-9_-]{1,32}");
            continue;
        }
        if let Some(server) = server(mistakes, &name, value, &field) {
            servers.insert(name, Arc::new(server));
        }
    }
    let begins = |name: &String| servers.keys().any(|other| name.starts_with(&format!("{other}_")));
    for name in servers.keys().filter(|name| begins(name)) {
        // Otherwise a tool of one server could be taken for a tool of the other.
        mistakes.add(&format!("mcp_servers.{name}"), "begins with the name of another and _");
    }
    servers
}

fn is_name(name: &str) -> bool {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.chars().all(is_legal)
}

fn server(mistakes: &mut Mistakes, name: &str, value: Value, field: &str) -> Option<McpServer> {
    let key = value.to_string();
    let document: McpServerDocument = mistakes.read(field, value)?;
    let prefix = format!("{field}.");
    let timeout = document.timeout.map_or(DEFAULT_TIMEOUT, |span| span.0);
    let limits = document.limits.and_then(|it| limits(mistakes, &prefix, it));
    let transport = match (document.url, document.command) {
        (Some(url), None) => {
            let of_a_process = [
                ("args", document.args.is_some()),
                ("env", document.env.is_some()),
                ("network", document.network.is_some()),
            ];
            refuse(mistakes, &prefix, &of_a_process);
            let url = endpoint::url(mistakes, &prefix, Some(url));
            url.map(|url| McpTransport::Http {
                url,
                headers: endpoint::headers(mistakes, &prefix, document.headers, is_reserved),
                secret_headers: endpoint::secret_headers(
                    mistakes,
                    &prefix,
                    document.headers_env,
                    is_reserved,
                ),
            })
        }
        (None, Some(command)) => {
            let of_http = [
                ("headers", document.headers.is_some()),
                ("headers_env", document.headers_env.is_some()),
            ];
            refuse(mistakes, &prefix, &of_http);
            let field = format!("{prefix}network");
            let network = document.network.map(|it| permissions::network(mistakes, &field, it));
            // Most servers are the way to a service, and many are fetched when they start.
            let network = network.unwrap_or(Network::All);
            stdio(mistakes, &prefix, command, document.args, document.env, network)
        }
        (Some(_), Some(_)) | (None, None) => {
            if !mistakes.has(&format!("{prefix}url")) && !mistakes.has(&format!("{prefix}command"))
            {
                mistakes.add(field, "must have exactly one of url, command");
            }
            None
        }
    };
    Some(McpServer {
        name: name.to_owned(),
        key,
        transport: transport?,
        timeout,
        limits,
        outbound: Outbound::Unbound,
    })
}

/// Refuses the keys that belong to the other transport.
fn refuse(mistakes: &mut Mistakes, prefix: &str, keys: &[(&str, bool)]) {
    for (key, is_given) in keys {
        if *is_given {
            mistakes.add(&format!("{prefix}{key}"), "is not a known key");
        }
    }
}

/// Headers to which the protocol gives a meaning.
fn is_reserved(name: &str) -> bool {
    matches!(name, "accept" | "last-event-id") || name.starts_with("mcp-")
}

fn stdio(
    mistakes: &mut Mistakes,
    prefix: &str,
    Text(command): Text<4_096>,
    given_args: Option<Items<64>>,
    given_env: Option<Items<64>>,
    network: Network,
) -> Option<McpTransport> {
    let mut args = Vec::new();
    for arg in given_args.unwrap_or_default().0 {
        match arg {
            Value::String(arg) if arg.len() <= MAX_ARG_BYTES && !arg.contains('\0') => {
                args.push(arg);
            }
            _ => {
                let message = format!("must be texts of at most {MAX_ARG_BYTES} bytes");
                mistakes.add(&format!("{prefix}args"), message);
            }
        }
    }
    let mut env = Vec::new();
    for name in given_env.unwrap_or_default().0 {
        match name {
            Value::String(name) if endpoint::is_variable(&name) => env.push(name),
            _ => mistakes.add(&format!("{prefix}env"), endpoint::NOT_A_VARIABLE),
        }
    }
    if command.is_empty() || command.contains('\0') {
        mistakes.add(&format!("{prefix}command"), "must be a program");
        return None;
    }
    Some(McpTransport::Stdio { command, args, env, network })
}

#[cfg(test)]
mod tests;
