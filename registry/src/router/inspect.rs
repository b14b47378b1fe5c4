//! What operators see of live conversations, and the kill and drain requests, on any node.

use abide_actors::conversation::ConversationMsg;
use abide_actors::identity::NodeName;
use abide_actors::journal::Holder;
use abide_actors::request::RequestError;
use abide_conversation::{ConversationId, Scoped};
use futures::StreamExt;

use super::{ConversationRouter, unavailable};
use crate::actor_view::{ActorDetails, ActorSummary};
use crate::host::{HostMsg, Quarantined};
use crate::protocol::{Drain, GetActor, Kill, ListActors, REQUEST_TIMEOUT};

/// How many actors are inspected at once for a listing.
const MAX_CONCURRENT_INSPECTIONS: usize = 32;

impl ConversationRouter {
    /// What the node that holds a conversation knows of its actor; `None` if nobody holds it.
    pub async fn get_actor(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<ActorDetails>, RequestError> {
        if let Some(details) = self.get_actor_here(id).await {
            return Ok(Some(details));
        }
        let details = self.at_holder(id, GetActor { id: id.clone() }).await?.flatten();
        Ok(details.map(|details| *details))
    }

    pub(super) async fn get_actor_here(&self, id: &Scoped<ConversationId>) -> Option<ActorDetails> {
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

    /// At most `limit` summaries of the live and the quarantined conversations of one node, or of
    /// all nodes if none is named, by id. A node that does not answer is left out.
    pub async fn list_actors(
        &self,
        node: Option<&NodeName>,
        after: Option<&str>,
        limit: usize,
    ) -> Vec<ActorSummary> {
        self.list_selected(node, after, limit, false).await
    }

    /// [`list_actors`](Self::list_actors), of the quarantined conversations only.
    pub async fn list_quarantined(
        &self,
        node: Option<&NodeName>,
        after: Option<&str>,
        limit: usize,
    ) -> Vec<ActorSummary> {
        let mut actors = self.list_selected(node, after, limit, true).await;
        actors.retain(|actor| actor.is_quarantined);
        actors
    }

    async fn list_selected(
        &self,
        node: Option<&NodeName>,
        after: Option<&str>,
        limit: usize,
        quarantined: bool,
    ) -> Vec<ActorSummary> {
        let view = self.cluster.fresh_view().await;
        let is_asked = |name: &NodeName| node.is_none_or(|node| node == name);
        let members = view.others().filter(|member| is_asked(&member.holder.node));
        let remote = members.map(|member| async move {
            let call = ListActors { after: after.map(str::to_owned), limit, quarantined };
            self.cluster.call(member, call).await.unwrap_or_default()
        });
        let local = async {
            if is_asked(&view.me.node) {
                self.list_actors_here(after, limit, quarantined).await
            } else {
                Vec::new()
            }
        };
        let (local, remote) = tokio::join!(local, futures::future::join_all(remote));
        let mut actors: Vec<ActorSummary> = remote.into_iter().flatten().chain(local).collect();
        actors.sort_by(|a, b| a.conversation_id.cmp(&b.conversation_id));
        actors.dedup_by(|a, b| a.conversation_id == b.conversation_id);
        actors.truncate(limit);
        actors
    }

    pub(super) async fn list_actors_here(
        &self,
        after: Option<&str>,
        limit: usize,
        quarantined_only: bool,
    ) -> Vec<ActorSummary> {
        let live = if quarantined_only { 0 } else { limit };
        let page = self.table.page(after, live).into_iter();
        let inspections = page.map(|(id, handle)| async move {
            let live = self.inspect(&id).await?;
            Some(ActorSummary::new(&id, &handle, &live))
        });
        let summaries = futures::stream::iter(inspections).buffered(MAX_CONCURRENT_INSPECTIONS);
        let mut summaries: Vec<_> = summaries.filter_map(std::future::ready).collect().await;
        let quarantined = self.all_quarantined_here(after, limit).await.into_iter();
        let quarantined = quarantined.map(|(id, quarantined)| async move {
            let claim = self.store.current_claim(&id).await.ok().flatten()?;
            let stored = self.store.summary(&id).await.ok().flatten()?;
            Some(ActorSummary::of_quarantined(&id, claim, &stored, &quarantined))
        });
        let quarantined = futures::stream::iter(quarantined).buffered(MAX_CONCURRENT_INSPECTIONS);
        summaries.extend(quarantined.filter_map(std::future::ready).collect::<Vec<_>>().await);
        summaries.sort_by(|a, b| a.conversation_id.cmp(&b.conversation_id));
        summaries.truncate(limit);
        summaries
    }

    /// At most `limit` conversations that this node has quarantined, by id, after this one.
    async fn all_quarantined_here(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Vec<(Scoped<ConversationId>, Quarantined)> {
        let mut quarantined =
            match self.host.call(HostMsg::ListQuarantined, Some(REQUEST_TIMEOUT)).await {
                Ok(ractor::rpc::CallResult::Success(quarantined)) => quarantined,
                Ok(_) | Err(_) => Vec::new(),
            };
        quarantined.retain(|(id, _)| after.is_none_or(|after| id.as_str() > after));
        quarantined.sort_by(|(a, _), (b, _)| a.cmp(b));
        quarantined.truncate(limit);
        quarantined
    }

    /// Crashes the live actor of a conversation wherever it is, as a bug would, and lets the
    /// conversation out of quarantine. Returns whether there was anything to do.
    pub async fn kill(&self, id: &Scoped<ConversationId>) -> Result<bool, RequestError> {
        if self.kill_here(id).await {
            return Ok(true);
        }
        let killed = self.at_holder(id, Kill { id: id.clone() }).await?;
        Ok(killed.unwrap_or(false))
    }

    pub(super) async fn kill_here(&self, id: &Scoped<ConversationId>) -> bool {
        let live = self.table.get(id);
        let quarantined = self.quarantined_here(id).await.is_some();
        let released = quarantined && self.restart_here(id).await.unwrap_or_default();
        released || live.is_some_and(|handle| handle.actor.cast(ConversationMsg::Kill).is_ok())
    }

    /// Why this node delivers nothing to a conversation, if it has quarantined it.
    pub(crate) async fn quarantined_here(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Option<Quarantined> {
        let message = |reply| HostMsg::Quarantined(id.clone(), reply);
        match self.host.call(message, Some(REQUEST_TIMEOUT)).await {
            Ok(ractor::rpc::CallResult::Success(quarantined)) => quarantined,
            Ok(_) | Err(_) => None,
        }
    }

    /// Has another node drain. `false` if there is no such node.
    pub async fn drain_node(&self, node: &NodeName) -> Result<bool, RequestError> {
        let view = self.cluster.fresh_view().await;
        let Some(member) = view.named(node) else { return Ok(false) };
        match self.cluster.call(member, Drain).await {
            Ok(()) => Ok(true),
            Err(error) => Err(unavailable(format!("node {node} did not answer: {error}"))),
        }
    }
    /// Declares a member dead, so that others take over what it holds. Returns the incarnation that
    /// is dead now; `None` if there is no such member. One that lives after all loses its claims and
    /// rejoins as another incarnation.
    pub async fn declare_node_dead(&self, node: &NodeName) -> Result<Option<Holder>, RequestError> {
        let view = self.cluster.view();
        let Some(member) = view.named(node) else { return Ok(None) };
        self.cluster.declare_dead(&member.holder).await?;
        Ok(Some(member.holder.clone()))
    }
}
