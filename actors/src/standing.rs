//! What this node is to the others now, and whether it may start anything.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use tokio::time::Instant;

use crate::journal::Holder;

/// Shared by all that runs on a node.
#[derive(Debug)]
pub struct NodeLease {
    lease: RwLock<Lease>,
    draining: AtomicBool,
}

/// As whom a node acts, and for how long.
#[derive(Clone, Debug)]
pub struct Lease {
    pub me: Holder,
    /// `None` is for ever, as the only node has it.
    pub until: Option<Instant>,
}

impl Lease {
    /// Whether nobody can have taken the node for dead at this moment.
    pub fn is_sound(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    /// As `me` from now on, sound until that moment. Returns whether it had lapsed.
    pub fn renew(&mut self, me: Holder, until: Instant, now: Instant) -> bool {
        let lapsed = !self.is_sound(now);
        *self = Self { me, until: Some(until) };
        lapsed
    }
}

impl NodeLease {
    /// The standing of a node that is alone: it never lapses.
    pub fn new(me: Holder) -> Self {
        Self { lease: RwLock::new(Lease { me, until: None }), draining: AtomicBool::new(false) }
    }

    /// Who claims are made for.
    pub fn me(&self) -> Holder {
        self.lease.read().unwrap_or_else(PoisonError::into_inner).me.clone()
    }

    /// Whether nobody can have taken this node for dead: it renewed its lease in time. Without that
    /// it starts nothing.
    pub fn is_sound(&self) -> bool {
        self.lease.read().unwrap_or_else(PoisonError::into_inner).is_sound(Instant::now())
    }

    /// As `me` from now on, sound until that moment. Returns whether it had lapsed: somebody may have
    /// found it unsound, and held something back.
    pub fn renew(&self, me: Holder, until: Instant) -> bool {
        let mut lease = self.lease.write().unwrap_or_else(PoisonError::into_inner);
        lease.renew(me, until, Instant::now())
    }

    /// Whether it takes no more work.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Takes no more work from here on.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }
}
