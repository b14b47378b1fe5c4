//! The only door: where a conversation lives, or shall.

use std::sync::PoisonError;

use abide_actors::journal::Holder;
use abide_actors::request::RequestError;
use abide_conversation::ConversationId;

use super::{Conversations, DEADLINE, MOMENT, unavailable};
use crate::host::{Absent, ActorHandle, HostMsg};
use crate::membership::Member;
use crate::placement::{self, Orphan, PlacementRules, Step, locate};
use crate::protocol::{Call, CallOutcome};

/// For how many conversations is remembered which other node holds them.
const CACHED: usize = 10_000;

/// Where a conversation lives: on this node, with what this node has of it, or with another member.
#[derive(Clone)]
pub enum Location<H> {
    Here(H),
    There(Member),
}

impl Conversations {
    /// Where the conversation lives: the live actor here, started if it is to live here, or the
    /// member that holds it or shall.
    ///
    /// This is the only door. Losing a race for a conversation is no error: the winner is returned.
    pub async fn ensure_started(
        &self,
        id: &ConversationId,
    ) -> Result<Location<ActorHandle>, RequestError> {
        self.stay_sound().await?;
        if let Some(handle) = self.live_here(id) {
            return Ok(Location::Here(handle));
        }
        if let Some(member) = self.cached(id) {
            return Ok(Location::There(member));
        }
        match tokio::time::timeout(DEADLINE, self.find(id, false)).await {
            Ok(found) => found?.ok_or_else(|| unavailable("no node takes conversations now")),
            Err(_) => Err(unavailable("its holder cannot be reached")),
        }
    }

    /// The same for another node that was told that the conversation lives here, or shall: never
    /// passes it on. `None` if it is not to live here.
    pub(super) async fn ensure_here(
        &self,
        id: &ConversationId,
    ) -> Result<Option<ActorHandle>, RequestError> {
        self.stay_sound().await?;
        if let Some(handle) = self.live_here(id) {
            return Ok(Some(handle));
        }
        match self.find(id, true).await? {
            Some(Location::Here(handle)) => Ok(Some(handle)),
            Some(Location::There(_)) | None => Ok(None),
        }
    }

    /// Reads who holds it, and acts on what that means. With `here`, what is to be placed is placed
    /// on this node, or nowhere. `None` if no node takes it now.
    async fn find(
        &self,
        id: &ConversationId,
        only_here: bool,
    ) -> Result<Option<Location<ActorHandle>>, RequestError> {
        let mut seen = self.cluster.watch();
        let mut confirmed_dead = None;
        loop {
            let view = seen.borrow_and_update().clone();
            let holder = self.store.holding(id).await?.map(|held| held.holder);
            let draining = self.cluster.standing().is_draining();
            let rules = PlacementRules { policy: self.policy, only_here, draining };
            match locate(id, holder.as_ref(), confirmed_dead.as_ref(), &view, rules) {
                Step::StartHere { replacing } => {
                    return self.start_here(id, replacing).await.map(Some);
                }
                Step::HeldBy(member) => {
                    self.remember(id, &member);
                    return Ok(Some(Location::There(member)));
                }
                Step::PlaceOn(member) => return Ok(Some(Location::There(member))),
                Step::NoNode => return Ok(None),
                Step::ConfirmDead(holder) if self.cluster.is_dead(&holder).await? => {
                    confirmed_dead = Some(holder);
                }
                Step::ConfirmDead(_) | Step::AwaitView => {
                    self.cluster.changed(&mut seen, MOMENT).await;
                }
            }
        }
    }

    /// Refuses everything on a node that may have been taken for dead: others may hold what lives
    /// here, and what it claimed would be taken from it. If its store was away for a while only, or
    /// it was stopped, it is sound again in a moment.
    async fn stay_sound(&self) -> Result<(), RequestError> {
        if self.cluster.standing().is_sound() {
            return Ok(());
        }
        let mut seen = self.cluster.watch();
        seen.mark_unchanged();
        self.cluster.changed(&mut seen, MOMENT).await;
        match self.cluster.standing().is_sound() {
            true => Ok(()),
            false => Err(unavailable("this node could not renew its lease")),
        }
    }

    pub(super) fn live_here(&self, id: &ConversationId) -> Option<ActorHandle> {
        let up = |handle: &ActorHandle| handle.actor.get_status() < ractor::ActorStatus::Draining;
        self.table.get(id).filter(up)
    }

    async fn start_here(
        &self,
        id: &ConversationId,
        replacing: Option<Holder>,
    ) -> Result<Location<ActorHandle>, RequestError> {
        let ask = |reply| HostMsg::Ensure(id.clone(), replacing, reply);
        match self.host.call(ask, Some(DEADLINE)).await {
            Ok(ractor::rpc::CallResult::Success(ensured)) => {
                ensured.map(Location::Here).map_err(|absent| match absent {
                    Absent::Quarantined(quarantined) => {
                        RequestError::Quarantined(quarantined.reason)
                    }
                    Absent::Away => unavailable("the store was away"),
                })
            }
            Ok(_) | Err(_) => Err(RequestError::Lost),
        }
    }

    /// Starts a conversation wherever it is to live.
    pub async fn start(&self, id: &ConversationId) -> Result<(), RequestError> {
        let Location::There(member) = self.ensure_started(id).await? else { return Ok(()) };
        match self.cluster.ask(&member.process, Call::Start { id: id.clone() }, DEADLINE).await {
            Ok(CallOutcome::Started) => Ok(()),
            _ => Err(unavailable("the node did not start it")),
        }
    }

    /// Whether nobody runs a conversation whose claim reads so.
    pub(crate) async fn is_orphan(&self, id: &ConversationId, holder: Option<Holder>) -> bool {
        let (me, here) = (self.cluster.standing().me(), self.table.get(id).is_some());
        match placement::is_orphan(holder.as_ref(), &me, here, &self.cluster.view()) {
            Orphan::Yes => true,
            Orphan::No => false,
            Orphan::IfDead(holder) => self.cluster.is_dead(holder).await.unwrap_or(false),
        }
    }

    fn remember(&self, id: &ConversationId, member: &Member) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= CACHED {
            cache.clear();
        }
        cache.insert(id.clone(), member.holder.clone());
    }

    pub(super) fn forget(&self, id: &ConversationId) {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// Whom it was found with before; the member says if it has it no more.
    pub(super) fn cached(&self, id: &ConversationId) -> Option<Member> {
        let holder = self.cache.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()?;
        let view = self.cluster.view();
        view.member(&holder).filter(|member| view.reaches(member)).cloned()
    }
}
