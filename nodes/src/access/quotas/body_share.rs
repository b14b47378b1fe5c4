//! What the bodies of one tenant's requests take of the memory that is set aside for bodies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use abide_conversation::Tenant;
use tokio::sync::Semaphore;

use super::quota::Quota;
use crate::problem::Problem;

/// The memory of a tenant's bodies in progress on a node: the largest body that there may be always
/// fits, and almost half of the budget of all bodies is left to the other tenants.
pub(crate) const MAX_TENANT_BODY_BYTES: usize = 33 << 20;
/// How many blobs of a tenant a node receives or sends at a time: half of those of all tenants.
pub(crate) const MAX_TENANT_BLOBS_IN_FLIGHT: usize = 8;
const RETRY_SECONDS: u64 = 1;

/// The share of one tenant, or of nobody in particular, who has no bound; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct BodyShare {
    tenant: Option<Tenant>,
    used_bytes: Arc<AtomicUsize>,
    /// One permit for each blob.
    pub(crate) blobs: Arc<Semaphore>,
}

impl Default for BodyShare {
    fn default() -> Self {
        let blobs = Arc::new(Semaphore::new(MAX_TENANT_BLOBS_IN_FLIGHT));
        Self { tenant: None, used_bytes: Arc::default(), blobs }
    }
}

impl BodyShare {
    /// The share as that of this tenant.
    pub(super) fn of(self, tenant: &Tenant) -> Self {
        Self { tenant: Some(tenant.clone()), ..self }
    }

    /// Takes some bytes; a problem if the tenant has taken too many.
    pub(crate) fn take(&self, bytes: usize) -> Result<(), Problem> {
        let sum = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= MAX_TENANT_BODY_BYTES);
        let taken = self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
        taken.map(drop).map_err(|_| self.exceeded())
    }

    /// Gives some of the bytes back.
    pub(crate) fn give_back(&self, bytes: usize) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The refusal of what exceeds the share.
    pub(crate) fn exceeded(&self) -> Problem {
        let tenant = self.tenant.clone().unwrap_or_default();
        Quota::Bodies.exceeded(&tenant, RETRY_SECONDS)
    }
}
