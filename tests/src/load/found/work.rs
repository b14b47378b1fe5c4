//! What a request makes the store do.

use std::fmt;
use std::time::{Duration, Instant};

use super::super::node::Node;
use super::super::redis::{CommandStats, Redis};
use super::super::{LoadError, load_error};

/// Where work is read off: a node, and its Redis if that is its store.
pub(super) struct Probe<'a> {
    pub(super) node: &'a Node,
    pub(super) redis: Option<&'a Redis>,
}

/// What was done so far.
pub(super) struct Reading {
    at: Instant,
    redis: Option<CommandStats>,
    bytes_read: u64,
}

/// What was done between two readings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Work {
    pub(super) took: Duration,
    /// The commands of Redis, those of scripts among them, and the time that it spent.
    redis: Option<CommandStats>,
    /// What the node read from its files, whether or not the system had it in memory.
    bytes_read: u64,
}

impl Probe<'_> {
    pub(super) async fn reading(&self) -> Result<Reading, LoadError> {
        let redis = match self.redis {
            Some(redis) => Some(redis.command_stats().await?),
            None => None,
        };
        let path = format!("/proc/{}/io", self.node.pid()?);
        let io = std::fs::read_to_string(&path).map_err(|error| load_error(&path, error))?;
        let read = io.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse().ok());
        let bytes_read = read.ok_or_else(|| LoadError(format!("{path}: has no rchar")))?;
        Ok(Reading { at: Instant::now(), redis, bytes_read })
    }

    /// What was done since that reading.
    pub(super) async fn since(&self, before: Reading) -> Result<Work, LoadError> {
        let took = before.at.elapsed();
        let after = self.reading().await?;
        let redis = after.redis.zip(before.redis).map(|(after, before)| after.since(before));
        Ok(Work { took, redis, bytes_read: after.bytes_read.saturating_sub(before.bytes_read) })
    }
}

impl Work {
    /// The least of each: what others did meanwhile is in none of them.
    pub(super) fn least(self, other: Self) -> Self {
        Self {
            took: self.took.min(other.took),
            redis: self.redis.zip(other.redis).map(|(one, other)| one.least(other)),
            bytes_read: self.bytes_read.min(other.bytes_read),
        }
    }

    /// The mean of this many parts.
    pub(super) fn of_each(self, parts: u32) -> String {
        let each = |whole: u64| whole as f64 / f64::from(parts.max(1));
        let took = each(u64::try_from(self.took.as_micros()).unwrap_or(u64::MAX)) / 1e3;
        match self.redis {
            Some(CommandStats { calls, micros }) => {
                format!("{:.1} commands, {:.0} µs, {took:.2} ms", each(calls), each(micros))
            }
            None => format!("{:.1} kB read, {took:.2} ms", each(self.bytes_read) / 1e3),
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let took = self.took.as_secs_f64() * 1e3;
        match self.redis {
            Some(CommandStats { calls, micros }) => {
                write!(f, "{calls} commands, {micros} µs, {took:.1} ms")
            }
            None => write!(f, "{} kB read, {took:.1} ms", self.bytes_read / 1_000),
        }
    }
}
