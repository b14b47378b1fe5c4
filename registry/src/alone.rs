//! The cluster of one: a node over a store of its own, with nobody to talk to.

use std::time::Duration;

use abide_actors::journal::{Holder, Refusal};
use async_trait::async_trait;
use tokio::sync::watch;

use crate::membership::{Member, Membership, Renewed, Seen};
use crate::peers::{Links, Peers, Unreached};

/// Any other holder is a former life of this node, and dead.
#[derive(Debug, Default)]
pub struct Alone {
    links: watch::Sender<Links>,
}

#[async_trait]
impl Membership for Alone {
    async fn enter(&self, me: &Member) -> Result<Renewed, Refusal> {
        let members = vec![Seen { member: me.clone(), silent_ms: 0 }];
        Ok(Renewed::Alive { now: me.since, members })
    }

    async fn renew(&self, me: &Member) -> Result<Renewed, Refusal> {
        self.enter(me).await
    }

    async fn bury(&self, _who: &Holder, _suspect: bool) -> Result<bool, Refusal> {
        Ok(true)
    }

    async fn leave(&self, _who: &Holder) -> Result<(), Refusal> {
        Ok(())
    }
}

#[async_trait]
impl Peers for Alone {
    async fn call(&self, _: &str, _: Vec<u8>, _: Duration) -> Result<Vec<u8>, Unreached> {
        Err(Unreached::Unconnected)
    }

    fn links(&self) -> watch::Receiver<Links> {
        self.links.subscribe()
    }
}
