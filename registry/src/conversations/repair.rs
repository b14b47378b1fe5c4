//! What operators do about a conversation that does not go on: retry, move, release.

use abide_actors::conversation::ConversationMsg;
use abide_actors::journal::{Holder, StoreError};
use abide_actors::request::{ReleaseOutcome, RequestError};
use abide_conversation::{CallId, ConversationId, Rejection, wanted};
use ractor::rpc::CallResult;

use super::inspect::LIST;
use super::{Conversations, DEADLINE, Location, unavailable};
use crate::cluster_view::ClusterView;
use crate::host::HostMsg;
use crate::membership::{Member, MemberState};
use crate::placement;
use crate::protocol::{Call, CallOutcome};

/// Why a conversation stays where it is.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MoveError {
    #[error("there is no node {0}")]
    NoSuchNode(String),
    #[error("node {0} is draining")]
    Draining(String),
    #[error("the conversation is on node {0}")]
    There(String),
    #[error("there is no other node that takes conversations")]
    Alone,
    #[error("these calls run and must not run twice: {}; \"force\": true interrupts them", ids(.0))]
    Runs(Vec<CallId>),
    #[error(transparent)]
    Failed(#[from] RequestError),
}

impl From<StoreError> for MoveError {
    fn from(refusal: StoreError) -> Self {
        Self::Failed(refusal.into())
    }
}

impl Conversations {
    /// Has what waits for a later attempt tried now, wherever it lives, and starts what should live
    /// and does not. What runs is left alone. Returns what is tried again.
    pub async fn retry(&self, id: &ConversationId) -> Result<Vec<String>, RequestError> {
        self.exists(id).await?;
        match self.holder(id).await? {
            None | Some((_, Location::Here(()))) => self.retry_here(id).await,
            Some((_, Location::There(member))) => {
                match self.cluster.ask(&member.process, Call::Retry { id: id.clone() }, LIST).await
                {
                    Ok(CallOutcome::Retried(retried)) => retried,
                    _ => Err(unavailable("its holder did not answer")),
                }
            }
        }
    }

    pub(super) async fn retry_here(
        &self,
        id: &ConversationId,
    ) -> Result<Vec<String>, RequestError> {
        if let Some(handle) = self.live_here(id) {
            return match handle.actor.call(ConversationMsg::Retry, Some(DEADLINE)).await {
                Ok(CallResult::Success(retried)) => Ok(retried),
                Ok(_) | Err(_) => Err(RequestError::Lost),
            };
        }
        if self.revive(id).await? {
            return Ok(vec!["its actor".to_owned()]);
        }
        let Some(state) = self.stored(id).await? else { return Err(Rejection::NotFound.into()) };
        let wanted: Vec<String> = wanted(&state).iter().map(ToString::to_string).collect();
        if !wanted.is_empty() {
            self.start(id).await?;
        }
        Ok(wanted)
    }

    /// Lets a conversation out of quarantine here, or out of the pause before its next life.
    /// Returns whether it was there.
    pub(super) async fn revive(&self, id: &ConversationId) -> Result<bool, RequestError> {
        match self.host.call(|reply| HostMsg::Retry(id.clone(), reply), Some(DEADLINE)).await {
            Ok(CallResult::Success(waited)) => Ok(waited),
            Ok(_) | Err(_) => Err(RequestError::Lost),
        }
    }

    /// Moves a conversation to that node, or to another one than it is on; what runs is cut off,
    /// and goes on there. Its holder hands the claim over in one step, so that nobody comes in
    /// between. Returns the node that it is on then.
    pub async fn move_to(
        &self,
        id: &ConversationId,
        node: Option<&str>,
        force: bool,
    ) -> Result<String, MoveError> {
        self.exists(id).await?;
        let view = self.cluster.view();
        let held = self.holder(id).await?;
        let from = held.as_ref().map(|(held, _)| &held.holder);
        let to = self.target(&view, id, node, from)?;
        if let Some((_, holds)) = &held {
            self.let_go(id, holds, Some(to.holder.clone()), force).await?;
        }
        self.forget(id);
        let here = to.holder == view.me;
        let started = match here {
            true => self.ensure_here(id).await?.is_some(),
            false => {
                let ask = Call::Start { id: id.clone() };
                match self.cluster.ask(&to.process, ask, DEADLINE).await {
                    Ok(CallOutcome::Started) => true,
                    Ok(CallOutcome::NotHere) => false,
                    _ => return Err(unavailable("the node did not answer").into()),
                }
            }
        };
        let now = match started {
            true => Some(to.holder.clone()),
            // Somebody else needed it, and was first.
            false => self.store.holding(id).await?.map(|held| held.holder),
        };
        now.map(|holder| holder.node).ok_or(unavailable("the node did not take it").into())
    }

