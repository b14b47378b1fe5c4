//! A connection to the servers that is replaced when it breaks; and beside it, how the servers are
//! found, dialled and held to the durability, and how the store sends its commands.

pub(super) mod certificates;
pub(super) mod cluster;
mod dial;
pub(super) mod durability;
pub(super) mod durability_watch;
pub(super) mod execute;
pub(super) mod opening;
mod sentinel;
mod server_info;
pub mod transport;
pub(super) mod url;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::cluster_async::ClusterConnection;
use redis::{Pipeline, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until, timeout};

use self::cluster::{Cluster, Primaries};
use self::dial::{ANSWER_TIMEOUT, CONNECT_TIMEOUT, ServerConnection, dial_with, timed_out};
use self::durability_watch::DurabilityWatch;
use self::transport::{Dial, Transport};
use self::url::{Host, Kind, RedisUrl};
use super::command::keys::Tag;

/// How long nobody reconnects after a first failure; each further failure doubles it up to the
/// maximum.
const FIRST_RECONNECT_DELAY: Duration = Duration::from_millis(50);
const MAX_RECONNECT_DELAY: Duration = Duration::from_millis(200);
/// How long after its last use the client library's connection to a cluster is closed.
const LIBRARY_IDLE_TIMEOUT: Duration = Duration::from_secs(3);

/// One multiplexed connection to the present primary; for a cluster, one to each primary.
///
/// Commands that were in flight when it broke are sent once more on its replacement, so every
/// command must be safe to repeat. An answer that takes too long is an error, and the command is
/// not sent again: at worst two connections and two answers take eight seconds, and mostly it is
/// one answer.
pub(super) struct Connection {
    servers: Servers,
    answer_timeout: Duration,
    /// Whether it carries durable writes, so that each server that is connected to is checked.
    is_durable: bool,
    /// The connection; over a cluster that of the client library, which is open only while it is needed.
    current: Arc<Mutex<Current>>,
    /// The primaries that commands go straight to, if the servers are a cluster.
    cluster: Option<Cluster>,
}

/// What a connection leads to.
#[derive(Clone)]
pub(super) enum Servers {
    Real(Arc<RedisUrl>, Arc<DurabilityWatch>),
    /// The servers of a simulation, behind sentinels.
    Simulated(Arc<dyn Dial>),
}

#[derive(Default)]
struct Current {
    open: Option<Checked>,
    /// Counts the connections, so that one that broke is not mistaken for its replacement.
    generation: u64,
    /// When the library was used last.
    used_at: Option<Instant>,
    failure: Option<ConnectFailure>,
}

impl Current {
    /// Closes the library's connection once nobody has used it for a while.
    async fn close_unused(this: Arc<Mutex<Self>>) {
        loop {
            let mut current = this.lock().await;
            let Some(used_at) = current.used_at.filter(|_| current.open.is_some()) else { return };
            let until = used_at + LIBRARY_IDLE_TIMEOUT;
            if until <= Instant::now() {
                current.open = None;
                return;
            }
            drop(current);
            sleep_until(until).await;
        }
    }
}

/// Why there is no connection, and until when nobody reconnects.
struct ConnectFailure {
    error: RedisError,
    delay: Duration,
    until: Instant,
}

/// A connection whose server was checked.
#[derive(Clone)]
struct Checked {
    open: Open,
    /// Why it must carry no durable writes.
    refusal: Option<String>,
}

#[derive(Clone)]
enum Open {
    One(ServerConnection),
    Library(ClusterConnection),
    Simulated(Arc<dyn Transport>),
}

impl Connection {
    /// A connection without durable writes.
    pub(super) fn new(servers: Servers) -> Self {
        Self::closed(servers, false)
    }

    /// A connection for durable writes, whose servers are checked.
    pub(super) fn durable(servers: Servers) -> Self {
        Self::closed(servers, true)
    }

