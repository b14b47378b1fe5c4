//! The Redis that several nodes share under load, as a process.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use abide_registry::store::Store;
use abide_registry::store::redis::{self, RedisUrl};
use tokio::process::{Child, Command};

use super::{Durability, LoadError, load_error};

/// How long a start may take.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the rewrite of its file may take: gigabytes, on a busy disk.
const REWRITE_TIMEOUT: Duration = Duration::from_secs(300);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A server, which is killed when the value is dropped.
pub(super) struct Redis {
    pub(super) url: String,
    _server: Child,
}

/// A part of the server's `INFO`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Info {
    /// All memory that it has allocated.
    pub(super) memory: u64,
    pub(super) dataset: u64,
    pub(super) is_rewriting: bool,
    pub(super) usage: Usage,
}

/// What a server has done since it started, or between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Usage {
    /// Its processor time, without that of a child process that rewrites its file.
    pub(super) cpu_time: Duration,
    /// The commands, those of scripts among them.
    pub(super) commands: u64,
    /// How often it read from a connection.
    pub(super) reads: u64,
    pub(super) bytes_read: u64,
}

/// The commands that a server has carried out, those of scripts among them, and the time that it spent
/// on them; the commands of a script are in its own time, too. What connections begin with, and what
/// only asks after the server, is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct CommandStats {
    pub(super) calls: u64,
    pub(super) micros: u64,
}

/// Commands that belong to no request.
const UNCOUNTED: [&str; 6] = ["auth", "client", "config", "hello", "info", "ping"];

impl CommandStats {
    fn parse(text: &str) -> Self {
        let mut all = Self::default();
        for line in text.lines() {
            let Some((name, fields)) =
                line.strip_prefix("cmdstat_").and_then(|it| it.split_once(':'))
            else {
                continue;
            };
            let name = name.split('|').next().unwrap_or(name);
            let field = |name: &str| {
                let value =
                    fields.split(',').find_map(|it| it.strip_prefix(name)?.strip_prefix('='));
                value.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or_default()
            };
            if !UNCOUNTED.contains(&name) {
                all.calls += field("calls");
                all.micros += field("usec");
            }
        }
        all
    }

    pub(super) fn since(self, before: Self) -> Self {
        Self {
            calls: self.calls.saturating_sub(before.calls),
            micros: self.micros.saturating_sub(before.micros),
        }
    }

    pub(super) fn least(self, other: Self) -> Self {
        Self { calls: self.calls.min(other.calls), micros: self.micros.min(other.micros) }
    }
}

impl Usage {
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            cpu_time: self.cpu_time.saturating_sub(before.cpu_time),
            commands: self.commands.saturating_sub(before.commands),
            reads: self.reads.saturating_sub(before.reads),
            bytes_read: self.bytes_read.saturating_sub(before.bytes_read),
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            cpu_time: self.cpu_time + other.cpu_time,
            commands: self.commands + other.commands,
            reads: self.reads + other.reads,
            bytes_read: self.bytes_read + other.bytes_read,
        }
    }
}

/// Scripts of [`Redis::empty_content`], and how many keys one call of them has.
const EMPTY_JOURNALS: &str = "for _, key in ipairs(KEYS) do
  for at = 0, redis.call('LLEN', key) - 1 do redis.call('LSET', key, at, '') end
end";
const EMPTY_INBOX: &str = "for _, key in ipairs(KEYS) do
  for _, call in ipairs(redis.call('HKEYS', key)) do redis.call('HSET', key, call, '') end
end";
const KEYS_PER_SCRIPT: usize = 500;

