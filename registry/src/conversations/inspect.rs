//! What operators see and do, wherever a conversation lives.

use std::time::Duration;

use abide_actors::conversation::ConversationMsg;
use abide_actors::request::RequestError;
use abide_conversation::ConversationId;
use futures::StreamExt;

use super::{Conversations, DEADLINE, Location, unavailable};
use crate::actor_view::{ActorDetails, ActorSummary};
use crate::host::{HostMsg, Quarantined};
use crate::protocol::{Call, CallOutcome};

/// How many actors are asked at once.
const LOOKS: usize = 32;
/// How long another node may take to list what lives on it.
pub(super) const LIST: Duration = Duration::from_secs(5);

impl Conversations {
    /// What the node that holds a conversation knows of it; `None` if nobody holds it.
    pub async fn look(&self, id: &ConversationId) -> Result<Option<ActorDetails>, RequestError> {
        if let Some(sight) = self.look_here(id).await {
            return Ok(Some(sight));
        }
        match self.holder(id).await? {
            None | Some((_, Location::Here(()))) => Ok(None),
            Some((_, Location::There(member))) => {
                let ask = Call::Look { id: id.clone() };
                match self.cluster.ask(&member.process, ask, LIST).await {
                    Ok(CallOutcome::Looked(sight)) => Ok(sight.map(|sight| *sight)),
                    _ => Err(unavailable("its holder did not answer")),
                }
            }
        }
    }

    pub(super) async fn look_here(&self, id: &ConversationId) -> Option<ActorDetails> {
        let handle = self.table.get(id);
        let live = match (handle, self.inspect(id).await) {
            (Some(handle), Some(live)) => {
                Some((ActorSummary::new(id, &handle, &live), Box::new(live)))
            }
            _ => None,
        };
        let quarantined = self.quarantined_here(id).await;
        (live.is_some() || quarantined.is_some()).then_some(ActorDetails { live, quarantined })
    }

    /// At most `limit` rows of what lives on this node or another (all, without a name), by id. A
    /// node that does not answer is left out.
    pub async fn rows(
        &self,
        node: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> Vec<ActorSummary> {
        let view = self.cluster.view();
        let asked = |name: &str| node.is_none_or(|node| node == name);
        let others = view.others().filter(|member| asked(&member.holder.node));
        let asks = others.map(|member| async move {
            let ask = Call::Actors { after: after.map(str::to_owned), limit };
            match self.cluster.ask(&member.process, ask, LIST).await {
                Ok(CallOutcome::Rows(rows)) => rows,
                _ => Vec::new(),
            }
        });
        let here = async {
            match asked(&view.me.node) {
                true => self.rows_here(after, limit).await,
                false => Vec::new(),
            }
        };
        let (here, there) = tokio::join!(here, futures::future::join_all(asks));
        let mut rows: Vec<ActorSummary> = there.into_iter().flatten().chain(here).collect();
        rows.sort_by(|a, b| a.conversation_id.cmp(&b.conversation_id));
        rows.dedup_by(|a, b| a.conversation_id == b.conversation_id);
        rows.truncate(limit);
        rows
    }

    pub(super) async fn rows_here(&self, after: Option<&str>, limit: usize) -> Vec<ActorSummary> {
        let looks = self.table.page(after, limit).into_iter().map(|(id, handle)| async move {
            let live = self.inspect(&id).await?;
            Some(ActorSummary::new(&id, &handle, &live))
        });
        let rows = futures::stream::iter(looks).buffered(LOOKS);
        rows.filter_map(std::future::ready).collect().await
    }

    /// Crashes the live actor wherever it is, as a bug would, and lets the conversation out of
    /// quarantine. Returns whether there was anything to do.
    pub async fn kill(&self, id: &ConversationId) -> Result<bool, RequestError> {
        if self.kill_here(id).await {
            return Ok(true);
        }
        match self.holder(id).await? {
            None | Some((_, Location::Here(()))) => Ok(false),
            Some((_, Location::There(member))) => {
                let ask = Call::Kill { id: id.clone() };
                match self.cluster.ask(&member.process, ask, LIST).await {
                    Ok(CallOutcome::Killed(killed)) => Ok(killed),
                    _ => Err(unavailable("its holder did not answer")),
                }
            }
        }
    }

    pub(super) async fn kill_here(&self, id: &ConversationId) -> bool {
        let live = self.table.get(id);
        let held = self.quarantined_here(id).await.is_some();
        let pardoned = held && self.revive(id).await.unwrap_or_default();
        pardoned || live.is_some_and(|handle| handle.actor.cast(ConversationMsg::Kill).is_ok())
    }

    /// Why this node delivers nothing to a conversation, if that is so.
    pub(super) async fn quarantined_here(&self, id: &ConversationId) -> Option<Quarantined> {
        let ask = |reply| HostMsg::Quarantined(id.clone(), reply);
        match self.host.call(ask, Some(DEADLINE)).await {
            Ok(ractor::rpc::CallResult::Success(quarantined)) => quarantined,
            Ok(_) | Err(_) => None,
        }
    }

    /// Asks another node to drain. `false` if there is no such node.
    pub async fn drain_there(&self, node: &str) -> Result<bool, RequestError> {
        let view = self.cluster.view();
        let Some(member) = view.named(node) else { return Ok(false) };
        match self.cluster.ask(&member.process, Call::Drain, LIST).await {
            Ok(CallOutcome::Noted) => Ok(true),
            _ => Err(unavailable("the node did not answer")),
        }
    }
}