    /// A connection that the first command opens.
    fn closed(servers: Servers, is_durable: bool) -> Self {
        let cluster = match &servers {
            Servers::Real(url, watch) if matches!(url.kind, Kind::Cluster) => {
                let watch = is_durable.then(|| Arc::clone(watch));
                Some(Cluster::new(Arc::clone(url), watch))
            }
            _ => None,
        };
        let (answer_timeout, current) = (ANSWER_TIMEOUT, Arc::default());
        Self { servers, answer_timeout, is_durable, current, cluster }
    }

    /// The same connection, whose answers may take `answer_timeout`.
    pub(super) fn with_timeout(self, answer_timeout: Duration) -> Self {
        Self { answer_timeout, ..self }
    }

    /// Sends commands for one tag, in order and on one connection. The error of a command that the
    /// server refused is among the values.
    pub(super) async fn send(&self, tag: Tag, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        self.send_as(tag, commands, false).await
    }

    /// Sends a durable write, unless the server cannot keep it.
    pub(super) async fn send_durably(
        &self,
        tag: Tag,
        commands: &Pipeline,
    ) -> RedisResult<Vec<Value>> {
        self.send_as(tag, commands, true).await
    }

    async fn send_as(
        &self,
        tag: Tag,
        commands: &Pipeline,
        is_durable: bool,
    ) -> RedisResult<Vec<Value>> {
        let mut may_repeat = true;
        loop {
            let primaries = self.primaries().await;
            if let Some(watch) = self.watch().filter(|_| is_durable) {
                watch.require().map_err(refused)?;
            }
            let mut answer_timeout = self.answer_timeout;
            if let Some(primaries) = primaries {
                let sent_at = Instant::now();
                let answers = primaries.send(tag.slot(), commands, answer_timeout).await?;
                if let Some(answers) = answers {
                    return Ok(answers);
                }
                // The library may have an answer, in what is left of the time.
                answer_timeout = answer_timeout.saturating_sub(sent_at.elapsed());
            }
            let (generation, Checked { mut open, refusal }) = self.open().await?;
            if let Some(reason) = refusal.filter(|_| is_durable) {
                // The next connection is checked anew.
                self.replace(generation).await;
                return Err(refused(reason));
            }
            let outcome = match timeout(answer_timeout, open.send(tag, commands)).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    self.replace(generation).await;
                    return Err(timed_out());
                }
            };
            let broken = match &outcome {
                // A server that was demoted is replaced by the primary that the sentinels name.
                Ok(values) => self.has_sentinels() && values.iter().any(is_from_replica),
                // The library connects anew by itself, and is replaced if it is stuck.
                Err(error) if self.cluster.is_some() => error.is_timeout(),
                Err(error) => !is_refusal(error),
            };
            if !broken {
                return outcome;
            }
            self.replace(generation).await;
            if !std::mem::take(&mut may_repeat)
                || outcome.as_ref().is_err_and(RedisError::is_timeout)
            {
                return outcome;
            }
        }
    }

    /// The primaries of a cluster.
    async fn primaries(&self) -> Option<&Primaries> {
        let cluster = self.cluster.as_ref()?;
        match cluster.found() {
            Some(primaries) => Some(primaries),
            // Boxed: the future of every command would have room for it.
            None => Some(Box::pin(self.find_primaries(cluster)).await),
        }
    }

    async fn find_primaries<'a>(&self, cluster: &'a Cluster) -> &'a Primaries {
        let current = Arc::clone(&self.current);
        let close_library = move || Current::close_unused(Arc::clone(&current));
        cluster.find(close_library).await
    }

    /// The check of the servers, if this connection carries durable writes.
    fn watch(&self) -> Option<&DurabilityWatch> {
        match &self.servers {
            Servers::Real(_, watch) if self.is_durable => Some(watch),
            _ => None,
        }
    }

    fn has_sentinels(&self) -> bool {
        match &self.servers {
            Servers::Real(url, _) => matches!(url.kind, Kind::Sentinel(_)),
            Servers::Simulated(_) => true,
        }
    }

    async fn open(&self) -> RedisResult<(u64, Checked)> {
        let mut current = self.current.lock().await;
        if self.cluster.is_some() {
            current.used_at = Some(Instant::now());
        }
        if let Some(open) = &current.open {
            return Ok((current.generation, open.clone()));
        }
        let recent = current.failure.as_ref().filter(|failure| Instant::now() < failure.until);
        if let Some(failure) = recent {
            return Err(failure.error.clone());
        }
        // Boxed: it is rare, and unboxed it would make the future of every `send` ten times as
        // large.
        let opened = Box::pin(timeout(CONNECT_TIMEOUT, self.connect())).await;
        let opened = opened.unwrap_or_else(|_| Err(timed_out()));
        match opened {
            Ok(open) => {
                current.failure = None;
                current.generation += 1;
                current.open = Some(open.clone());
                Ok((current.generation, open))
            }
            Err(error) => {
                let former = current.failure.as_ref().map(|failure| failure.delay);
                let delay = former.map_or(FIRST_RECONNECT_DELAY, |former| former * 2);
                let delay = delay.min(MAX_RECONNECT_DELAY);
                let until = Instant::now() + delay;
                current.failure = Some(ConnectFailure { error: error.clone(), delay, until });
                Err(error)
            }
        }
    }

    async fn connect(&self) -> RedisResult<Checked> {
        let url = match &self.servers {
            Servers::Real(url, _) => url,
            Servers::Simulated(servers) => {
                let open = Open::Simulated(servers.dial().await?);
                return Ok(Checked { open, refusal: None });
            }
        };
        let [first, ..] = url.hosts() else { return Err(timed_out()) };
        match &url.kind {
            Kind::Single => {
                // `send` limits the wait for an answer itself: a second timer would only cost.
                let open = dial_with(url.server(first)?, CONNECT_TIMEOUT, None).await?;
                self.checked(first, open).await
            }
            Kind::Sentinel(name) => {
                let (host, mut open) = sentinel::primary(url, name).await?;
                open.set_response_timeout(self.answer_timeout);
                self.checked(&host, open).await
            }
            Kind::Cluster => {
                let Some(primaries) = self.primaries().await else { return Err(timed_out()) };
                let open = Open::Library(primaries.library(self.answer_timeout).await?);
                // The verdict on a cluster is on all of its primaries, and in the watch. To wait for it
                // here would be to wait for a primary that hangs.
                Ok(Checked { open, refusal: None })
            }
        }
    }

    async fn checked(&self, host: &Host, mut open: ServerConnection) -> RedisResult<Checked> {
        let refusal = match self.watch() {
            Some(watch) => watch.check_server(host, &mut open).await?,
            None => None,
        };
        Ok(Checked { open: Open::One(open), refusal })
    }

    async fn replace(&self, generation: u64) {
        let mut current = self.current.lock().await;
        if current.generation == generation {
            current.open = None;
        }
    }
}

impl Open {
    async fn send(&mut self, tag: Tag, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        match self {
            Open::One(open) => open.req_packed_commands(commands, 0, commands.len()).await,
            // Boxed: it is three times as large as what the other kinds need, and the future of every
            // command would have room for it.
            Open::Library(open) => {
                Box::pin(cluster::send_by_library(open, tag.slot(), commands)).await
            }
            Open::Simulated(open) => open.send(commands).await,
        }
    }
}

fn refused(reason: String) -> RedisError {
    io::Error::other(reason).into()
}

/// Whether the error is the server's answer, rather than a lack of one.
fn is_refusal(error: &RedisError) -> bool {
    error.code().is_some() && !error.is_io_error()
}

/// Whether the answering server is not the primary any more.
fn is_from_replica(value: &Value) -> bool {
    let Value::ServerError(error) = value else { return false };
    matches!(error.kind(), Some(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown))
}
