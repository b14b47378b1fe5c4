//! What operators do about a conversation that is stuck: retry, move, release.

use abide_actors::conversation::ConversationMsg;
use abide_actors::identity::NodeName;
use abide_actors::journal::{Holder, StoreError};
use abide_actors::request::{ReleaseOutcome, RequestError};
use abide_conversation::{CallId, ConversationId, Rejection, Scoped, wanted};
use ractor::rpc::CallResult;

use super::{ConversationRouter, Location, unavailable};
use crate::cluster_client::RemoteError;
use crate::cluster_view::ClusterView;
use crate::host::HostMsg;
use crate::member::{Member, MemberState};
use crate::placement;
use crate::protocol::{REQUEST_TIMEOUT, Release, Retry, Start};

/// Why a conversation stays where it is.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MoveError {
    #[error("there is no node {0}")]
    NoSuchNode(NodeName),
    #[error("node {0} is draining")]
    Draining(NodeName),
    #[error("the conversation is on node {0} already")]
    There(NodeName),
    #[error("no other node takes conversations")]
    Alone,
    #[error(
        "these running calls must not run twice: {}; \"force\": true interrupts them",
        join(.0)
    )]
    Runs(Vec<CallId>),
    #[error(transparent)]
    Failed(#[from] RequestError),
}

impl From<StoreError> for MoveError {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

impl ConversationRouter {
    /// Retries at once what backs off in a conversation, wherever it lives, and starts the
    /// conversation if it has work and no actor. What runs is left alone. Returns what is retried.
    pub async fn retry(&self, id: &Scoped<ConversationId>) -> Result<Vec<String>, RequestError> {
        self.require_existing(id).await?;
        match self.at_holder(id, Retry { id: id.clone() }).await? {
            Some(retried) => retried,
            None => self.retry_here(id).await,
        }
    }

    pub(super) async fn retry_here(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Vec<String>, RequestError> {
        if let Some(handle) = self.live_here(id) {
            return match handle.actor.call(ConversationMsg::Retry, Some(REQUEST_TIMEOUT)).await {
                Ok(CallResult::Success(retried)) => Ok(retried),
                Ok(_) | Err(_) => Err(RequestError::Lost),
            };
        }
        if self.restart_here(id).await? {
            return Ok(vec!["its actor".to_owned()]);
        }
        let state = self.stored_state(id).await?.ok_or(Rejection::NotFound)?;
        let wanted: Vec<String> = wanted(&state).iter().map(ToString::to_string).collect();
        if !wanted.is_empty() {
            self.start(id).await?;
        }
        Ok(wanted)
    }

    /// Lets a conversation out of quarantine on this node, or ends the delay before its restart.
    /// Returns whether it was in either.
    pub(super) async fn restart_here(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<bool, RequestError> {
        if self.quarantined_here(id).await.is_some() {
            self.store.reset_deaths(id).await?;
        }
        let message = |reply| HostMsg::Retry(id.clone(), reply);
        match self.host.call(message, Some(REQUEST_TIMEOUT)).await {
            Ok(CallResult::Success(waited)) => Ok(waited),
            Ok(_) | Err(_) => Err(RequestError::Lost),
        }
    }

    /// Moves a conversation to the named node, or to any other than its present one. Running work
    /// is interrupted and resumes there. The holder hands its claim over in one step, so that no
    /// other node can claim in between. Returns the node that holds the conversation afterwards.
    pub async fn move_to(
        &self,
        id: &Scoped<ConversationId>,
        node: Option<&NodeName>,
        force: bool,
    ) -> Result<NodeName, MoveError> {
        self.require_existing(id).await?;
        let view = self.cluster.fresh_view().await;
        let holder = self.find_holder(id).await?;
        let from = holder.as_ref().map(|(claim, _)| &claim.holder);
        let target = self.choose_target(&view, id, node, from)?;
        if let Some((_, location)) = &holder {
            self.release_at(location, id, Some(target.holder.clone()), force).await?;
        }
        self.forget_holder(id);
        let started = if target.holder == view.me {
            self.ensure_started_here(id).await?.is_some()
        } else {
            match self.cluster.call(target, Start { id: id.clone() }).await {
                Ok(()) => true,
                Err(RemoteError::NotHere) => false,
                Err(error) => {
                    let node = &target.holder.node;
                    return Err(unavailable(format!("node {node} did not answer: {error}")).into());
                }
            }
        };
        let now_on = if started {
            Some(target.holder.clone())
        } else {
            // Another node needed the conversation and was first.
            self.store.current_claim(id).await?.map(|claim| claim.holder)
        };
        now_on.map(|holder| holder.node).ok_or(unavailable("the node did not take it").into())
    }

    fn choose_target<'v>(
        &self,
        view: &'v ClusterView,
        id: &Scoped<ConversationId>,
        node: Option<&NodeName>,
        from: Option<&Holder>,
    ) -> Result<&'v Member, MoveError> {
        let Some(name) = node else {
            return placement::elsewhere(self.policy, id, view, from).ok_or(MoveError::Alone);
        };
        let member = view.named(name).ok_or_else(|| MoveError::NoSuchNode(name.clone()))?;
        let drains = member.holder == view.me && self.cluster.lease().is_draining();
        match member.state {
            _ if from == Some(&member.holder) => Err(MoveError::There(name.clone())),
            MemberState::Up if !drains && view.reaches(member) => Ok(member),
            MemberState::Up if !drains => {
                Err(unavailable(format!("node {name} cannot be reached from here")).into())
            }
            _ => Err(MoveError::Draining(name.clone())),
        }
    }

