//! What a conversation is like now, live or not, here or elsewhere.

use std::time::Duration;

use abide_actors::conversation::ConversationMsg;
use abide_actors::journal::Claim;
use abide_actors::request::{Inspection, RequestError};
use abide_actors::snapshot::{Overlay, Snapshot};
use abide_conversation::{ConversationId, State, replay};

use super::{Conversations, DEADLINE, Location};
use crate::membership::Member;
use crate::protocol::{Call, CallOutcome};

/// How long a glance at a conversation elsewhere may take; the store knows nearly as much.
const GLANCE: Duration = Duration::from_secs(2);

impl Conversations {
    /// A conversation as clients see it; never starts an actor. `None` if there is none.
    pub async fn snapshot(&self, id: &ConversationId) -> Result<Option<Snapshot>, RequestError> {
        let held = self.holder(id).await?;
        let live = match &held {
            Some((_, Location::Here(()))) => self.inspect(id).await,
            Some((_, Location::There(member))) => self.inspect_there(member, id).await,
            None => None,
        };
        let (state, overlay) = match live {
            Some(live) if live.state.exists() => {
                let Inspection { state, held, streaming, progress, .. } = live;
                (state, Overlay { held: Some(held), streaming, progress })
            }
            Some(_) | None => match self.stored(id).await? {
                Some(state) => {
                    let held = held.map(|(held, _)| held);
                    (state, Overlay { held, ..Overlay::default() })
                }
                None => return Ok(None),
            },
        };
        let newest = match &state.agent {
            Some(agent) => self.deps.agents.newest(agent).await?,
            None => None,
        };
        Ok(Some(Snapshot::new(id.clone(), &state, overlay, newest)))
    }

    /// The holding of a conversation by a member that lives.
    pub(super) async fn holder(
        &self,
        id: &ConversationId,
    ) -> Result<Option<(Claim, Location<()>)>, RequestError> {
        let Some(held) = self.store.holding(id).await? else { return Ok(None) };
        let view = self.cluster.view();
        if held.holder == view.me {
            return Ok(Some((held, Location::Here(()))));
        }
        let member = view.member(&held.holder).cloned();
        Ok(member.map(|member| (held, Location::There(member))))
    }

    async fn inspect_there(&self, member: &Member, id: &ConversationId) -> Option<Inspection> {
        match self.cluster.ask(&member.process, Call::Inspect { id: id.clone() }, GLANCE).await {
            Ok(CallOutcome::Inspected(live)) => live.map(|live| *live),
            Ok(_) | Err(_) => None,
        }
    }

    /// The state that the journal comes to.
    pub async fn stored(&self, id: &ConversationId) -> Result<Option<State>, RequestError> {
        let stored = self.store.load(id).await?;
        Ok(stored.map(|stored| replay(stored.state, &stored.events)))
    }

    /// What an actor that lives here says of itself; `None` when there is none, or it is too busy to
    /// say, or this node may have been taken for dead.
    pub async fn inspect(&self, id: &ConversationId) -> Option<Inspection> {
        let handle = self.table.get(id)?;
        match handle.actor.call(ConversationMsg::Inspect, Some(DEADLINE)).await {
            Ok(ractor::rpc::CallResult::Success(inspection)) => {
                Some(*inspection).filter(|_| self.cluster.standing().is_sound())
            }
            Ok(_) | Err(_) => None,
        }
    }
}