    fn target<'v>(
        &self,
        view: &'v ClusterView,
        id: &ConversationId,
        node: Option<&str>,
        from: Option<&Holder>,
    ) -> Result<&'v Member, MoveError> {
        let Some(name) = node else {
            return placement::elsewhere(self.policy, id, view, from).ok_or(MoveError::Alone);
        };
        let named = || name.to_owned();
        let member = view.named(name).ok_or_else(|| MoveError::NoSuchNode(named()))?;
        let drains = member.holder == view.me && self.cluster.standing().is_draining();
        match member.state {
            _ if from == Some(&member.holder) => Err(MoveError::There(named())),
            MemberState::Up if !drains && view.reaches(member) => Ok(member),
            MemberState::Up if !drains => Err(unavailable("the node cannot be reached").into()),
            _ => Err(MoveError::Draining(named())),
        }
    }

    /// Has the holder let go: the actor ends, its claim is given up, a quarantine is lifted.
    /// Whoever needs the conversation next starts it anew. Returns whether anybody held it.
    pub async fn release(&self, id: &ConversationId, force: bool) -> Result<bool, MoveError> {
        self.exists(id).await?;
        let Some((_, holds)) = self.holder(id).await? else { return Ok(false) };
        self.let_go(id, &holds, None, force).await?;
        self.forget(id);
        Ok(true)
    }

    async fn let_go(
        &self,
        id: &ConversationId,
        holds: &Location<()>,
        to: Option<Holder>,
        force: bool,
    ) -> Result<(), MoveError> {
        let parting = match holds {
            Location::Here(()) => self.let_go_here(id, to, force).await?,
            Location::There(member) => {
                let ask = Call::LetGo { id: id.clone(), to, force };
                match self.cluster.ask(&member.process, ask, DEADLINE).await {
                    Ok(CallOutcome::Parted(parted)) => parted?,
                    _ => return Err(unavailable("its holder did not answer").into()),
                }
            }
        };
        match parting {
            ReleaseOutcome::Parted(_) => Ok(()),
            ReleaseOutcome::Runs(calls) => Err(MoveError::Runs(calls)),
        }
    }

    pub(super) async fn let_go_here(
        &self,
        id: &ConversationId,
        to: Option<Holder>,
        force: bool,
    ) -> Result<ReleaseOutcome, RequestError> {
        if let Some(handle) = self.live_here(id) {
            let ask = |reply| ConversationMsg::Release(to, force, reply);
            return match handle.actor.call(ask, Some(DEADLINE)).await {
                Ok(CallResult::Success(parting)) => Ok(parting),
                Ok(_) | Err(_) => Err(RequestError::Lost),
            };
        }
        let me = self.deps.standing.me();
        let holder = match to {
            Some(to) => Some(self.store.claim(id, &to, Some(&me)).await?.holder),
            None => {
                let held = self.store.holding(id).await?.filter(|held| held.holder == me);
                if let Some(held) = held {
                    self.store.release(id, &held).await?;
                }
                None
            }
        };
        // A host that has ended forgets everything.
        let _ = self.host.cast(HostMsg::Forget(id.clone()));
        Ok(ReleaseOutcome::Parted(holder))
    }

    async fn exists(&self, id: &ConversationId) -> Result<(), RequestError> {
        match self.store.head(id).await? {
            Some(_) => Ok(()),
            None => Err(Rejection::NotFound.into()),
        }
    }
}

fn ids(calls: &[CallId]) -> String {
    calls.iter().map(CallId::as_str).collect::<Vec<_>>().join(", ")
}
