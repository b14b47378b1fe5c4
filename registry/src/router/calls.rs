//! Calls that the node of a conversation carries out, whichever node was asked.

use abide_actors::request::{Inspection, ReleaseOutcome, RequestError};
use abide_conversation::{ConversationId, Scoped};

use super::{ConversationRouter, Location, unavailable};
use crate::actor_view::{ActorDetails, ActorSummary};
use crate::protocol::{Call, GetActor, Inspect, Kill, ListActors, Release, Retry};

/// A call that a node can carry out for its own clients as well as for other nodes.
pub(crate) trait LocalCall: Call {
    /// Carries the call out on this node.
    fn run(self, router: &ConversationRouter) -> impl Future<Output = Self::Response> + Send;
}

impl ConversationRouter {
    /// Carries out a call where the conversation is held; `None` if nobody holds it.
    pub(super) async fn at_holder<C: LocalCall>(
        &self,
        id: &Scoped<ConversationId>,
        call: C,
    ) -> Result<Option<C::Response>, RequestError> {
        match self.find_holder(id).await? {
            Some((_, location)) => self.at_location(&location, call).await.map(Some),
            None => Ok(None),
        }
    }

    /// Carries out a call on this node or on another member.
    pub(super) async fn at_location<C: LocalCall>(
        &self,
        location: &Location<()>,
        call: C,
    ) -> Result<C::Response, RequestError> {
        match location {
            Location::Here(()) => Ok(call.run(self).await),
            Location::There(member) => {
                let answer = self.cluster.call(member, call).await;
                let node = &member.holder.node;
                answer.map_err(|error| {
                    unavailable(format!("node {node}, which holds the conversation: {error}"))
                })
            }
        }
    }
}

impl LocalCall for Inspect {
    async fn run(self, router: &ConversationRouter) -> Option<Box<Inspection>> {
        router.inspect(&self.id).await.map(Box::new)
    }
}

impl LocalCall for GetActor {
    async fn run(self, router: &ConversationRouter) -> Option<Box<ActorDetails>> {
        router.get_actor_here(&self.id).await.map(Box::new)
    }
}

impl LocalCall for ListActors {
    async fn run(self, router: &ConversationRouter) -> Vec<ActorSummary> {
        router.list_actors_here(self.after.as_deref(), self.limit, self.quarantined).await
    }
}

impl LocalCall for Kill {
    async fn run(self, router: &ConversationRouter) -> bool {
        router.kill_here(&self.id).await
    }
}

impl LocalCall for Retry {
    async fn run(self, router: &ConversationRouter) -> Result<Vec<String>, RequestError> {
        router.retry_here(&self.id).await
    }
}

impl LocalCall for Release {
    async fn run(self, router: &ConversationRouter) -> Result<ReleaseOutcome, RequestError> {
        router.release_here(&self.id, self.to, self.force).await
    }
}
