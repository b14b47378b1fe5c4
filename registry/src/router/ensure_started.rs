//! Finds where a conversation lives, and starts it if it lives nowhere.

use std::sync::PoisonError;
use std::time::Duration;

use abide_actors::conversation::Origin;
use abide_actors::journal::Holder;
use abide_actors::request::RequestError;
use abide_conversation::{ConversationId, Scoped};
use tokio::time::Instant;

use super::{ConversationRouter, VIEW_CHANGE_TIMEOUT, store_unavailable, unavailable};
use crate::host::{ActorHandle, HostMsg, StartRefused};
use crate::member::Member;
use crate::placement::{self, Decision, Orphan, PlacementRules, locate};
use crate::protocol::{REQUEST_TIMEOUT, Start};
use crate::store::Occupancy;

/// How long a request waits for a holder that cannot be reached: a connection that broke is
/// replaced within this time, unless the network is cut or the holder's machine is gone. Then the
/// client learns which node it is, and asks again.
const UNREACHABLE_TIMEOUT: Duration = Duration::from_secs(1);
/// How many conversations' holders on other nodes are remembered.
const MAX_REMOTE_HOLDERS: usize = 10_000;

/// Where a conversation lives: on this node, with what this node has of it, or with another member.
#[derive(Clone)]
pub enum Location<H> {
    Here(H),
    There(Box<Member>),
}

