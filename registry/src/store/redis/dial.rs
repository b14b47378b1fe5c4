//! Connects to one server.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisError, RedisResult};

/// How long an answer may take. A longer wait means a half-open connection or a server that hangs.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a connection may take, with its handshake.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Connects to one server, whose answers may take [`ANSWER_TIMEOUT`].
pub(super) async fn dial(
    server: redis::ConnectionInfo,
    connect_timeout: Duration,
) -> RedisResult<MultiplexedConnection> {
    dial_with(server, connect_timeout, Some(ANSWER_TIMEOUT)).await
}

/// Connects to one server; without `answer_timeout` the caller watches the time of answers itself.
pub(super) async fn dial_with(
    server: redis::ConnectionInfo,
    connect_timeout: Duration,
    answer_timeout: Option<Duration>,
) -> RedisResult<MultiplexedConnection> {
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(connect_timeout))
        .set_response_timeout(answer_timeout);
    redis::Client::open(server)?.get_multiplexed_async_connection_with_config(&config).await
}

/// The error of an answer that did not come in time.
pub(super) fn timed_out() -> RedisError {
    std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer in time").into()
}
