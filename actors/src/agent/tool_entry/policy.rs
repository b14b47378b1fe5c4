//! `retry` and `limits` of a tool, and `limits` of an MCP server.

use std::collections::BTreeSet;
use std::time::Duration;

use abide_conversation::event::Executor;

use crate::agent::document::{LimitsDocument, ToolRetryDocument, word};
use crate::agent::duration;
use crate::agent::reader::Mistakes;
use crate::definition::{Rate, RetryOn, RunLimits, Target, ToolRetry};

const DEFAULT_MAX_ATTEMPTS: u32 = 4;
const DEFAULT_BASE: Duration = Duration::from_secs(1);
const DEFAULT_MAX: Duration = Duration::from_secs(30);
/// A longer delay between two attempts is a schedule.
const LONGEST_MAX: Duration = Duration::from_secs(86_400);
/// The starts within a span are remembered one by one.
const MAX_RATE_COUNT: u32 = 10_000;
const MAX_RATE_SPAN: Duration = Duration::from_secs(86_400);

/// The `retry` of a tool.
pub(super) fn retry(
    mistakes: &mut Mistakes,
    document: Option<ToolRetryDocument>,
    executor: Executor,
    target: Option<&Target>,
) -> Option<ToolRetry> {
    let document = document?;
    check_executor(mistakes, "retry", executor, target);
    let base = document.base.map_or(DEFAULT_BASE, |span| span.0);
    let max = document.max.map_or(DEFAULT_MAX.max(base), |span| span.0);
    if max < base {
        mistakes.add("retry.max", "must be at least base");
    }
    if max > LONGEST_MAX {
        mistakes.add("retry.max", "must be at most a day");
    }
    let all = || {
        BTreeSet::from([
            RetryOn::Network,
            RetryOn::TooManyRequests,
            RetryOn::ServerError,
            RetryOn::Timeout,
        ])
    };
    let on = document.on.map(|items| {
        let mut on = BTreeSet::new();
        for item in &items.0 {
            match word(item).as_deref() {
                Some("network") => on.insert(RetryOn::Network),
                Some("429") => on.insert(RetryOn::TooManyRequests),
                Some("5xx") => on.insert(RetryOn::ServerError),
                Some("timeout") => on.insert(RetryOn::Timeout),
                Some(_) | None => {
                    mistakes.add("retry.on", "must be of network, 429, 5xx, timeout");
                    false
                }
            };
        }
        if items.0.is_empty() {
            mistakes.add("retry.on", "must name at least one of network, 429, 5xx, timeout");
        }
        on
    });
    Some(ToolRetry {
        max_attempts: document.max_attempts.map_or(DEFAULT_MAX_ATTEMPTS, |count| count.0),
        base,
        max,
        on: on.unwrap_or_else(all),
    })
}

/// The `limits` of a tool.
pub(super) fn of_tool(
    mistakes: &mut Mistakes,
    document: Option<LimitsDocument>,
    executor: Executor,
    target: Option<&Target>,
) -> Option<RunLimits> {
    let document = document?;
    check_executor(mistakes, "limits", executor, target);
    limits(mistakes, "", document)
}

/// The `limits` at `prefix`.
pub(in crate::agent) fn limits(
    mistakes: &mut Mistakes,
    prefix: &str,
    document: LimitsDocument,
) -> Option<RunLimits> {
    let LimitsDocument { concurrency, per, rate } = document;
    if concurrency.is_none() && rate.is_none() {
        let field = format!("{prefix}limits");
        if !mistakes.has(&field) {
            mistakes.add(&field, "must have concurrency, rate, or both");
        }
        return None;
    }
    let rate = match rate.map(|text| parse_rate(&text.0)) {
        None => None,
        Some(Some(rate)) => Some(rate),
        Some(None) => {
            let message = format!(
                "must be COUNT/DURATION, such as 100/1m: 1 to {MAX_RATE_COUNT}, within at most a day"
            );
            mistakes.add(&format!("{prefix}limits.rate"), message);
            return None;
        }
    };
    let concurrency = concurrency.map(|count| count.0);
    Some(RunLimits { concurrency, per: per.unwrap_or_default(), rate })
}

fn parse_rate(text: &str) -> Option<Rate> {
    let (count, per) = text.split_once('/')?;
    let count = count.parse().ok().filter(|count| (1..=MAX_RATE_COUNT).contains(count))?;
    let per = duration::parse(per).ok().filter(|per| *per <= MAX_RATE_SPAN)?;
    Some(Rate { count, per })
}

/// Whether the program itself runs the tool.
fn check_executor(
    mistakes: &mut Mistakes,
    field: &str,
    executor: Executor,
    target: Option<&Target>,
) {
    match executor {
        Executor::Server => {}
        Executor::Human | Executor::Client | Executor::Provider => {
            mistakes.add(field, "is for a server tool only");
        }
    }
    let is_child = match target {
        Some(Target::Agent(_)) => true,
        Some(Target::Builtin(builtin)) => *builtin == crate::definition::Builtin::SpawnAgent,
        Some(Target::Queue(_)) => {
            mistakes.add(field, "is not for a tool of a queue");
            false
        }
        Some(Target::Http(_) | Target::Native(_) | Target::Mcp(_)) | None => false,
    };
    if is_child {
        mistakes.add(field, "is not for a tool that a child conversation answers");
    }
}
