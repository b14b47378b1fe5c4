//! The session with one server: its connection, made on demand, and its last listing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rmcp::service::ServiceError;
use tokio::time::{Instant, interval, sleep_until, timeout};

use super::connection::{ChangeFlag, Connection, Connector};
use super::listing::Listing;
use super::transport::NegotiatedVersion;
use super::unavailable::McpUnavailable;
use crate::definition::McpServer;

/// A connection that is unused for this long is closed; reconnecting is cheap in comparison.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// How often a connection is checked for idleness.
pub(super) const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// A connection that ends sooner than this after it was made counts as a failure, so that
/// reconnecting backs off.
const EARLY_END_THRESHOLD: Duration = Duration::from_secs(10);
/// How long a step waits for a fresh listing if an older one is known.
const STALE_REFRESH_TIMEOUT: Duration = Duration::from_secs(1);
/// The backoff after a server's first failure; it doubles with each further one.
const MIN_BACKOFF: Duration = Duration::from_millis(250);
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// The session with one server, shared by all conversations whose agents configure it identically.
pub(super) struct McpSession {
    pub(super) server: Arc<McpServer>,
    connector: Arc<Connector>,
    state: Mutex<SessionState>,
    /// The server has notified us that its tools changed.
    tools_changed: Arc<AtomicBool>,
    version: Arc<NegotiatedVersion>,
    /// Locked while connecting, so that only one connection is made.
    connection: tokio::sync::Mutex<Option<Arc<Connection>>>,
    /// Locked while listing, so that all waiters share one answer.
    listing: tokio::sync::Mutex<()>,
}

struct SessionState {
    listing: Option<Arc<Listing>>,
    fresh_until: Option<Instant>,
    failures: u32,
    /// Why the last attempt to use it failed, until one succeeds.
    problem: Option<String>,
    /// The backoff: the server is not contacted before this moment.
    not_before: Option<Instant>,
    last_used: Instant,
}

impl McpSession {
    pub(super) fn new(server: Arc<McpServer>, connector: Arc<Connector>) -> Arc<Self> {
        let state = SessionState {
            listing: None,
            fresh_until: None,
            failures: 0,
            problem: None,
            not_before: None,
            last_used: Instant::now(),
        };
        Arc::new(Self {
            server,
            connector,
            state: Mutex::new(state),
            tools_changed: Arc::default(),
            version: Arc::default(),
            connection: tokio::sync::Mutex::default(),
            listing: tokio::sync::Mutex::default(),
        })
    }

    /// When the session was last used.
    pub(super) fn last_used(&self) -> Instant {
        self.state().last_used
    }

    /// Why the server cannot be used, if the last attempt failed.
    pub(super) fn problem(&self) -> Option<String> {
        self.state().problem.clone()
    }

    /// The cached listing, if the server need not be contacted: the listing is fresh, or the server
    /// is backing off. The inner `None` means that no listing is known.
    pub(super) fn cached_listing(&self) -> Option<Option<Arc<Listing>>> {
        let state = self.state();
        let later = |moment: Option<Instant>| moment.is_some_and(|moment| Instant::now() < moment);
        let fresh = later(state.fresh_until) && !self.tools_changed.load(Ordering::Acquire);
        (fresh || later(state.not_before)).then(|| state.listing.clone())
    }

    /// The last listing, however old it is.
    pub(super) fn last_listing(&self) -> Option<Arc<Listing>> {
        self.state().listing.clone()
    }

    /// A fresh listing. Fetches one if the cached one has expired, and returns the old one if that
    /// fails or takes longer than a second; the fetch then goes on for the next caller. Without an
    /// old one it takes at most the server's `timeout`.
    pub(super) async fn listing(self: &Arc<Self>) -> Option<Arc<Listing>> {
        self.state().last_used = Instant::now();
        if let Some(known) = self.cached_listing() {
            return known;
        }
        let session = Arc::clone(self);
        let refresh = tokio::spawn(async move {
            if timeout(session.server.timeout, session.refresh()).await.is_err() {
                let why = McpUnavailable::new("it took too long to list its tools");
                session.record_failure(&why);
            }
        });
        // The outcome is in the state; after a timeout the old listing is used.
        match self.last_listing() {
            Some(_) => drop(timeout(STALE_REFRESH_TIMEOUT, refresh).await),
            None => drop(refresh.await),
        }
        self.last_listing()
    }

