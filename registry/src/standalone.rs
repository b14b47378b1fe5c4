//! The cluster of one: a node over a store of its own, without other nodes.

use std::time::Duration;

use abide_actors::journal::{Holder, StoreError};
use async_trait::async_trait;
use tokio::sync::watch;

use crate::member::{LinkStates, Member, ObservedMember, ProcessId};
use crate::membership::{Membership, MembershipStatus};
use crate::peers::{CallError, Peers};

/// Any other holder is a former incarnation of this node, and dead.
#[derive(Debug, Default)]
pub struct Standalone {
    links: watch::Sender<LinkStates>,
}

#[async_trait]
impl Membership for Standalone {
    async fn members(&self) -> Result<Vec<Member>, StoreError> {
        Ok(Vec::new())
    }

    async fn enter(&self, me: &Member) -> Result<MembershipStatus, StoreError> {
        let members = vec![ObservedMember { member: me.clone(), silent_ms: 0 }];
        Ok(MembershipStatus::Alive { now: me.since, members })
    }

    async fn renew(&self, me: &Member) -> Result<MembershipStatus, StoreError> {
        self.enter(me).await
    }

    async fn declare_dead_if(&self, _who: &Holder, _suspect: bool) -> Result<bool, StoreError> {
        Ok(true)
    }

    async fn leave(&self, _who: &Holder) -> Result<(), StoreError> {
        Ok(())
    }
}

#[async_trait]
impl Peers for Standalone {
    async fn call(&self, _: &ProcessId, _: Vec<u8>, _: Duration) -> Result<Vec<u8>, CallError> {
        Err(CallError::Unconnected)
    }

    fn links(&self) -> watch::Receiver<LinkStates> {
        self.links.subscribe()
    }
}
