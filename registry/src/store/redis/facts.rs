//! What a server says of itself, and what it can promise by that.

use std::collections::HashMap;
use std::fmt;

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, cmd};

use super::promise::Durability;

/// What INFO and CONFIG told of one server.
pub(super) struct ServerInfo {
    told: HashMap<String, String>,
    configured: bool,
}

impl ServerInfo {
    pub(super) async fn of(server: &mut MultiplexedConnection) -> RedisResult<Self> {
        let info: String = cmd("INFO").query_async(server).await?;
        let lines = info.lines().filter_map(|line| line.split_once(':'));
        let mut told: HashMap<_, _> =
            lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let mut configured = true;
        for name in ["appendonly", "appendfsync", "maxmemory", "maxmemory-policy"] {
            let mut ask = cmd("CONFIG");
            ask.arg("GET").arg(name);
            match ask.query_async::<HashMap<String, String>>(server).await {
                Ok(settings) => told.extend(settings),
                Err(error) if error.is_io_error() => return Err(error),
                Err(_) => configured = false,
            }
        }
        if let (false, Some(enabled)) = (configured, told.get("aof_enabled")) {
            let appendonly = if enabled == "1" { "yes" } else { "no" };
            told.insert("appendonly".to_owned(), appendonly.to_owned());
        }
        if let (false, Some(policy)) = (configured, told.get("maxmemory_policy")) {
            told.insert("maxmemory-policy".to_owned(), policy.clone());
        }
        Ok(Self { told, configured })
    }

    pub(super) fn get(&self, name: &str) -> &str {
        self.told.get(name).map_or("unknown", String::as_str)
    }

    /// Whether CONFIG was allowed.
    pub(super) fn configured(&self) -> bool {
        self.configured
    }

    /// Refuses what this server cannot promise, naming the setting.
    pub(super) fn keep(&self, durability: Durability) -> Result<(), String> {
        let version = self.get("redis_version");
        let mut numbers = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        if (numbers.next(), numbers.next()) < (Some(6), Some(2)) {
            return Err(format!("it is redis {version}, and 6.2 is needed"));
        }
        let (memory, policy) = (self.get("maxmemory"), self.get("maxmemory-policy"));
        if memory != "0" && policy != "noeviction" {
            return Err(format!("maxmemory-policy is {policy}, and must be noeviction"));
        }
        let must_be = |name, wanted| match self.get(name) {
            found if found == wanted => Ok(()),
            // The server does not let it be read.
            "unknown" if !self.configured => Ok(()),
            found => Err(format!("{name} is {found}, and must be {wanted}")),
        };
        match durability {
            Durability::Fsync => {
                must_be("appendonly", "yes")?;
                must_be("appendfsync", "always")
            }
            Durability::Os => must_be("appendonly", "yes"),
            Durability::Replicas(wanted) => match self.replicas() {
                found if found >= usize::from(wanted.get()) => Ok(()),
                found => Err(format!("{found} replicas are connected, and {wanted} are needed")),
            },
        }
    }

    /// Those that are in step with it.
    fn replicas(&self) -> usize {
        let named = self.told.iter().filter(|(name, _)| name.starts_with("slave"));
        named.filter(|(_, value)| value.contains("state=online")).count()
    }
}

impl fmt::Display for ServerInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in ["appendonly", "appendfsync", "maxmemory-policy"] {
            write!(f, "{name} {}, ", self.get(name))?;
        }
        write!(f, "connected replicas {}", self.replicas())?;
        if self.configured { Ok(()) } else { f.write_str(", CONFIG is forbidden") }
    }
}
