//! Finds the primary that the sentinels agree on.

use std::time::Duration;

use redis::{ErrorKind, RedisError, RedisResult, Value, cmd};
use tokio::time::timeout;

use super::dial::{ServerConnection, dial};
use super::url::{Host, RedisUrl};

/// How long one sentinel may take, so that there is time for the next ones.
const SENTINEL_TIMEOUT: Duration = Duration::from_millis(500);

/// Connects to the primary of a name. Asks one sentinel after the other until one names a server
/// that calls itself a primary: right after a failover some still name the old one.
pub(super) async fn primary(url: &RedisUrl, name: &str) -> RedisResult<(Host, ServerConnection)> {
    let mut last = RedisError::from((ErrorKind::Client, "no sentinel was asked"));
    for host in url.hosts() {
        match timeout(SENTINEL_TIMEOUT, ask_sentinel(url, host, name)).await {
            Ok(Ok(primary)) => return Ok(primary),
            Ok(Err(error)) => last = error,
            Err(_) => last = RedisError::from((ErrorKind::Client, "a sentinel is silent")),
        }
    }
    Err(last)
}

async fn ask_sentinel(
    url: &RedisUrl,
    sentinel: &Host,
    name: &str,
) -> RedisResult<(Host, ServerConnection)> {
    let mut sentinel = dial(url.sentinel(sentinel)?, SENTINEL_TIMEOUT).await?;
    let mut command = cmd("SENTINEL");
    command.arg("get-master-addr-by-name").arg(name);
    let found: Option<(String, u16)> = command.query_async(&mut sentinel).await?;
    let Some((name, port)) = found else {
        return Err((ErrorKind::Client, "the sentinels know no primary of that name").into());
    };
    let host = Host { name, port };
    let mut server = dial(url.server(&host)?, SENTINEL_TIMEOUT).await?;
    let role: Vec<Value> = cmd("ROLE").query_async(&mut server).await?;
    let role: String = redis::from_redis_value(role.into_iter().next().unwrap_or(Value::Nil))?;
    match role.as_str() {
        "master" => Ok((host, server)),
        _ => Err((ErrorKind::Client, "the sentinels name a server that is no primary").into()),
    }
}
