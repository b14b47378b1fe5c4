//! How a tool is retried, and how much of a tool or an MCP server may run.

use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{Items, PositiveDuration, Text, Whole};
use crate::definition::LimitScope;

/// How a failed attempt of a server tool is followed by another one, under the same idempotency key.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ToolRetry)]
pub(in crate::agent) struct ToolRetryDocument {
    /// How often a call is attempted at most, including the first attempt.
    #[schema(value_type = Option<u32>, default = 4, minimum = 1, maximum = 100)]
    pub(in crate::agent) max_attempts: Option<Whole<1, 100>>,
    /// A duration: the delay after the first failure. It doubles after each further one.
    #[schema(value_type = Option<String>, default = "1s")]
    pub(in crate::agent) base: Option<PositiveDuration>,
    /// A duration: the longest delay, unless the tool's `Retry-After` asks for a longer one, which is
    /// heeded up to an hour.
    #[schema(value_type = Option<String>, default = "30s")]
    pub(in crate::agent) max: Option<PositiveDuration>,
    /// What is retried: `network`, `429`, `5xx`, `timeout`; all of them if absent. A tool whose
    /// `on_interrupt` is `fail` or `ask` is attempted again only after a 429, or if no connection
    /// could be made.
    #[schema(value_type = Option<Vec<String>>, min_items = 1, max_items = 4)]
    pub(in crate::agent) on: Option<Items<4>>,
}

/// How much of a tool, or of an MCP server, may run; what is over it waits in order.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Limits)]
pub(in crate::agent) struct LimitsDocument {
    /// How many may run at once.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 10_000)]
    pub(in crate::agent) concurrency: Option<Whole<1, 10_000>>,
    /// What is counted together; `node` if absent.
    pub(in crate::agent) per: Option<LimitScope>,
    /// How many may begin within a time, as `COUNT/DURATION`; the count is at most 10000, the duration
    /// at most a day.
    #[schema(value_type = Option<String>, example = "100/1m")]
    pub(in crate::agent) rate: Option<Text<64>>,
}

/// The words of `on`.
pub(in crate::agent) fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(word) => Some(word.clone()),
        // YAML reads 429 as a number.
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
