//! A connection that is replaced when it breaks.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, SingleNodeRoutingInfo, SlotAddr};
use redis::io::tcp::TcpSettings;
use redis::{Pipeline, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::keys::Tag;
use super::sentinel;
use super::url::{Kind, RedisUrl};

/// How long an answer may take. Whoever waits longer holds a connection that is half open, or asks a
/// server that hangs.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// How long a connection may take, with its handshake.
pub(super) const CONNECT: Duration = Duration::from_secs(2);
/// How long nobody tries again after a first failure; doubled by each further one, up to the second.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How often the cluster's connection follows a moved slot, or reconnects, within the patience.
const REDIRECTS: u32 = 3;
/// And how long it waits before it asks again, in milliseconds.
const REDIRECT_WAIT_MS: (u64, u64) = (10, 200);

/// One multiplexed connection to whoever has the data now; of a cluster, one to each primary.
///
/// What was asked when it broke is asked once more on its replacement, so everything that is sent
/// must bear being done twice. An answer that takes too long is an error, and not asked again: at
/// the worst, two connections and two answers take eight seconds, and mostly it is one answer.
pub(super) struct Connection {
    url: Arc<RedisUrl>,
    patience: Duration,
    place: Mutex<Place>,
}

#[derive(Default)]
struct Place {
    open: Option<Open>,
    /// How many there were before, so that one that broke is not mistaken for its replacement.
    number: u64,
    failed: Option<Failed>,
}

/// Why there is no connection, and until when nobody tries.
struct Failed {
    error: RedisError,
    pause: Duration,
    until: Instant,
}

#[derive(Clone)]
enum Open {
    One(MultiplexedConnection),
    Many(ClusterConnection),
}

impl Connection {
    pub(super) fn new(url: Arc<RedisUrl>) -> Self {
        Self::with_patience(url, PATIENCE)
    }

    /// One whose answers may take longer.
    pub(super) fn with_patience(url: Arc<RedisUrl>, patience: Duration) -> Self {
        Self { url, patience, place: Mutex::default() }
    }

    /// Sends commands for one tag, in order and on one connection. A command that the server refused
    /// has its error among the values.
    pub(super) async fn send(&self, tag: Tag, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        let mut again = true;
        loop {
            let (number, mut open) = self.open().await?;
            let outcome = match timeout(self.patience, open.send(tag, commands)).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    self.replace(number).await;
                    return Err(late());
                }
            };
            let broken = match &outcome {
                // Who is the primary then, only sentinels can say.
                Ok(values) => self.is_watched() && values.iter().any(is_of_no_primary),
                Err(error) => !is_refusal(error),
            };
            if !broken {
                return outcome;
            }
            self.replace(number).await;
            if !std::mem::take(&mut again) || outcome.as_ref().is_err_and(RedisError::is_timeout) {
                return outcome;
            }
        }
    }

    fn is_watched(&self) -> bool {
        matches!(self.url.kind, Kind::Sentinel(_))
    }

    async fn open(&self) -> RedisResult<(u64, Open)> {
        let mut place = self.place.lock().await;
        if let Some(open) = &place.open {
            return Ok((place.number, open.clone()));
        }
        let paused = place.failed.as_ref().filter(|failed| Instant::now() < failed.until);
        if let Some(failed) = paused {
            return Err(failed.error.clone());
        }
        // Boxed: it is seldom done, and would make everything that is sent ten times as large.
        let opened = Box::pin(timeout(CONNECT, connect(&self.url, self.patience))).await;
        let opened = opened.unwrap_or_else(|_| Err(late()));
        match opened {
            Ok(open) => {
                place.failed = None;
                place.number += 1;
                place.open = Some(open.clone());
                Ok((place.number, open))
            }
            Err(error) => {
                let pause = place.failed.as_ref().map_or(PAUSE, |failed| failed.pause * 2);
                let pause = pause.min(LONGEST_PAUSE);
                let until = Instant::now() + pause;
                place.failed = Some(Failed { error: error.clone(), pause, until });
                Err(error)
            }
        }
    }

    async fn replace(&self, number: u64) {
        let mut place = self.place.lock().await;
        if place.number == number {
            place.open = None;
        }
    }
}

impl Open {
    async fn send(&mut self, tag: Tag, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        let count = commands.len();
        match self {
            Open::One(open) => open.req_packed_commands(commands, 0, count).await,
            Open::Many(open) => {
                let route = Route::with_key(tag.key(""), SlotAddr::Master);
                let route = SingleNodeRoutingInfo::SpecificNode(route);
                open.route_pipeline(commands.clone(), 0, count, route).await
            }
        }
    }
}

async fn connect(url: &RedisUrl, patience: Duration) -> RedisResult<Open> {
    let [first, ..] = url.hosts() else { return Err(late()) };
    match &url.kind {
        // Whoever sends on a line waits no longer than its patience: a second timer would only cost.
        Kind::Single => within(url.server(first)?, CONNECT, None).await.map(Open::One),
        Kind::Sentinel(name) => {
            let (_, mut open) = sentinel::primary(url, name).await?;
            open.set_response_timeout(patience);
            Ok(Open::One(open))
        }
        Kind::Cluster => {
            let hosts = url.hosts().iter().map(|host| url.server(host));
            let client = ClusterClientBuilder::new(hosts.collect::<RedisResult<Vec<_>>>()?)
                .retries(REDIRECTS)
                .min_retry_wait(REDIRECT_WAIT_MS.0)
                .max_retry_wait(REDIRECT_WAIT_MS.1)
                .connection_timeout(CONNECT)
                .response_timeout(patience)
                .tcp_settings(TcpSettings::default().set_nodelay(true))
                .build()?;
            Ok(Open::Many(client.get_async_connection().await?))
        }
    }
}

/// Connects to one server, whose answers may take as long as usual.
pub(super) async fn dial(
    server: redis::ConnectionInfo,
    connect: Duration,
) -> RedisResult<MultiplexedConnection> {
    within(server, connect, Some(PATIENCE)).await
}

async fn within(
    server: redis::ConnectionInfo,
    connect: Duration,
    answer: Option<Duration>,
) -> RedisResult<MultiplexedConnection> {
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(connect))
        .set_response_timeout(answer);
    redis::Client::open(server)?.get_multiplexed_async_connection_with_config(&config).await
}

/// Whether the server answered, and refused.
fn is_refusal(error: &RedisError) -> bool {
    error.code().is_some() && !error.is_io_error()
}

/// Whether whoever answered is not the primary any more.
fn is_of_no_primary(value: &Value) -> bool {
    let Value::ServerError(error) = value else { return false };
    matches!(error.kind(), Some(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown))
}

fn late() -> RedisError {
    std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer in time").into()
}
