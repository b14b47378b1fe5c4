//! Holds tenants to their quotas. A request costs no round trip for it: what is counted by the minute
//! or at the moment is counted on the node, which has an equal share of the quota, and what is stored
//! is read every few seconds.

mod body_share;
mod quota;
mod request_meter;
mod stored_count;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use abide_actors::clock::Clock;
use abide_actors::usage_counts::day_of;
use abide_conversation::{ConversationId, Scoped, Tenant};
use abide_registry::cluster_view::ClusterView;
use abide_registry::store::Store;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use tokio::sync::watch;
use tokio::time::Instant;

pub(crate) use self::body_share::BodyShare;
use self::quota::Quota;
use self::request_meter::RequestMeter;
use self::stored_count::{Source, StoredCount};
use super::document::Quotas;
use crate::problem::Problem;

/// What a client waits for that needs somebody to end a stream.
const STREAM_RETRY_SECONDS: u64 = 5;
/// What a client waits for that needs somebody to delete something.
const DELETION_RETRY_SECONDS: u64 = 60;

/// What this node knows of the use that tenants make of it.
pub(crate) struct QuotaGate {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// The nodes that share the quotas; set once the node is one of them.
    view: OnceLock<watch::Receiver<Arc<ClusterView>>>,
    /// No more than the file has tenants.
    tenants: Mutex<HashMap<Tenant, Arc<TenantUse>>>,
}

/// The use that a tenant makes of this node, and what was last read of what it has stored.
#[derive(Debug, Default)]
struct TenantUse {
    requests: Mutex<RequestMeter>,
    open_streams: AtomicU64,
    bodies: BodyShare,
    conversations: StoredCount,
    blob_bytes: StoredCount,
    tokens: StoredCount,
}

/// An open event stream, which counts until it is dropped.
#[derive(Debug)]
pub(crate) struct StreamPermit(Arc<TenantUse>);

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.open_streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl QuotaGate {
    pub(super) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock, view: OnceLock::new(), tenants: Mutex::default() }
    }

    /// Shares the quotas among the nodes of this view from now on.
    pub(super) fn share_among(&self, view: watch::Receiver<Arc<ClusterView>>) {
        let _ = self.view.set(view);
    }

    /// This node's part of what the nodes may do together: rounded up, so that it is never nothing.
    fn share(&self, limit: u64) -> u64 {
        let members = self.view.get().map_or(1, |view| view.borrow().members.len());
        limit.div_ceil(members.max(1) as u64)
    }

    fn use_of(&self, tenant: &Tenant) -> Arc<TenantUse> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = tenants.get(tenant) {
            return known.clone();
        }
        tenants.entry(tenant.clone()).or_default().clone()
    }

    /// Counts a request.
    pub(super) fn admit_request(&self, tenant: &Tenant, quotas: Quotas) -> Result<(), Problem> {
        let Some(limit) = quotas.requests_per_minute else { return Ok(()) };
        let tenant_use = self.use_of(tenant);
        let mut meter = tenant_use.requests.lock().unwrap_or_else(PoisonError::into_inner);
        meter
            .admit(self.share(limit), Instant::now())
            .map_err(|retry_after| Quota::RequestsPerMinute.exceeded(tenant, retry_after))
    }

    /// What the bodies of a tenant's requests take together.
    pub(super) fn bodies(&self, tenant: &Tenant) -> BodyShare {
        self.use_of(tenant).bodies.clone().of(tenant)
    }

    /// Counts an event stream until the permit is dropped.
    pub(super) fn open_stream(
        &self,
        tenant: &Tenant,
        quotas: Quotas,
    ) -> Result<StreamPermit, Problem> {
        let tenant_use = self.use_of(tenant);
        let open = tenant_use.open_streams.fetch_add(1, Ordering::Relaxed);
        let permit = StreamPermit(tenant_use);
        match quotas.open_streams {
            Some(limit) if open >= self.share(limit) => {
                Err(Quota::OpenStreams.exceeded(tenant, STREAM_RETRY_SECONDS))
            }
            Some(_) | None => Ok(permit),
        }
    }

    /// Makes room for a conversation that a request may create. One that exists needs none: the
    /// request may be a repeat, or is a message to it.
    pub(super) async fn admit_conversation(
        &self,
        id: &Scoped<ConversationId>,
        quotas: Quotas,
    ) -> Result<(), Problem> {
        let Some(limit) = quotas.conversations else { return Ok(()) };
        let tenant = id.tenant();
        let count = &self.use_of(&tenant).conversations;
        count.refresh(&self.store, &tenant, Source::Conversations, (1, limit)).await?;
        if count.is_close(1, limit) && self.store.summary(id).await?.is_some() {
            return Ok(());
        }
        let has_room = count.reserve(1, limit);
        has_room
            .then_some(())
            .ok_or_else(|| Quota::Conversations.exceeded(&tenant, DELETION_RETRY_SECONDS))
    }

    /// Makes room for this many bytes that are about to be stored.
    pub(super) async fn admit_blob(
        &self,
        tenant: &Tenant,
        quotas: Quotas,
        bytes: u64,
    ) -> Result<(), Problem> {
        let Some(limit) = quotas.blob_bytes else { return Ok(()) };
        let count = &self.use_of(tenant).blob_bytes;
        count.refresh(&self.store, tenant, Source::BlobBytes, (bytes, limit)).await?;
        let has_room = count.reserve(bytes, limit);
        has_room
            .then_some(())
            .ok_or_else(|| Quota::BlobBytes.exceeded(tenant, DELETION_RETRY_SECONDS))
    }

    /// Whether a message may start another turn: refused from the moment on that the tokens of the
    /// day are used up.
    pub(super) async fn admit_turn(&self, tenant: &Tenant, quotas: Quotas) -> Result<(), Problem> {
        let Some(limit) = quotas.tokens_per_day else { return Ok(()) };
        let now = self.clock.now();
        let day = day_of(now);
        let count = &self.use_of(tenant).tokens;
        // A turn needs at least one token.
        count.refresh(&self.store, tenant, Source::Tokens(day), (1, limit)).await?;
        let has_room = count.has_room(1, limit);
        let retry_after = || seconds_until_end(day, now.as_second());
        has_room.then_some(()).ok_or_else(|| Quota::TokensPerDay.exceeded(tenant, retry_after()))
    }

    /// Forgets what was read of a tenant's conversations and blobs: some were deleted.
    pub(super) fn deleted(&self, tenant: &Tenant) {
        let tenant_use = self.use_of(tenant);
        tenant_use.conversations.forget();
        tenant_use.blob_bytes.forget();
    }
}

/// How many seconds remain of a day in UTC; at least one.
fn seconds_until_end(day: Date, now_second: i64) -> u64 {
    let end = day.tomorrow().and_then(|next| next.to_zoned(TimeZone::UTC));
    let end = end.map_or(now_second, |end| end.timestamp().as_second());
    u64::try_from(end.saturating_sub(now_second)).unwrap_or_default().max(1)
}

#[cfg(test)]
mod tests;
