//! Joins an agent's declared tools with the listings of its MCP servers.

use std::collections::HashSet;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use super::Listings;
use super::listing::ListedTool;
use crate::definition::Definition;
use crate::definition::{MAX_TOOL_NAME_BYTES, ServerTool, Target, Tool, ToolKind};
use crate::definition::{McpToolRef, McpToolSet};

/// Hex digits of the hash that keeps shortened names distinct.
const HASH_DIGITS: usize = 8;

/// The agent's tools in the order of declaration, those of a set in the server's order. A tool that
/// no listing contains is left out. Among equal names a declared tool wins, then the first.
pub(crate) fn tools(definition: &Definition, listings: &Listings) -> Vec<Tool> {
    let mut used_names: HashSet<String> =
        definition.tools.iter().map(|tool| tool.name.clone()).collect();
    let mut all = Vec::new();
    let mut sets = definition.sets.iter().peekable();
    for at in 0..=definition.tools.len() {
        while let Some(set) = sets.next_if(|set| set.insert_before <= at) {
            all.extend(set_tools(set, listings, &mut used_names));
        }
        all.extend(definition.tools.get(at).and_then(|tool| resolve_declared(tool, listings)));
    }
    all
}

/// A declared tool; if it belongs to a server, only if the server lists it.
fn resolve_declared(tool: &Tool, listings: &Listings) -> Option<Tool> {
    let Some((server, tool_ref)) = mcp_tool(tool) else { return Some(tool.clone()) };
    let listed = listings.get(&tool_ref.server.name)?.tool(&tool_ref.tool)?;
    let mut tool = with_listing(tool, server, tool_ref, listed);
    if tool.description.is_empty() {
        tool.description = listed.description.clone();
    }
    Some(tool)
}

fn set_tools(set: &McpToolSet, listings: &Listings, used_names: &mut HashSet<String>) -> Vec<Tool> {
    let Some((server, tool_ref)) = mcp_tool(&set.prototype) else { return Vec::new() };
    let mut tools = Vec::new();
    for listed in listings.get(&tool_ref.server.name).map_or(&[][..], |listing| listing.tools()) {
        let name = full_name(&tool_ref.server.name, &listed.name);
        if !used_names.insert(name.clone()) {
            tracing::debug!(
                server = tool_ref.server.name,
                tool = listed.name,
                name,
                "MCP tool left out: name taken"
            );
            continue;
        }
        let mut tool = with_listing(&set.prototype, server, tool_ref, listed);
        tool.name = name;
        tool.description = listed.description.clone();
        tools.push(tool);
    }
    tools
}

/// What a tool of an MCP server has, and which one it is.
fn mcp_tool(tool: &Tool) -> Option<(&ServerTool, &McpToolRef)> {
    let server = tool.server()?;
    match &server.target {
        Target::Mcp(tool_ref) => Some((server, tool_ref)),
        Target::Http(_)
        | Target::Native(_)
        | Target::Builtin(_)
        | Target::Agent(_)
        | Target::Queue(_) => None,
    }
}

fn with_listing(
    tool: &Tool,
    server: &ServerTool,
    tool_ref: &McpToolRef,
    listed: &ListedTool,
) -> Tool {
    let target = Target::Mcp(McpToolRef {
        server: tool_ref.server.clone(),
        tool: listed.name.clone(),
        output: listed.output.clone(),
    });
    Tool {
        parameters: listed.parameters.clone(),
        kind: ToolKind::Server(ServerTool { target, ..server.clone() }),
        ..tool.clone()
    }
}

/// `server_tool`, with illegal characters replaced; a name that is too long is cut and ends with a
/// hash of the whole name.
fn full_name(server: &str, tool: &str) -> String {
    let whole = format!("{server}_{tool}");
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name: String = whole.chars().map(|c| if legal(c) { c } else { '_' }).collect();
    if name.len() <= MAX_TOOL_NAME_BYTES {
        return name;
    }
    let hash = HEXLOWER.encode(&Sha256::digest(whole.as_bytes()));
    format!("{}_{}", &name[..MAX_TOOL_NAME_BYTES - HASH_DIGITS - 1], &hash[..HASH_DIGITS])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_name_is_legal_and_tells_long_names_apart() {
        assert_eq!(full_name("docs", "search"), "docs_search");
        assert_eq!(full_name("docs", "a.b/ä c"), "docs_a_b___c");
        let long = |end: &str| full_name("docs", &format!("{}{end}", "x".repeat(80)));
        assert_eq!(long("1").len(), MAX_TOOL_NAME_BYTES);
        assert_ne!(long("1"), long("2"));
        assert_eq!(long("1"), long("1"));
    }
}