impl ConversationRouter {
    /// Where the conversation lives: its live actor here, which is started if it is to live here,
    /// or the member that holds it or is to hold it.
    ///
    /// Every request takes this way. Losing a race for a conversation is no error: the winner is
    /// returned.
    pub async fn ensure_started(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Location<ActorHandle>, RequestError> {
        self.require_sound_lease().await?;
        if let Some(handle) = self.live_here(id) {
            return Ok(Location::Here(handle));
        }
        if let Some(member) = self.remote_holder(id) {
            return Ok(Location::There(Box::new(member)));
        }
        match tokio::time::timeout(REQUEST_TIMEOUT, self.find(id, false)).await {
            Ok(found) => found?.ok_or_else(|| unavailable("no node takes conversations now")),
            Err(_) => Err(unavailable("the conversation's holder was not found in time")),
        }
    }

    /// The live actor of a conversation that another node believes to live here or wants to live
    /// here. The request is never passed on: `None` if the conversation is not to live here.
    pub(crate) async fn ensure_started_here(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<ActorHandle>, RequestError> {
        self.require_sound_lease().await?;
        if let Some(handle) = self.live_here(id) {
            return Ok(Some(handle));
        }
        match self.find(id, true).await? {
            Some(Location::Here(handle)) => Ok(Some(handle)),
            Some(Location::There(_)) | None => Ok(None),
        }
    }

    /// Reads who holds the conversation and acts on it until its location is known. With
    /// `only_here` it is placed on this node or not at all. `None` if no node can take it now.
    async fn find(
        &self,
        id: &Scoped<ConversationId>,
        only_here: bool,
    ) -> Result<Option<Location<ActorHandle>>, RequestError> {
        let mut seen = self.cluster.watch();
        let mut confirmed_dead = None;
        let give_up_at = Instant::now() + UNREACHABLE_TIMEOUT;
        loop {
            let view = seen.borrow_and_update().clone();
            let occupancy = self.store.occupancy(id).await?;
            let is_new = occupancy == Occupancy::New;
            let holder = occupancy.claim().map(|held| held.holder);
            let draining = self.cluster.lease().is_draining();
            let rules = PlacementRules { policy: self.policy, only_here, draining };
            match locate(id, holder.as_ref(), confirmed_dead.as_ref(), &view, rules) {
                Decision::StartHere { replacing } => {
                    let origin = if is_new { Origin::New } else { replacing.into() };
                    return self.start_here(id, origin).await.map(Some);
                }
                Decision::HeldBy(member) => {
                    self.remember_holder(id, &member);
                    return Ok(Some(Location::There(Box::new(member))));
                }
                Decision::PlaceOn(member) => return Ok(Some(Location::There(Box::new(member)))),
                Decision::NoNode => return Ok(None),
                Decision::ConfirmDead(holder) if self.cluster.is_dead(&holder).await? => {
                    confirmed_dead = Some(holder);
                }
                Decision::AwaitLink(Member { holder, .. }) | Decision::ConfirmDead(holder)
                    if Instant::now() >= give_up_at =>
                {
                    return Err(unreachable_holder(&view.me, &holder));
                }
                Decision::ConfirmDead(_) | Decision::AwaitLink(_) | Decision::AwaitView => {
                    self.cluster.changed(&mut seen, VIEW_CHANGE_TIMEOUT).await;
                }
            }
        }
    }

    /// Refuses all requests on a node that may have been declared dead: others may hold what lives
    /// here, and would take over what this node claims. A node whose store was away only briefly,
    /// or whose process was suspended, gets the time to renew its lease.
    async fn require_sound_lease(&self) -> Result<(), RequestError> {
        if self.cluster.lease().is_sound() {
            return Ok(());
        }
        let mut seen = self.cluster.watch();
        seen.mark_unchanged();
        self.cluster.changed(&mut seen, VIEW_CHANGE_TIMEOUT).await;
        if self.cluster.lease().is_sound() {
            Ok(())
        } else {
            Err(store_unavailable("this node could not renew its lease"))
        }
    }

    pub(super) fn live_here(&self, id: &Scoped<ConversationId>) -> Option<ActorHandle> {
        let is_up =
            |handle: &ActorHandle| handle.actor.get_status() < ractor::ActorStatus::Draining;
        self.table.get(id).filter(is_up)
    }

    async fn start_here(
        &self,
        id: &Scoped<ConversationId>,
        origin: Origin,
    ) -> Result<Location<ActorHandle>, RequestError> {
        let message = |reply| HostMsg::Ensure(id.clone(), origin, reply);
        match self.host.call(message, Some(REQUEST_TIMEOUT)).await {
            Ok(ractor::rpc::CallResult::Success(started)) => {
                started.map(Location::Here).map_err(|refused| match refused {
                    StartRefused::Quarantined(quarantined) => {
                        RequestError::Quarantined(quarantined.reason)
                    }
                    StartRefused::StoreAway => store_unavailable("the store was away"),
                })
            }
            Ok(_) | Err(_) => Err(RequestError::Lost),
        }
    }

    /// Starts a conversation on the node where it is to live.
    pub async fn start(&self, id: &Scoped<ConversationId>) -> Result<(), RequestError> {
        let Location::There(member) = self.ensure_started(id).await? else { return Ok(()) };
        let started = self.cluster.call(&member, Start { id: id.clone() }).await;
        let node = &member.holder.node;
        started.map_err(|error| unavailable(format!("node {node} did not start it: {error}")))
    }

    /// Whether nobody runs a conversation that `holder` has a claim on.
    pub(crate) async fn is_orphan(
        &self,
        id: &Scoped<ConversationId>,
        holder: Option<Holder>,
    ) -> bool {
        let me = self.cluster.lease().me();
        let lives_here = self.table.get(id).is_some();
        match placement::is_orphan(holder.as_ref(), &me, lives_here, &self.cluster.view()) {
            Orphan::Yes => true,
            Orphan::No => false,
            Orphan::IfDead(holder) => self.cluster.is_dead(holder).await.unwrap_or(false),
        }
    }

    fn remember_holder(&self, id: &Scoped<ConversationId>, member: &Member) {
        let mut holders = self.remote_holders.lock().unwrap_or_else(PoisonError::into_inner);
        if holders.len() >= MAX_REMOTE_HOLDERS {
            holders.clear();
        }
        holders.insert(id.clone(), member.holder.clone());
    }

    pub(super) fn forget_holder(&self, id: &Scoped<ConversationId>) {
        self.remote_holders.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// The member that held the conversation when it was last found, if it can be reached. It says
    /// so itself if it holds the conversation no longer.
    pub(super) fn remote_holder(&self, id: &Scoped<ConversationId>) -> Option<Member> {
        let holders = self.remote_holders.lock().unwrap_or_else(PoisonError::into_inner);
        let holder = holders.get(id).cloned()?;
        drop(holders);
        let view = self.cluster.view();
        view.member(&holder).filter(|member| view.reaches(member)).cloned()
    }
}

/// The error for a conversation whose holder lives and cannot be reached.
fn unreachable_holder(me: &Holder, holder: &Holder) -> RequestError {
    let (here, there) = (&me.node, &holder.node);
    unavailable(format!(
        "node {there}, which holds the conversation, cannot be reached from node {here}"
    ))
}
