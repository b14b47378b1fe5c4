//! How much of a tool, or of an MCP server, may run at once and how often it may begin.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use utoipa::ToSchema;

/// The limits of a tool or of an MCP server. What is over them waits in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RunLimits {
    /// The number of runs at one time; `None`: any.
    pub concurrency: Option<u32>,
    pub per: LimitScope,
    /// The number of runs that begin within a time; `None`: any.
    pub rate: Option<Rate>,
}

/// What the limits are counted in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitScope {
    #[default]
    Node,
    Cluster,
    Conversation,
}

/// At most this many within any span of this length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    pub count: u32,
    pub per: Duration,
}

/// For people who ask why a call waits.
impl fmt::Display for RunLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scope = match self.per {
            LimitScope::Node => "node",
            LimitScope::Cluster => "cluster",
            LimitScope::Conversation => "conversation",
        };
        if let Some(concurrency) = self.concurrency {
            write!(f, "{concurrency} at once, ")?;
        }
        if let Some(Rate { count, per }) = self.rate {
            write!(f, "{count} in {per:?}, ")?;
        }
        write!(f, "per {scope}")
    }
}
