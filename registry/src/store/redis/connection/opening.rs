//! Opens the servers: asks every primary whether it can keep the durability that is wanted.

use futures::future::join_all;
use redis::{ErrorKind, RedisError, RedisResult, Value, cmd};

use super::dial::{CONNECT_TIMEOUT, ServerConnection, dial};
use super::durability::Durability;
use super::sentinel;
use super::server_info::ServerInfo;
use super::url::{Host, Kind, RedisUrl};

/// Why a store was not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The server may be there later.
    #[error("{url} is away: {reason}")]
    Away { url: RedisUrl, reason: String },
    /// The server does not let this user in.
    #[error("{url} refuses the user or the password: {reason}")]
    Denied { url: RedisUrl, reason: String },
    /// The server must be configured differently, or less durability be asked for.
    #[error("redis at {server} cannot promise --durability {durability}: {reason}")]
    Promise { server: String, durability: Durability, reason: String },
    /// The keys are not those of the store.
    #[error("--encrypt-key-file: {0}")]
    Encryption(String),
}

/// The servers that were found.
pub(in crate::store::redis) struct OpenedStore {
    /// One line for the log.
    pub(in crate::store::redis) description: String,
    /// Tells this opening from all others: the moment by a server's clock, and the connection's id.
    pub(in crate::store::redis) opening_id: String,
}

/// Checks that every primary can keep this durability.
pub(in crate::store::redis) async fn check(
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
    let mut primaries = Vec::new();
    for (host, primary) in self::primaries(url).await.map_err(failed)? {
        primaries.push((host, primary.map_err(failed)?));
    }
    let mut infos = Vec::with_capacity(primaries.len());
    for (server, primary) in &mut primaries {
        let info = ServerInfo::read(primary).await.map_err(failed)?;
        if let Err(reason) = info.require(durability) {
            return Err(OpenError::Promise { server: server.to_string(), durability, reason });
        }
        infos.push(info);
    }
    let Some(((_, first), info)) = primaries.first_mut().zip(infos.first()) else {
        return Err(failed((ErrorKind::Client, "the cluster has no primaries").into()));
    };
    let opening_id = opening_id(first).await.map_err(failed)?;
    if infos.iter().any(|info| !info.is_config_allowed()) {
        tracing::warn!(%url, "CONFIG is forbidden: settings that INFO does not show were not checked");
    }
    let primaries = match infos.len() {
        1 => String::new(),
        several => format!("{several} primaries, "),
    };
    Ok(OpenedStore {
        description: format!("redis {}, {primaries}{info}", info.get("redis_version")),
        opening_id,
    })
}

/// The primaries, each with a connection if it can be reached.
pub(super) async fn primaries(
    url: &RedisUrl,
) -> RedisResult<Vec<(Host, RedisResult<ServerConnection>)>> {
    match &url.kind {
        Kind::Single => {
            let (host, primary) = dial_any(url, url.hosts()).await?;
            Ok(vec![(host, Ok(primary))])
        }
        Kind::Sentinel(name) => {
            let (host, primary) = sentinel::primary(url, name).await?;
            Ok(vec![(host, Ok(primary))])
        }
        Kind::Cluster => {
            let mut hosts: Vec<Host> = Vec::new();
            for range in slot_ranges(url, url.hosts()).await? {
                if !hosts.contains(&range.primary) {
                    hosts.push(range.primary);
                }
            }
            // At once: one that hangs must not keep the others from being looked at.
            let dialling = hosts.into_iter().map(|host| async move {
                let primary = match url.server(&host) {
                    Ok(server) => dial(server, CONNECT_TIMEOUT).await,
                    Err(error) => Err(error),
                };
                (host, primary)
            });
            Ok(join_all(dialling).await)
        }
    }
}

