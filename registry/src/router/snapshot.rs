//! What a conversation is like now, live or not, here or elsewhere.

use std::sync::Arc;

use abide_actors::conversation::ConversationMsg;
use abide_actors::journal::Claim;
use abide_actors::request::{Inspection, RequestError};
use abide_actors::snapshot::{Overlay, Snapshot};
use abide_conversation::{ConversationId, Scoped, State, replay};
use tokio::time::Instant;

use super::{ConversationRouter, Location, VIEW_CHANGE_TIMEOUT};
use crate::cluster_client::FRESH_VIEW_TIMEOUT;
use crate::protocol::{Inspect, REQUEST_TIMEOUT};

impl ConversationRouter {
    /// A conversation as clients see it; never starts an actor. `None` if there is none.
    pub async fn snapshot(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<Snapshot>, RequestError> {
        let Some((state, overlay)) = self.present_state(id).await? else { return Ok(None) };
        let choice = match &state.agent {
            Some(agent) => self.services.agents.choose(agent, id).await?,
            None => None,
        };
        let descendants = self.descendant_calls(id, &state).await?;
        Ok(Some(Snapshot::new(id.local(), &state, overlay, descendants, choice)))
    }

    /// The state of a conversation with what its live actor adds; `None` if there is no conversation.
    ///
    /// An actor of this node is asked before the store: while the lease is sound nobody else holds what
    /// it holds. Without an answer the store's state has to do.
    async fn present_state(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<(Arc<State>, Overlay)>, RequestError> {
        match self.inspect(id).await.filter(|live| live.state.exists()) {
            Some(live) => Ok(Some(live_state(live))),
            // Boxed: a read of the store, or a call to another node, costs far more than that.
            None => Box::pin(self.state_elsewhere(id)).await,
        }
    }

    async fn state_elsewhere(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<(Arc<State>, Overlay)>, RequestError> {
        let holder = self.find_holder(id).await?;
        if let Some((_, location @ Location::There(_))) = &holder {
            let asked = self.at_location(location, Inspect { id: id.clone() }).await;
            let live = asked.ok().flatten();
            if let Some(live) = live.filter(|live| live.state.exists()) {
                return Ok(Some(live_state(*live)));
            }
        }
        let claim = holder.map(|(claim, _)| claim);
        let stored = self.stored_state(id).await?;
        Ok(stored.map(|state| (Arc::new(state), Overlay { claim, ..Overlay::default() })))
    }

    /// The claim on a conversation if a live member holds it, and where that member is.
    ///
    /// A holder that this node does not see, or does not reach, may have started a moment ago: it
    /// is waited for, unless the store knows that it is dead.
    pub(super) async fn find_holder(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<(Claim, Location<()>)>, RequestError> {
        let mut seen = self.cluster.watch();
        let give_up_at = Instant::now() + FRESH_VIEW_TIMEOUT;
        loop {
            let view = seen.borrow_and_update().clone();
            let Some(claim) = self.store.current_claim(id).await? else { return Ok(None) };
            if claim.holder == view.me {
                return Ok(Some((claim, Location::Here(()))));
            }
            let is_over = Instant::now() >= give_up_at;
            match view.member(&claim.holder).cloned() {
                Some(member) if is_over || view.reaches(&member) => {
                    return Ok(Some((claim, Location::There(Box::new(member)))));
                }
                None if is_over || self.cluster.is_dead(&claim.holder).await? => return Ok(None),
                Some(_) | None => self.cluster.changed(&mut seen, VIEW_CHANGE_TIMEOUT).await,
            }
        }
    }

    /// The state that replaying the journal results in; `None` if there is no journal.
    pub async fn stored_state(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<State>, RequestError> {
        let stored = self.store.load(id).await?;
        Ok(stored.map(|stored| replay(stored.state, &stored.events)))
    }

    /// What the live actor on this node reports of itself. `None` if there is no actor, it is too
    /// busy to answer, or this node may have been declared dead.
    pub async fn inspect(&self, id: &Scoped<ConversationId>) -> Option<Inspection> {
        let handle = self.table.get(id)?;
        match handle.actor.call(ConversationMsg::Inspect, Some(REQUEST_TIMEOUT)).await {
            Ok(ractor::rpc::CallResult::Success(inspection)) => {
                Some(*inspection).filter(|_| self.cluster.lease().is_sound())
            }
            Ok(_) | Err(_) => None,
        }
    }
}

/// The state of a live actor, and what the actor adds.
fn live_state(live: Inspection) -> (Arc<State>, Overlay) {
    let Inspection { state, claim, streaming, progress, .. } = live;
    (state, Overlay { claim: Some(claim), streaming, progress })
}
