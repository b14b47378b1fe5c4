//! The way to one server: its connection, made when it is needed, and its last listing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use reqwest::Client;
use rmcp::service::ServiceError;
use tokio::time::{Instant, interval, sleep_until, timeout};

use super::connection::{Changes, Connection};
use super::listing::Listing;
use super::transport::NegotiatedVersion;
use crate::definition::McpServer;
use crate::environment::Env;
use crate::limits::{SHOWN_TEXT, one_line};

/// A connection that nobody used for so long is closed; connecting anew is cheap beside that.
pub(super) const IDLE: Duration = Duration::from_secs(300);
/// How often it is looked for idleness.
pub(super) const LOOK: Duration = Duration::from_secs(30);
/// A server that ends sooner after it was connected to than this has failed, and is left alone for
/// a while.
const YOUNG: Duration = Duration::from_secs(10);
/// How long a step waits for a server whose tools it knows from before.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a server is left alone after its first failure; twice as long after each further one.
const BACK_OFF: Duration = Duration::from_millis(250);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(60);

/// Shared by all conversations whose agents say the same of the server.
pub(super) struct McpSession {
    pub(super) server: Arc<McpServer>,
    client: Client,
    variables: Env,
    facts: Mutex<Facts>,
    /// Its server said that the tools are others now.
    changed: Arc<AtomicBool>,
    era: Arc<NegotiatedVersion>,
    /// Held while connecting, so that one connection is made.
    connection: tokio::sync::Mutex<Option<Arc<Connection>>>,
    /// Held while listing, so that all who wait get the one answer.
    listing: tokio::sync::Mutex<()>,
}

struct Facts {
    listing: Option<Arc<Listing>>,
    fresh_until: Option<Instant>,
    failures: u32,
    /// Until then the server is left alone.
    not_before: Option<Instant>,
    used: Instant,
}

/// The server cannot be used now; the log has why.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct McpUnavailable(pub(super) String);

impl McpSession {
    pub(super) fn new(server: Arc<McpServer>, client: Client, variables: Env) -> Arc<Self> {
        let facts = Facts {
            listing: None,
            fresh_until: None,
            failures: 0,
            not_before: None,
            used: Instant::now(),
        };
        Arc::new(Self {
            server,
            client,
            variables,
            facts: Mutex::new(facts),
            changed: Arc::default(),
            era: Arc::default(),
            connection: tokio::sync::Mutex::default(),
            listing: tokio::sync::Mutex::default(),
        })
    }

    /// When it was used last.
    pub(super) fn used(&self) -> Instant {
        self.facts().used
    }

    /// The listing, if asking the server now would tell no more: it is fresh, or the server failed
    /// just before.
    pub(super) fn known(&self) -> Option<Option<Arc<Listing>>> {
        let facts = self.facts();
        let later = |moment: Option<Instant>| moment.is_some_and(|moment| Instant::now() < moment);
        let fresh = later(facts.fresh_until) && !self.changed.load(Ordering::Acquire);
        (fresh || later(facts.not_before)).then(|| facts.listing.clone())
    }

    /// The listing as it is.
    pub(super) fn last(&self) -> Option<Arc<Listing>> {
        self.facts().listing.clone()
    }

    /// The listing, asked for if the last is not fresh; the last one when that fails, or takes long:
    /// then it is asked for all the same, for whoever comes next. Without a last one it takes at most
    /// the server's `timeout`.
    pub(super) async fn listing(self: &Arc<Self>) -> Option<Arc<Listing>> {
        self.facts().used = Instant::now();
        if let Some(known) = self.known() {
            return known;
        }
        let link = Arc::clone(self);
        let refresh = tokio::spawn(async move {
            if timeout(link.server.timeout, link.refresh()).await.is_err() {
                link.failed("it took too long to list its tools");
            }
        });
        // Late or not, what is known then is what there is.
        match self.last() {
            Some(_) => drop(timeout(PATIENCE, refresh).await),
            None => drop(refresh.await),
        }
        self.last()
    }