/// The first of the hosts that answers.
async fn dial_any(url: &RedisUrl, hosts: &[Host]) -> RedisResult<(Host, ServerConnection)> {
    let mut last = RedisError::from((ErrorKind::Client, "no host was dialled"));
    for host in hosts {
        match dial(url.server(host)?, CONNECT_TIMEOUT).await {
            Ok(server) => return Ok((host.clone(), server)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Consecutive slots of a cluster, from `first` to `last`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SlotRange {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) primary: Host,
    pub(super) replicas: Vec<Host>,
}

/// All slots of a cluster that have a primary, as the first of the hosts knows them that answers.
pub(super) async fn slot_ranges(url: &RedisUrl, hosts: &[Host]) -> RedisResult<Vec<SlotRange>> {
    let (asked, mut node) = dial_any(url, hosts).await?;
    let ranges = cmd("CLUSTER").arg("SLOTS").query_async::<Vec<_>>(&mut node).await?;
    ranges.into_iter().map(|range| SlotRange::parse(range, &asked)).collect()
}

impl SlotRange {
    /// Reads a range as the server at `asked` lists it: its first and last slot, its primary, its
    /// replicas. A node is its name and port, and more in some versions.
    fn parse(range: Vec<Value>, asked: &Host) -> RedisResult<Self> {
        let mut parts = range.into_iter();
        let mut next = || parts.next().unwrap_or(Value::Nil);
        let first = redis::from_redis_value(next())?;
        let last = redis::from_redis_value(next())?;
        let primary = server(next(), asked)?;
        // One whose address is unknown is no help.
        let replicas = parts.filter_map(|node| server(node, asked).ok()).collect();
        Ok(Self { first, last, primary, replicas })
    }

    /// All servers that have these slots.
    pub(super) fn servers(&self) -> impl Iterator<Item = &Host> {
        std::iter::once(&self.primary).chain(&self.replicas)
    }
}

/// Reads the address of a server of a cluster.
fn server(node: Value, asked: &Host) -> RedisResult<Host> {
    let Value::Array(mut node) = node else {
        return Err((ErrorKind::UnexpectedReturnType, "CLUSTER SLOTS names no server").into());
    };
    node.truncate(2);
    let (name, port) = redis::from_redis_value::<(Option<String>, u16)>(Value::Array(node))?;
    // A node that does not know its own name is at the address where it was asked.
    let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| asked.name.clone());
    Ok(Host { name, port })
}

async fn opening_id(server: &mut ServerConnection) -> RedisResult<String> {
    let (seconds, micros): (u64, u64) = cmd("TIME").query_async(server).await?;
    let client: u64 = cmd("CLIENT").arg("ID").query_async(server).await?;
    Ok(format!("{seconds:x}.{micros:x}.{client:x}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_slots_is_read_as_every_version_lists_it() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let asked = Host { name: "asked".to_owned(), port: 7000 };
        let parse = |node: Vec<Value>| {
            let replica = Value::Array(vec![text("r"), Value::Int(7002), text("id")]);
            let unknown = Value::Array(vec![text("?")]);
            let slots = [Value::Int(5_461), Value::Int(10_922)];
            let range = [&slots[..], &[Value::Array(node), replica, unknown]].concat();
            SlotRange::parse(range, &asked)
        };
        for (node, name) in [
            (vec![text("10.0.0.2"), Value::Int(7001)], "10.0.0.2"),
            (vec![text("h"), Value::Int(7001), text("id"), Value::Array(Vec::new())], "h"),
            (vec![text(""), Value::Int(7001)], "asked"),
            (vec![Value::Nil, Value::Int(7001), text("id")], "asked"),
        ] {
            let found = parse(node).unwrap();
            assert_eq!((found.first, found.last), (5_461, 10_922));
            let servers: Vec<String> = found.servers().map(Host::to_string).collect();
            assert_eq!(servers, [format!("{name}:7001"), "r:7002".to_owned()]);
        }
        assert!(parse(vec![text("h")]).is_err(), "it has no port");
        assert!(SlotRange::parse(vec![Value::Int(0), Value::Int(1)], &asked).is_err());
    }
}
