//! What the servers can promise, asked when a store is opened.

use std::fmt;
use std::num::NonZeroU8;

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, RedisResult, Value, cmd};

use super::facts::ServerInfo;
use super::line::{CONNECT, dial};
use super::sentinel;
use super::url::{Host, Kind, RedisUrl};

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The machine of its primary: written to the disk first. Needs `appendonly yes` and
    /// `appendfsync always`.
    Fsync,
    /// The death of its primary's process. Needs `appendonly yes`.
    Os,
    /// The loss of its primary, when one of so many replicas takes over that have the write.
    Replicas(NonZeroU8),
}

/// Why a store was not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// It may be there later.
    #[error("{url} is away: {reason}")]
    Away { url: RedisUrl, reason: String },
    /// It will not let this user in.
    #[error("{url} refuses the user or the password: {reason}")]
    Denied { url: RedisUrl, reason: String },
    /// It must be configured otherwise, or be asked for less.
    #[error("redis at {server} cannot promise --durability {durability}: {reason}")]
    Promise { server: String, durability: Durability, reason: String },
}

/// What was found.
pub(super) struct OpenedStore {
    pub(super) line: String,
    /// Named after the moment by a server's clock, and after the connection.
    pub(super) opened: String,
}

/// Asks every primary whether it can promise this.
pub(super) async fn check(
    url: &RedisUrl,
    durability: Durability,
) -> Result<OpenedStore, OpenError> {
    let failed = |error: RedisError| {
        let (url, reason) = (url.clone(), error.to_string());
        match error.code() {
            Some("NOAUTH" | "WRONGPASS" | "NOPERM") => OpenError::Denied { url, reason },
            _ if error.kind() == ErrorKind::AuthenticationFailed => {
                OpenError::Denied { url, reason }
            }
            _ => OpenError::Away { url, reason },
        }
    };
    let mut primaries = primaries(url).await.map_err(failed)?;
    let mut seen = Vec::with_capacity(primaries.len());
    for (server, primary) in &mut primaries {
        let facts = ServerInfo::of(primary).await.map_err(failed)?;
        if let Err(reason) = facts.keep(durability) {
            return Err(OpenError::Promise { server: server.to_string(), durability, reason });
        }
        seen.push(facts);
    }
    let Some(((_, first), facts)) = primaries.first_mut().zip(seen.first()) else {
        return Err(failed((ErrorKind::Client, "the cluster has no primaries").into()));
    };
    let opened = opening(first).await.map_err(failed)?;
    if seen.iter().any(|facts| !facts.configured()) {
        tracing::warn!(%url, "CONFIG is forbidden: what INFO does not tell was not checked");
    }
    let primaries = match seen.len() {
        1 => String::new(),
        several => format!("{several} primaries, "),
    };
    Ok(OpenedStore {
        line: format!("redis {}, {primaries}{facts}", facts.get("redis_version")),
        opened,
    })
}

async fn primaries(url: &RedisUrl) -> RedisResult<Vec<(Host, MultiplexedConnection)>> {
    match &url.kind {
        Kind::Single => Ok(vec![any(url).await?]),
        Kind::Sentinel(name) => {
            let (host, primary) = sentinel::primary(url, name).await?;
            Ok(vec![(host, primary)])
        }
        Kind::Cluster => {
            let (asked, mut node) = any(url).await?;
            let ranges = cmd("CLUSTER").arg("SLOTS").query_async::<Vec<_>>(&mut node).await?;
            let mut hosts: Vec<Host> = Vec::new();
            for range in ranges {
                let (name, port) = primary_of(range)?;
                // A node that does not know its own name is where it was asked.
                let name = if name.is_empty() { asked.name.clone() } else { name };
                let host = Host { name, port };
                if !hosts.contains(&host) {
                    hosts.push(host);
                }
            }
            let mut primaries = Vec::with_capacity(hosts.len());
            for host in hosts {
                let primary = dial(url.server(&host)?, CONNECT).await?;
                primaries.push((host, primary));
            }
            Ok(primaries)
        }
    }
}

/// The first of the hosts that answers.
async fn any(url: &RedisUrl) -> RedisResult<(Host, MultiplexedConnection)> {
    let mut last = RedisError::from((ErrorKind::Client, "no host was asked"));
    for host in url.hosts() {
        match dial(url.server(host)?, CONNECT).await {
            Ok(server) => return Ok((host.clone(), server)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Of a range: its first and last slot, its primary, its replicas; of a node: its name and port, and
/// more in some versions.
fn primary_of(range: Vec<Value>) -> RedisResult<(String, u16)> {
    match range.into_iter().nth(2) {
        Some(Value::Array(mut node)) => {
            node.truncate(2);
            Ok(redis::from_redis_value(Value::Array(node))?)
        }
        _ => Err((ErrorKind::UnexpectedReturnType, "CLUSTER SLOTS names no primary").into()),
    }
}

async fn opening(server: &mut MultiplexedConnection) -> RedisResult<String> {
    let (seconds, micros): (u64, u64) = cmd("TIME").query_async(server).await?;
    let client: u64 = cmd("CLIENT").arg("ID").query_async(server).await?;
    Ok(format!("{seconds:x}.{micros:x}.{client:x}"))
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Durability::Fsync => f.write_str("fsync"),
            Durability::Os => f.write_str("os"),
            Durability::Replicas(wanted) => write!(f, "replicas={wanted}"),
        }
    }
}