    async fn refresh(self: &Arc<Self>) {
        let _alone = self.listing.lock().await;
        if self.known().is_some() {
            return;
        }
        // A change that is told while the answer is under way counts for the next one.
        self.changed.store(false, Ordering::Release);
        match self.fetch().await {
            Ok(listing) => {
                let mut facts = self.facts();
                facts.fresh_until = Some(Instant::now() + listing.fresh);
                facts.listing = Some(Arc::new(listing));
                (facts.failures, facts.not_before) = (0, None);
            }
            Err(McpUnavailable(why)) => self.failed(&why),
        }
    }

    /// A connection that is lost on the way is made anew, once.
    async fn fetch(self: &Arc<Self>) -> Result<Listing, McpUnavailable> {
        let mut lost = false;
        loop {
            let connection = self.connection().await?;
            match Listing::fetch(&self.server.name, connection.peer()).await {
                Ok(listing) => return Ok(listing),
                Err(ServiceError::McpError(error)) => {
                    return Err(McpUnavailable(error.message.into_owned()));
                }
                Err(error) if lost => return Err(McpUnavailable(error.to_string())),
                Err(_) => {
                    lost = true;
                    self.forget(&connection).await;
                }
            }
        }
    }

    /// The connection, made if there is none. Waits until a server that failed may be asked again,
    /// if that is soon.
    pub(super) async fn connection(self: &Arc<Self>) -> Result<Arc<Connection>, McpUnavailable> {
        let mut slot = self.connection.lock().await;
        self.facts().used = Instant::now();
        if let Some(connection) = slot.take() {
            if !connection.is_closed() {
                *slot = Some(Arc::clone(&connection));
                return Ok(connection);
            }
            if connection.age() < YOUNG {
                self.failed("it ended right after it was connected to");
            }
        }
        let not_before = self.facts().not_before;
        if let Some(moment) = not_before {
            if moment > Instant::now() + self.server.timeout {
                return Err(McpUnavailable("it failed several times".to_owned()));
            }
            sleep_until(moment).await;
        }
        let changes = Changes(Arc::clone(&self.changed));
        let connecting = async {
            let known = self.era.is_known();
            let open = || {
                let client = self.client.clone();
                Connection::open(&self.server, client, &self.variables, changes.clone(), &self.era)
            };
            match open().await {
                Err(_) if !known && self.era.is_known() => open().await,
                opened => opened,
            }
        };
        let connected = match timeout(self.server.timeout, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err("it took too long to connect".to_owned()),
        };
        let connection = Arc::new(connected.map_err(|why| {
            self.failed(&why);
            McpUnavailable(why)
        })?);
        *slot = Some(Arc::clone(&connection));
        tokio::spawn(keep(Arc::downgrade(self), Arc::downgrade(&connection)));
        Ok(connection)
    }

    /// This connection is of no use any more; who still uses it may end what he does.
    pub(super) async fn forget(&self, connection: &Arc<Connection>) {
        let mut slot = self.connection.lock().await;
        if slot.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            *slot = None;
        }
    }

    /// Leaves the server alone for a while. Said once until it works again.
    fn failed(&self, why: &str) {
        let mut facts = self.facts();
        let now = Instant::now();
        facts.fresh_until = None;
        if facts.not_before.is_some_and(|moment| now < moment) {
            return;
        }
        let wait = BACK_OFF.saturating_mul(1 << facts.failures.min(16)).min(LONGEST_BACK_OFF);
        facts.not_before = Some(now + wait);
        facts.failures = facts.failures.saturating_add(1);
        if facts.failures == 1 {
            let why = one_line(why, SHOWN_TEXT);
            tracing::warn!(server = self.server.name, said = why, "an MCP server cannot be used");
        }
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hears of changes as long as the connection stands, and closes it when nobody uses it.
async fn keep(link: Weak<McpSession>, connection: Weak<Connection>) {
    let Some(changes) = connection.upgrade().map(|connection| connection.changes()) else { return };
    let idle = async {
        let mut looks = interval(LOOK);
        loop {
            looks.tick().await;
            let (Some(link), Some(connection)) = (link.upgrade(), connection.upgrade()) else {
                return;
            };
            // The link has it, and this task.
            let unused = Arc::strong_count(&connection) <= 2;
            if connection.is_closed() || unused && link.used().elapsed() > IDLE {
                return link.forget(&connection).await;
            }
        }
    };
    tokio::select! {
        () = changes => {}
        () = idle => {}
    }
}
