//! The configuration of an MCP server and of its tools in an agent definition.

use std::sync::Arc;
use std::time::Duration;

use abide_conversation::permission::Network;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName};

use crate::definition::{RunLimits, Tool};
use crate::expressions::schema::Schema;
use crate::outbound::Outbound;

/// An MCP server of an agent.
#[derive(Clone, Debug)]
pub struct McpServer {
    /// Its name in the definition, and the prefix of its tools' names.
    pub name: String,
    /// Identifies the whole configuration except the name: servers with equal keys share a session.
    pub key: String,
    pub transport: McpTransport,
    /// How long connecting and listing may take.
    pub timeout: Duration,
    /// `None`: all calls of its tools run at once.
    pub limits: Option<RunLimits>,
    /// What it may reach and name.
    pub outbound: Outbound,
}

/// How a server is reached.
#[derive(Clone, Debug)]
pub enum McpTransport {
    Http {
        url: Url,
        headers: HeaderMap,
        /// Header names with the names of the environment variables that hold their values, never
        /// the values.
        secret_headers: Vec<(HeaderName, String)>,
    },
    /// A child process of the node, over its standard input and output.
    Stdio {
        command: String,
        args: Vec<String>,
        /// The environment variables that it gets in addition to those that every program gets.
        env: Vec<String>,
        /// Where it may connect to by TCP.
        network: Network,
    },
}

/// One tool of a server, by its name there.
#[derive(Clone, Debug)]
pub struct McpToolRef {
    pub server: Arc<McpServer>,
    pub tool: String,
    /// The schema of its structured results; known only once the tool is listed.
    pub output: Option<Schema>,
}

/// All tools of a server, in the order in which it lists them.
#[derive(Clone, Debug)]
pub struct McpToolSet {
    /// The index of the declared tool before which they are inserted.
    pub insert_before: usize,
    /// The settings of each of them; name, description and schemas come from the listing.
    pub prototype: Tool,
}