impl Redis {
    /// Starts a server with the settings of this durability.
    pub(super) async fn start(durability: Durability, dir: &Path) -> Result<Self, LoadError> {
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr());
        let port = free.map_err(|error| load_error("a free port", error))?.port().to_string();
        let fsync = match durability {
            Durability::Fsync => "always",
            Durability::Os => "everysec",
        };
        let server = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "yes"])
            // As the example configurations of the book have it.
            .args(["--hash-max-listpack-value", "512"])
            .args(["--appendfsync", fsync, "--dir"])
            .arg(dir)
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| load_error("redis-server", error))?;
        let redis = Self { url: format!("redis://127.0.0.1:{port}"), _server: server };
        let up = async {
            while redis.store(durability).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let up = tokio::time::timeout(START_TIMEOUT, up).await;
        up.map_err(|_| LoadError(format!("redis-server did not answer within {START_TIMEOUT:?}")))?;
        Ok(redis)
    }

    /// Opens the store as a node does.
    pub(super) async fn store(&self, durability: Durability) -> Result<Arc<dyn Store>, LoadError> {
        open(&self.url, durability).await
    }

    /// Reads its `INFO`.
    pub(super) async fn info(&self) -> Result<Info, LoadError> {
        let text = self.section("default").await?;
        Info::parse(&text).ok_or_else(|| LoadError(format!("INFO has no memory: {text:?}")))
    }

    /// What it has carried out since it started.
    pub(super) async fn command_stats(&self) -> Result<CommandStats, LoadError> {
        Ok(CommandStats::parse(&self.section("commandstats").await?))
    }

    /// The keys of this pattern.
    pub(super) async fn keys(&self, pattern: &str) -> Result<Vec<String>, LoadError> {
        let reply = async {
            let client = ::redis::Client::open(self.url.as_str())?;
            let mut connection = client.get_multiplexed_async_connection().await?;
            ::redis::cmd("KEYS").arg(pattern).query_async(&mut connection).await
        };
        reply.await.map_err(|error: ::redis::RedisError| load_error("KEYS", error))
    }

    /// Empties each event of the journals and each entry of the inbox, and leaves everything else.
    pub(super) async fn empty_content(&self) -> Result<(), LoadError> {
        let reply = async {
            let client = ::redis::Client::open(self.url.as_str())?;
            let mut connection = client.get_multiplexed_async_connection().await?;
            for (pattern, script) in [("abide:*:j:*", EMPTY_JOURNALS), ("abide:*:o:*", EMPTY_INBOX)]
            {
                let keys: Vec<String> =
                    ::redis::cmd("KEYS").arg(pattern).query_async(&mut connection).await?;
                for some in keys.chunks(KEYS_PER_SCRIPT) {
                    let mut call = ::redis::cmd("EVAL");
                    call.arg(script).arg(some.len()).arg(some);
                    call.query_async::<()>(&mut connection).await?;
                }
            }
            Ok(())
        };
        reply.await.map_err(|error: ::redis::RedisError| load_error("emptying", error))
    }

    async fn section(&self, name: &str) -> Result<String, LoadError> {
        let reply = async {
            let client = ::redis::Client::open(self.url.as_str())?;
            let mut connection = client.get_multiplexed_async_connection().await?;
            ::redis::cmd("INFO").arg(name).query_async(&mut connection).await
        };
        reply.await.map_err(|error: ::redis::RedisError| load_error("INFO", error))
    }

    /// Waits until it is not rewriting its file.
    pub(super) async fn wait_until_quiet(&self) -> Result<(), LoadError> {
        let quiet = async {
            while self.info().await?.is_rewriting {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            Ok(())
        };
        let quiet = tokio::time::timeout(REWRITE_TIMEOUT, quiet).await;
        quiet.map_err(|_| LoadError(format!("Redis rewrote its file for {REWRITE_TIMEOUT:?}")))?
    }
}

/// Opens a store as a node does.
pub(super) async fn open(at: &str, durability: Durability) -> Result<Arc<dyn Store>, LoadError> {
    let url: RedisUrl = at.parse().map_err(|error| load_error(at, error))?;
    let durability = match durability {
        Durability::Fsync => redis::Durability::Fsync,
        Durability::Os => redis::Durability::Os,
    };
    let store = redis::Redis::open(&url, durability).await;
    Ok(Arc::new(store.map_err(|error| load_error(at, error))?))
}

/// What a server has done since it started, if there is one.
pub(super) async fn usage(redis: Option<&Redis>) -> Result<Option<Usage>, LoadError> {
    match redis {
        Some(redis) => Ok(Some(redis.info().await?.usage)),
        None => Ok(None),
    }
}

impl Info {
    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(str::trim)
        };
        let seconds = |name| field(name)?.parse::<f64>().ok();
        Some(Self {
            memory: field("used_memory")?.parse().ok()?,
            dataset: field("used_memory_dataset")?.parse().ok()?,
            is_rewriting: ["aof_rewrite_in_progress", "aof_rewrite_scheduled"]
                .iter()
                .any(|name| field(name) == Some("1")),
            usage: Usage {
                cpu_time: Duration::from_secs_f64(
                    seconds("used_cpu_sys")? + seconds("used_cpu_user")?,
                ),
                commands: field("total_commands_processed")?.parse().ok()?,
                reads: field("total_reads_processed")?.parse().ok()?,
                bytes_read: field("total_net_input_bytes")?.parse().ok()?,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{CommandStats, Info, Usage};

    #[test]
    fn commands_are_counted_but_for_those_of_no_request() {
        let text = "# Commandstats\r\ncmdstat_zrange:calls=3,usec=40,usec_per_call=1.0\r\n\
                    cmdstat_evalsha:calls=1,usec=7,usec_per_call=7.00\r\n\
                    cmdstat_info:calls=9,usec=90\r\ncmdstat_client|setinfo:calls=2,usec=5\r\n";
        assert_eq!(CommandStats::parse(text), CommandStats { calls: 4, micros: 47 });
    }

    #[test]
    fn fields_of_info_are_read_by_whole_names() {
        let text = "# Memory\r\nused_memory_rss:9\r\nused_memory:5\r\nused_memory_dataset:3\r\n\
                    used_cpu_sys:0.25\r\nused_cpu_user:0.5\r\nused_cpu_sys_children:7\r\n\
                    aof_rewrite_in_progress:0\r\naof_rewrite_scheduled:1\r\n\
                    total_commands_processed:12\r\ntotal_reads_processed:4\r\n\
                    total_net_input_bytes:800\r\n";
        let cpu_time = Duration::from_millis(750);
        let usage = Usage { cpu_time, commands: 12, reads: 4, bytes_read: 800 };
        let read = Info { memory: 5, dataset: 3, is_rewriting: true, usage };
        assert_eq!(Info::parse(text), Some(read));
        assert_eq!(Info::parse("used_memory:5\r\n"), None);
    }
}
