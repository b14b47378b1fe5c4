//! The lease of this node: under which identity it acts, and whether it may start anything.

use std::sync::{Mutex, PoisonError, RwLock};

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::journal::{Holder, StoreError};

/// The node's lease and whether it drains; shared by everything that runs on the node.
#[derive(Debug)]
pub struct NodeLease {
    lease: RwLock<Lease>,
    /// Why the last attempt to renew the lease failed, if it did.
    failure: Mutex<Option<StoreError>>,
    draining: watch::Sender<bool>,
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
        Self {
            lease: RwLock::new(Lease { me, until: None }),
            failure: Mutex::default(),
            draining: watch::Sender::new(false),
        }
    }

    /// The holder of this node's claims.
    pub fn me(&self) -> Holder {
        self.lease.read().unwrap_or_else(PoisonError::into_inner).me.clone()
    }

    /// Whether this is the holder of this node's claims.
    pub fn is_me(&self, holder: &Holder) -> bool {
        self.lease.read().unwrap_or_else(PoisonError::into_inner).me == *holder
    }

    /// Whether no other node can have declared this one dead, because it renewed its lease in time.
    /// An unsound node starts nothing.
    pub fn is_sound(&self) -> bool {
        self.lease.read().unwrap_or_else(PoisonError::into_inner).is_sound(Instant::now())
    }

    /// Returns once the lease has lapsed.
    pub async fn lapsed(&self) {
        loop {
            let until = self.lease.read().unwrap_or_else(PoisonError::into_inner).until;
            match until {
                Some(until) if until <= Instant::now() => return,
                // It may be renewed meanwhile.
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Renews the lease as `me`, sound until `until`. Returns whether it had lapsed: then
    /// activities may have been held back, and must be resumed.
    pub fn renew(&self, me: Holder, until: Instant) -> bool {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let mut lease = self.lease.write().unwrap_or_else(PoisonError::into_inner);
        lease.renew(me, until, Instant::now())
    }

    /// Notes why the lease was not renewed, until it is.
    pub fn note_failure(&self, error: StoreError) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    /// Why the lease is not sound, for operators; `None` while it is.
    pub fn unsound_reason(&self) -> Option<String> {
        if self.is_sound() {
            return None;
        }
        let lapsed = "the node could not renew its lease";
        Some(match &*self.failure.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => format!("{lapsed}: {error}"),
            None => lapsed.to_owned(),
        })
    }

    /// Whether the node takes no more work.
    pub fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// Returns once the node takes no more work.
    pub async fn drain_begun(&self) {
        // The lease itself holds the sender: waiting cannot fail.
        let _ = self.draining.subscribe().wait_for(|draining| *draining).await;
    }

    /// Makes the node take no more work.
    pub fn drain(&self) {
        self.draining.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::identity::{Incarnation, NodeName};

    #[test]
    fn a_lapsed_lease_says_why_until_it_is_renewed() {
        let me = Holder { node: NodeName::new("n"), incarnation: Incarnation::new("1") };
        let lease = NodeLease::new(me.clone());
        lease.note_failure(StoreError::Unavailable("no replica".to_owned()));
        assert_eq!(lease.unsound_reason(), None, "it is sound");
        lease.renew(me.clone(), Instant::now());
        let lapsed = "the node could not renew its lease";
        assert_eq!(lease.unsound_reason().as_deref(), Some(lapsed));
        lease.note_failure(StoreError::Unavailable("no replica".to_owned()));
        let why = lease.unsound_reason();
        assert_eq!(why, Some(format!("{lapsed}: the store is unavailable: no replica")));
        lease.renew(me, Instant::now() + Duration::from_secs(60));
        assert_eq!(lease.unsound_reason(), None);
    }
}
