//! The lease of this node: under which identity it acts, and whether it may start anything.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use tokio::time::Instant;

use crate::journal::Holder;

/// The node's lease and whether it drains; shared by everything that runs on the node.
#[derive(Debug)]
pub struct NodeLease {
    lease: RwLock<Lease>,
    draining: AtomicBool,
}

/// The identity under which a node acts, and until when.
#[derive(Clone, Debug)]
pub struct Lease {
    pub me: Holder,
    /// `None` means for ever, for a node without a cluster.
    pub until: Option<Instant>,
}

impl Lease {
    /// Whether no other node can have declared this one dead at this moment.
    pub fn is_sound(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    /// Replaces the lease. Returns whether the old one had lapsed.
    pub fn renew(&mut self, me: Holder, until: Instant, now: Instant) -> bool {
        let lapsed = !self.is_sound(now);
        *self = Self { me, until: Some(until) };
        lapsed
    }
}

impl NodeLease {
    /// The lease of a node without a cluster: it never lapses.
    pub fn new(me: Holder) -> Self {
        Self { lease: RwLock::new(Lease { me, until: None }), draining: AtomicBool::new(false) }
    }

    /// The holder of this node's claims.
    pub fn me(&self) -> Holder {
        self.lease.read().unwrap_or_else(PoisonError::into_inner).me.clone()
    }

    /// Whether no other node can have declared this one dead, because it renewed its lease in time.
    /// An unsound node starts nothing.
    pub fn is_sound(&self) -> bool {
        self.lease.read().unwrap_or_else(PoisonError::into_inner).is_sound(Instant::now())
    }

    /// Renews the lease as `me`, sound until `until`. Returns whether it had lapsed: then
    /// activities may have been held back, and must be resumed.
    pub fn renew(&self, me: Holder, until: Instant) -> bool {
        let mut lease = self.lease.write().unwrap_or_else(PoisonError::into_inner);
        lease.renew(me, until, Instant::now())
    }

    /// Whether the node takes no more work.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Makes the node take no more work.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }
}
