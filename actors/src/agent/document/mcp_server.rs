//! An entry of `mcp_servers`.

use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{Items, LimitsDocument, NetworkDocument, PositiveDuration, Text};

/// A server of tools by the Model Context Protocol: exactly one of `url` and `command`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = McpServer)]
pub(in crate::agent) struct McpServerDocument {
    /// Where it is reached over streamable HTTP.
    #[schema(value_type = Option<String>, max_length = 2048, example = "http://127.0.0.1:9200/mcp")]
    pub(in crate::agent) url: Option<Text<2_048>>,
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    pub(in crate::agent) headers: Option<Map<String, Value>>,
    /// Headers whose values are secret: the names of the variables that hold them.
    #[schema(value_type = Option<BTreeMap<String, String>>,
        example = json!({"authorization": "DOCS_AUTHORIZATION"}))]
    pub(in crate::agent) headers_env: Option<Map<String, Value>>,
    /// A program that each node starts for itself, in the sandbox of commands, and speaks to over
    /// standard input and output. It works in a directory of its own, which is also its `HOME`, and
    /// writes only there.
    #[schema(value_type = Option<String>)]
    pub(in crate::agent) command: Option<Text<4_096>>,
    #[schema(value_type = Option<Vec<String>>, max_items = 64)]
    pub(in crate::agent) args: Option<Items<64>>,
    /// The names of the variables that it gets besides `PATH`, `LANG`, `LC_*`, `TZ`, `HOME`, `TMPDIR`
    /// and `TERM`.
    #[schema(value_type = Option<Vec<String>>, max_items = 64)]
    pub(in crate::agent) env: Option<Items<64>>,
    /// With `command`: where the program may connect to by TCP, as in `permissions`. Never the ports of
    /// the node, of the other nodes, and of their Redis.
    #[schema(value_type = Option<NetworkDocument>, default = true)]
    pub(in crate::agent) network: Option<Value>,
    /// A duration: how long connecting and listing its tools may take. A model step waits no longer
    /// and goes on with what was listed before.
    #[schema(value_type = Option<String>, default = "10s")]
    pub(in crate::agent) timeout: Option<PositiveDuration>,
    /// How many calls of its tools may run; any, if absent.
    pub(in crate::agent) limits: Option<LimitsDocument>,
}