    async fn refresh(self: &Arc<Self>) {
        let _alone = self.listing.lock().await;
        if self.cached_listing().is_some() {
            return;
        }
        // Cleared before the fetch: a change during the fetch expires the next listing.
        self.tools_changed.store(false, Ordering::Release);
        match self.fetch_listing().await {
            Ok(listing) => {
                let mut state = self.state();
                state.fresh_until = Some(Instant::now() + listing.ttl);
                state.listing = Some(Arc::new(listing));
                (state.failures, state.not_before, state.problem) = (0, None, None);
            }
            Err(why) => self.record_failure(&why),
        }
    }

    /// Fetches the listing; reconnects once if the connection breaks meanwhile.
    async fn fetch_listing(self: &Arc<Self>) -> Result<Listing, McpUnavailable> {
        let mut lost = false;
        loop {
            let connection = self.connection().await?;
            match Listing::fetch(&self.server.name, connection.peer()).await {
                Ok(listing) => return Ok(listing),
                Err(ServiceError::McpError(error)) => {
                    let reason = "it answered with an error";
                    return Err(McpUnavailable::with_detail(reason, &error.message));
                }
                Err(error) if lost => {
                    let reason = "the connection to it broke";
                    return Err(McpUnavailable::with_detail(reason, &error.to_string()));
                }
                Err(_) => {
                    lost = true;
                    self.discard(&connection).await;
                }
            }
        }
    }

    /// The connection, made if there is none. Waits for the end of the server's backoff if that is
    /// within its timeout.
    pub(super) async fn connection(self: &Arc<Self>) -> Result<Arc<Connection>, McpUnavailable> {
        let mut slot = self.connection.lock().await;
        self.state().last_used = Instant::now();
        if let Some(connection) = slot.take() {
            if !connection.is_closed() {
                *slot = Some(Arc::clone(&connection));
                return Ok(connection);
            }
            if connection.age() < EARLY_END_THRESHOLD {
                let why = McpUnavailable::new("it ended right after it was connected to");
                self.record_failure(&why);
            }
        }
        let not_before = self.state().not_before;
        if let Some(moment) = not_before {
            if moment > Instant::now() + self.server.timeout {
                return Err(McpUnavailable::new("it failed several times"));
            }
            sleep_until(moment).await;
        }
        let changes = ChangeFlag(Arc::clone(&self.tools_changed));
        let connecting = async {
            let known = self.version.is_known();
            let open = || self.connector.open(&self.server, changes.clone(), &self.version);
            match open().await {
                Err(_) if !known && self.version.is_known() => open().await,
                opened => opened,
            }
        };
        let connected = match timeout(self.server.timeout, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err(McpUnavailable::new("it took too long to connect")),
        };
        let connection = Arc::new(connected.inspect_err(|why| self.record_failure(why))?);
        *slot = Some(Arc::clone(&connection));
        tokio::spawn(supervise(Arc::downgrade(self), Arc::downgrade(&connection)));
        Ok(connection)
    }

    /// Drops this connection from the session; callers that still use it may finish.
    pub(super) async fn discard(&self, connection: &Arc<Connection>) {
        let mut slot = self.connection.lock().await;
        if slot.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            *slot = None;
        }
    }

    /// Records a failure and backs off. Only the first failure in a row is logged.
    fn record_failure(&self, why: &McpUnavailable) {
        let mut state = self.state();
        let now = Instant::now();
        state.fresh_until = None;
        state.problem = Some(why.reason.clone());
        if state.not_before.is_some_and(|moment| now < moment) {
            return;
        }
        let wait = MIN_BACKOFF.saturating_mul(1 << state.failures.min(16)).min(MAX_BACKOFF);
        state.not_before = Some(now + wait);
        state.failures = state.failures.saturating_add(1);
        if state.failures == 1 {
            let McpUnavailable { reason, detail } = why;
            let content = detail.as_deref().unwrap_or_default();
            tracing::warn!(server = self.server.name, reason, content, "MCP server unavailable");
        }
    }

    fn state(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches for changes of the tools while the connection is open, and closes it when it is idle.
async fn supervise(session: Weak<McpSession>, connection: Weak<Connection>) {
    let Some(changes) = connection.upgrade().map(|connection| connection.watch_changes()) else {
        return;
    };
    let idle = async {
        let mut looks = interval(IDLE_CHECK_INTERVAL);
        loop {
            looks.tick().await;
            let (Some(session), Some(connection)) = (session.upgrade(), connection.upgrade())
            else {
                return;
            };
            // The session and this task hold one reference each.
            let unused = Arc::strong_count(&connection) <= 2;
            if connection.is_closed() || unused && session.last_used().elapsed() > IDLE_TIMEOUT {
                return session.discard(&connection).await;
            }
        }
    };
    tokio::select! {
        () = changes => {}
        () = idle => {}
    }
}
