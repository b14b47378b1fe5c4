//! The conversations as callers reach them: every way to one takes the caller's permission with it.

use abide_actors::access::AccessError;
use abide_actors::journal::ConversationSummary;
use abide_actors::request::{IdempotencyKey, Reply, Request, RequestContext, RequestError};
use abide_actors::snapshot::Snapshot;
use abide_conversation::identity::Participants;
use abide_conversation::{ConversationId, Scoped, State};
use abide_registry::router::ConversationRouter;
use abide_registry::store::Store;
use futures::TryFutureExt;

use super::Allowed;
use super::permission::{ConversationPermission, CreateConversations};
use crate::problem::Problem;

/// Reaches any conversation for a caller who may.
#[derive(Clone)]
pub(crate) struct CallerConversations(ConversationRouter);

impl CallerConversations {
    pub(crate) fn new(router: ConversationRouter) -> Self {
        Self(router)
    }

    /// The router itself, for what is not a caller's request, or was judged before.
    pub(crate) fn unscoped(&self) -> &ConversationRouter {
        &self.0
    }

    /// Carries a request to its conversation, which judges it. It is not an `async` function: the future
    /// of one has room for its arguments twice.
    pub(crate) fn deliver<P: ConversationPermission>(
        &self,
        allowed: &Allowed<P>,
        id: &Scoped<ConversationId>,
        request: Request,
        idempotency_keys: Vec<IdempotencyKey>,
    ) -> impl Future<Output = Result<Reply, Problem>> {
        let context = RequestContext { access: allowed.access(), idempotency_keys };
        self.0.deliver_for(id, request, context).map_err(Problem::from)
    }

    /// Creates a conversation, or begins a fork, which its original judges.
    pub(crate) async fn create(
        &self,
        _: &Allowed<CreateConversations>,
        id: &Scoped<ConversationId>,
        request: Request,
        idempotency_keys: Vec<IdempotencyKey>,
    ) -> Result<Reply, Problem> {
        Ok(self.0.deliver(id, request, idempotency_keys).await?)
    }

    /// A conversation as clients see it.
    pub(crate) async fn snapshot<P: ConversationPermission>(
        &self,
        allowed: &Allowed<P>,
        id: &Scoped<ConversationId>,
    ) -> Result<Snapshot, Problem> {
        let snapshot = self.0.snapshot(id).await?.ok_or_else(missing)?;
        let Snapshot { owner, members, .. } = &snapshot;
        let participants = Participants { owner: owner.clone(), members: members.clone() };
        verdict(allowed.access().check(&participants, snapshot.created_at))?;
        Ok(snapshot)
    }

    /// The state that a conversation's journal results in.
    pub(crate) async fn state<P: ConversationPermission>(
        &self,
        allowed: &Allowed<P>,
        id: &Scoped<ConversationId>,
    ) -> Result<State, Problem> {
        let state = self.0.stored_state(id).await?.ok_or_else(missing)?;
        verdict(allowed.access().check(&state.participants, state.created_at))?;
        Ok(state)
    }

    /// What lists show of a conversation.
    pub(crate) async fn summary<P: ConversationPermission>(
        &self,
        allowed: &Allowed<P>,
        store: &dyn Store,
        id: &Scoped<ConversationId>,
    ) -> Result<ConversationSummary, Problem> {
        let summary = store.summary(id).await?.ok_or_else(missing)?;
        verdict(allowed.access().check(&summary.participants, Some(summary.created_at)))?;
        Ok(summary)
    }
}

fn missing() -> Problem {
    Problem::not_found("conversation")
}

fn verdict(judgement: Result<(), AccessError>) -> Result<(), Problem> {
    judgement.map_err(|error| RequestError::from(error).into())
}
