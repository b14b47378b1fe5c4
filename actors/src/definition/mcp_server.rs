//! What a definition says of an MCP server and of its tools.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName};

use crate::definition::Tool;
use crate::expressions::schema::Schema;

/// A server of an agent.
#[derive(Clone, Debug)]
pub struct McpServer {
    /// In its agent; the beginning of its tools' names there.
    pub name: String,
    /// All that the definition says of it but the name: equal ones share a connection.
    pub key: String,
    pub reach: McpTransport,
    /// How long connecting and listing may take.
    pub timeout: Duration,
}

/// How a server is reached.
#[derive(Clone, Debug)]
pub enum McpTransport {
    Http {
        url: Url,
        headers: HeaderMap,
        /// The names of the variables that hold the values; never the values.
        secret_headers: Vec<(HeaderName, String)>,
    },
    /// A process of the node, spoken to over its standard input and output.
    Stdio {
        command: String,
        args: Vec<String>,
        /// The names of the variables that it is given besides `PATH`, `HOME`, `LANG`, `TMPDIR`.
        env: Vec<String>,
    },
}

/// One tool of a server, picked by its name there.
#[derive(Clone, Debug)]
pub struct McpToolRef {
    pub server: Arc<McpServer>,
    pub tool: String,
    /// What the server promises of its structured results; known of a tool that is listed.
    pub output: Option<Schema>,
}

/// All tools of a server, in its order.
#[derive(Clone, Debug)]
pub struct McpToolSet {
    /// They stand before the declared tool that is this many-th from the beginning.
    pub before: usize,
    /// What each of them is, but for what the listing says of it.
    pub template: Tool,
}
