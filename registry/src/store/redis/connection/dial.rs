//! Connects to one server.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, ConnectionAddr, Pipeline, RedisError, RedisFuture, RedisResult, Value};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

/// How long an answer may take. A longer wait means a half-open connection or a server that hangs.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a connection may take, with its handshake.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long an attempt to connect runs alone (RFC 8305, section 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// How many attempts run at once. After a second the kernel repeats what the first one sent.
const MAX_ATTEMPTS: usize = 4;

/// A connection to one server, which ends with its last clone.
#[derive(Clone)]
pub(super) struct ServerConnection {
    commands: MultiplexedConnection,
    /// `None` if the client library drives the connection.
    _driver: Option<Arc<AbortOnDropHandle<()>>>,
}

/// Connects to one server, whose answers may take [`ANSWER_TIMEOUT`].
pub(super) async fn dial(
    server: redis::ConnectionInfo,
    connect_timeout: Duration,
) -> RedisResult<ServerConnection> {
    dial_with(server, connect_timeout, Some(ANSWER_TIMEOUT)).await
}

/// Connects to one server; without `answer_timeout` the caller watches the time of answers itself.
pub(super) async fn dial_with(
    server: redis::ConnectionInfo,
    connect_timeout: Duration,
    answer_timeout: Option<Duration>,
) -> RedisResult<ServerConnection> {
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(connect_timeout))
        .set_response_timeout(answer_timeout);
    let connected = timeout(connect_timeout, race(|| connect(&server, config.clone()))).await;
    connected.unwrap_or_else(|_| Err(timed_out()))
}

/// Returns what the first attempt to end has returned. A server, or the proxy before it, that is
/// just starting may swallow an attempt's first packet, which the kernel repeats only after a
/// second, where the next attempt is answered at once.
async fn race<F: Future>(attempt: impl Fn() -> F) -> F::Output {
    let mut attempts = FuturesUnordered::new();
    loop {
        attempts.push(attempt());
        let has_more = attempts.len() < MAX_ATTEMPTS;
        tokio::select! {
            Some(outcome) = attempts.next() => return outcome,
            () = sleep(ATTEMPT_DELAY), if has_more => {}
        }
    }
}

async fn connect(
    server: &redis::ConnectionInfo,
    config: redis::AsyncConnectionConfig,
) -> RedisResult<ServerConnection> {
    let ConnectionAddr::Tcp(host, port) = server.addr() else {
        // TLS is the library's, and so is the task that drives the connection then.
        let client = redis::Client::open(server.clone())?;
        let commands = client.get_multiplexed_async_connection_with_config(&config).await?;
        return Ok(ServerConnection { commands, _driver: None });
    };
    let stream = TcpStream::connect((host.as_str(), *port)).await?;
    stream.set_nodelay(true)?;
    let settings = server.redis_settings();
    let (commands, driver) =
        MultiplexedConnection::new_with_config(settings, stream, config).await?;
    let driver = BatchingDriver { driver: Box::pin(driver), has_yielded: false };
    let driver = tokio::spawn(driver);
    Ok(ServerConnection { commands, _driver: Some(Arc::new(AbortOnDropHandle::new(driver))) })
}

/// The error of an answer that did not come in time.
pub(super) fn timed_out() -> RedisError {
    std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer in time").into()
}

impl ServerConnection {
    pub(super) fn set_response_timeout(&mut self, timeout: Duration) {
        self.commands.set_response_timeout(timeout);
    }
}

impl ConnectionLike for ServerConnection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        self.commands.req_packed_command(command)
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        commands: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.commands.req_packed_commands(commands, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.commands.get_db()
    }
}

/// Drives a connection after all tasks that are ready have run, so that what they send leaves in one
/// write: of 13.7 writes a turn at 64 clients, 10.0 are left, and Redis reads half as often.
struct BatchingDriver<F> {
    driver: Pin<Box<F>>,
    has_yielded: bool,
}

impl<F: Future<Output = ()>> Future for BatchingDriver<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.has_yielded = !self.has_yielded;
        if self.has_yielded {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.driver.as_mut().poll(context)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use redis::IntoConnectionInfo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn an_attempt_to_connect_that_nobody_answers_does_not_delay_the_next_one() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let server = async {
            let (_silent, _) = listener.accept().await.unwrap();
            let (mut second, _) = listener.accept().await.unwrap();
            // The library's name and version.
            let read = second.read(&mut [0; 1024]).await.unwrap();
            second.write_all(b"+OK\r\n+OK\r\n").await.unwrap();
            read
        };
        let server_info = url.as_str().into_connection_info().unwrap();
        let (connected, read) = tokio::join!(dial(server_info, CONNECT_TIMEOUT), server);
        assert!(read > 0 && connected.is_ok(), "{:?}", connected.err());
    }

    #[tokio::test]
    async fn the_connection_is_driven_after_the_tasks_that_are_ready() {
        let sent = Arc::new(AtomicU32::new(0));
        let seen = sent.clone();
        let driver = std::future::poll_fn(move |_| {
            if seen.load(Ordering::Relaxed) == 3 { Poll::Ready(()) } else { Poll::Pending }
        });
        let driver = BatchingDriver { driver: Box::pin(driver), has_yielded: false };
        let driver = tokio::spawn(driver);
        for _ in 0..3 {
            let sent = sent.clone();
            tokio::spawn(async move { sent.fetch_add(1, Ordering::Relaxed) });
        }
        // Nothing wakes the driver again: it sees all three now, or never.
        let driven = timeout(Duration::from_secs(5), driver).await;
        assert!(driven.is_ok_and(|driven| driven.is_ok()), "the driver ran before the tasks");
    }
}