    /// Has the holder release a conversation: the actor ends, its claim is given up, a quarantine
    /// is lifted. The next request starts the conversation anew. Returns whether anybody held it.
    pub async fn release(
        &self,
        id: &Scoped<ConversationId>,
        force: bool,
    ) -> Result<bool, MoveError> {
        self.require_existing(id).await?;
        let Some((_, location)) = self.find_holder(id).await? else { return Ok(false) };
        self.release_at(&location, id, None, force).await?;
        self.forget_holder(id);
        Ok(true)
    }

    async fn release_at(
        &self,
        location: &Location<()>,
        id: &Scoped<ConversationId>,
        to: Option<Holder>,
        force: bool,
    ) -> Result<(), MoveError> {
        match self.at_location(location, Release { id: id.clone(), to, force }).await?? {
            ReleaseOutcome::Released(_) => Ok(()),
            ReleaseOutcome::Uninterruptible(calls) => Err(MoveError::Runs(calls)),
        }
    }

    pub(super) async fn release_here(
        &self,
        id: &Scoped<ConversationId>,
        to: Option<Holder>,
        force: bool,
    ) -> Result<ReleaseOutcome, RequestError> {
        if let Some(handle) = self.live_here(id) {
            let message = |reply| ConversationMsg::Release(to, force, reply);
            return match handle.actor.call(message, Some(REQUEST_TIMEOUT)).await {
                Ok(CallResult::Success(outcome)) => Ok(outcome),
                Ok(_) | Err(_) => Err(RequestError::Lost),
            };
        }
        if self.quarantined_here(id).await.is_some() {
            self.store.reset_deaths(id).await?;
        }
        let me = self.services.lease.me();
        let new_holder = match to {
            Some(to) => Some(self.store.claim(id, &to, Some(&me)).await?.holder),
            None => {
                let mine = self.store.current_claim(id).await?.filter(|claim| claim.holder == me);
                if let Some(claim) = mine {
                    self.store.release(id, &claim).await?;
                }
                None
            }
        };
        // A host that has ended has forgotten everything.
        let _ = self.host.cast(HostMsg::Forget(id.clone()));
        Ok(ReleaseOutcome::Released(new_holder))
    }

    async fn require_existing(&self, id: &Scoped<ConversationId>) -> Result<(), RequestError> {
        match self.store.summary(id).await? {
            Some(_) => Ok(()),
            None => Err(Rejection::NotFound.into()),
        }
    }
}

fn join(calls: &[CallId]) -> String {
    calls.iter().map(CallId::as_str).collect::<Vec<_>>().join(", ")
}
