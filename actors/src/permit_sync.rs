//! What a node tells of its runs of a tool whose limits hold in the whole cluster.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// All that a process runs and waits for of one tool. The answer is how many more may begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermitSync {
    /// What is counted together.
    pub key: String,
    /// How many may run at once; absent: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// How many may begin within `rate_ms`; absent: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_count: Option<u32>,
    #[serde(default)]
    pub rate_ms: u64,
    /// The permits that the process has: those of running calls, and those about to be used.
    pub held: u32,
    /// The calls that wait for one.
    pub waiting: u32,
    /// Counts the process's messages about the key: an older one that arrives later means nothing.
    pub seq: u64,
}

impl PermitSync {
    /// The span within which only `rate_count` may begin.
    pub fn rate_span(&self) -> Duration {
        Duration::from_millis(self.rate_ms)
    }
}
