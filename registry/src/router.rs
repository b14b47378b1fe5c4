//! Routes requests to conversations, wherever they live: ensures that one is started, then
//! delivers.

pub(crate) mod calls;
mod delete;
mod descendants;
mod ensure_started;
mod inspect;
mod permits;
mod repair;
mod snapshot;

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_actors::conversation::ConversationMsg;
use abide_actors::conversation_client::ConversationClient;
use abide_actors::journal::{Holder, ResponseScope, StoreError};
use abide_actors::permit_sync::PermitSync;
use abide_actors::request::{
    Delivery, DeliveryOutcome, IdempotencyKey, Reply, Request, RequestContext, RequestError,
    UpdateRequest,
};
use abide_actors::services::Services;
use abide_conversation::{ConversationId, Rejection, Scoped};
use async_trait::async_trait;
use ractor::ActorRef;

use crate::cluster_client::{ClusterClient, RemoteError};
use crate::host::{ActorHandle, HostMsg, LiveTable};
use crate::member::Member;
use crate::peers::CallError;
use crate::permits::PermitTable;
use crate::placement::Policy;
use crate::protocol::{Deliver, REQUEST_TIMEOUT};
use crate::store::Store;
pub use ensure_started::Location;
pub use repair::MoveError;

/// How many deliveries may wait for one conversation, which serves one person or one program.
const MAX_MAILBOX_DEPTH: usize = 256;
/// How often a delivery looks for the next actor when the one that it found was just ending.
const MAX_DELIVERY_ATTEMPTS: usize = 8;
/// How long to wait for a change of the cluster's view before looking anyway.
const VIEW_CHANGE_TIMEOUT: Duration = Duration::from_millis(100);

/// Reaches any conversation, live or not.
#[derive(Clone)]
pub struct ConversationRouter {
    host: ActorRef<HostMsg>,
    table: Arc<LiveTable>,
    services: Arc<Services>,
    store: Arc<dyn Store>,
    cluster: ClusterClient,
    policy: Policy,
    /// The last known holder of each conversation that was found on another node.
    remote_holders: Arc<Mutex<HashMap<Scoped<ConversationId>, Holder>>>,
    /// The permits of tools that this node gives.
    permits: Arc<PermitTable>,
}

impl ConversationRouter {
    /// The router of a node whose conversations live under `host`.
    pub fn new(
        host: ActorRef<HostMsg>,
        table: Arc<LiveTable>,
        services: Arc<Services>,
        store: Arc<dyn Store>,
        cluster: ClusterClient,
        policy: Policy,
    ) -> Self {
        Self {
            host,
            table,
            services,
            store,
            cluster,
            policy,
            remote_holders: Arc::default(),
            permits: Arc::default(),
        }
    }

    /// Lets the conversations of this node reach others, as long as the caller keeps the result.
    pub fn install_client(&self) -> Arc<dyn ConversationClient> {
        let client: Arc<dyn ConversationClient> = Arc::new(self.clone());
        self.services.conversations.set(&client);
        client
    }

    /// Carries a request of the program itself to its conversation and brings back the reply.
    ///
    /// After `Lost`, `Unavailable` and `Store(Unavailable)` it is unknown whether the request was carried out.
    pub async fn deliver(
        &self,
        id: &Scoped<ConversationId>,
        request: Request,
        idempotency_keys: Vec<IdempotencyKey>,
    ) -> Result<Reply, RequestError> {
        self.deliver_for(id, request, RequestContext::of_the_program(idempotency_keys)).await
    }

    /// Carries a request of somebody to its conversation, which judges it, and brings back the reply.
    pub async fn deliver_for(
        &self,
        id: &Scoped<ConversationId>,
        request: Request,
        context: RequestContext,
    ) -> Result<Reply, RequestError> {
        // It passes through many futures, each of which would have room for it.
        let request = Box::new(request);
        let first_reply = self.check_exists(id, &request, &context.idempotency_keys).await?;
        if let Some(first_reply) = first_reply {
            return Ok(first_reply);
        }
        match &*request {
            // A user's own call takes as long as its tool may.
            Request::Dispatch(_) => self.route(id, request, context).await,
            // Large futures that few requests need are boxed: the future of every request has room for
            // the largest that is not, and is copied into that of its HTTP request.
            Request::Delete | Request::DeleteFor(_) | Request::DeleteIf(_) => {
                Box::pin(self.delete(id, &request, context)).await
            }
            Request::Update(update) => Box::pin(self.update(id, update.clone(), context)).await,
            _ => self.route_in_time(id, request, context).await,
        }
    }

    /// Changes what is written about a conversation, and then its members everywhere below it.
    async fn update(
        &self,
        id: &Scoped<ConversationId>,
        update: UpdateRequest,
        context: RequestContext,
    ) -> Result<Reply, RequestError> {
        let (by, changes_members) = (update.by.clone(), update.members.is_some());
        let reply = self.route_in_time(id, Box::new(Request::Update(update)), context).await?;
        if changes_members {
            self.update_members_of_children(id, &by).await?;
        }
        Ok(reply)
    }

    async fn route_in_time(
        &self,
        id: &Scoped<ConversationId>,
        request: Box<Request>,
        context: RequestContext,
    ) -> Result<Reply, RequestError> {
        let routed = self.route(id, request, context);
        let late = || unavailable("the conversation did not answer in time");
        tokio::time::timeout(REQUEST_TIMEOUT, routed).await.map_err(|_| late())?
    }

    /// Delivers a request, here or to another node, until an actor takes it.
    async fn route(
        &self,
        id: &Scoped<ConversationId>,
        mut request: Box<Request>,
        mut context: RequestContext,
    ) -> Result<Reply, RequestError> {
        for _ in 0..MAX_DELIVERY_ATTEMPTS {
            let outcome = match self.ensure_started(id).await? {
                Location::Here(handle) => deliver_to_actor(&handle, request, context).await?,
                // Boxed: the call to the other node costs far more than that.
                Location::There(member) => {
                    Box::pin(self.deliver_to_member(&member, id, request, context)).await?
                }
            };
            match outcome {
                DeliveryOutcome::Done(reply) => return Ok(reply),
                DeliveryOutcome::Failed(error) => return Err(error),
                DeliveryOutcome::NotTaken(returned, its_context) => {
                    (request, context) = (returned, its_context);
                }
            }
        }
        Err(unavailable("the conversation keeps moving"))
    }

    /// Carries a request to another node. The request comes back as `NotTaken` if it was certainly
    /// not carried out, or if it may be repeated safely.
    async fn deliver_to_member(
        &self,
        member: &Member,
        id: &Scoped<ConversationId>,
        request: Box<Request>,
        context: RequestContext,
    ) -> Result<DeliveryOutcome, RequestError> {
        let mut seen = self.cluster.watch();
        seen.mark_unchanged();
        let call = Deliver {
            id: id.clone(),
            request: request.clone(),
            idempotency_keys: context.idempotency_keys.clone(),
            access: context.access.clone(),
        };
        let error = match self.cluster.call(member, call).await {
            Ok(delivered) => return Ok(delivered.into()),
            Err(error) => error,
        };
        self.forget_holder(id);
        match error {
            RemoteError::Unanswered(CallError::Full) => Err(RequestError::Overloaded),
            RemoteError::Unanswered(CallError::TooLarge) => {
                Err(unavailable("the request is too large for another node"))
            }
            // The request was most likely carried out, and nobody will see its reply.
            RemoteError::AnswerTooLarge => Err(RequestError::Lost),
            RemoteError::Unanswered(CallError::Lost) | RemoteError::WrongAnswer
                if context.idempotency_keys.is_empty() && !is_repeatable(&request) =>
            {
                Err(RequestError::Lost)
            }
            // The conversation moves, or its node is going: the next view tells.
            RemoteError::Unanswered(CallError::Unconnected | CallError::Lost)
            | RemoteError::WrongAnswer
            | RemoteError::NotHere
            | RemoteError::Late
            | RemoteError::Unintelligible => {
                self.cluster.changed(&mut seen, VIEW_CHANGE_TIMEOUT).await;
                Ok(DeliveryOutcome::NotTaken(request, context))
            }
        }
    }

    /// How many model calls and tools run here.
    pub(crate) fn running_work(&self) -> usize {
        self.services.work.len()
    }

    /// Returns when all notifications of hooks that were queued by now have been sent.
    pub(crate) async fn flush_hooks(&self) {
        self.services.hooks.flush().await;
    }

    /// The other nodes.
    pub fn cluster(&self) -> &ClusterClient {
        &self.cluster
    }

    /// The conversations that live on this node.
    pub fn table(&self) -> &LiveTable {
        &self.table
    }

    /// Rejects a request for a conversation that does not exist, so that it starts no actor, unless
    /// the request creates it. Returns the first reply to a delete that is repeated.
    async fn check_exists(
        &self,
        id: &Scoped<ConversationId>,
        request: &Request,
        idempotency_keys: &[IdempotencyKey],
    ) -> Result<Option<Reply>, RequestError> {
        let creates = match request {
            Request::Create(_) | Request::Fork(_) | Request::Spawn(_) => true,
            Request::Send(send) => send.agent.is_some(),
            Request::Schedule(later) => later.message.agent.is_some(),
            Request::Resolve(_)
            | Request::ResolveAll(_)
            | Request::Cancel
            | Request::Dispatch(_)
            | Request::Wake
            | Request::ChildEnded(_)
            | Request::Abandon(_)
            | Request::RevokeDecision(_)
            | Request::FailCall(_)
            | Request::Update(_)
            | Request::ChangeState(_)
            | Request::Operate(_)
            | Request::External(_)
            | Request::Unschedule(_)
            | Request::Extend(_)
            | Request::Withdraw(_)
            | Request::CancelTurn(_)
            | Request::Rewind(_)
            | Request::Regenerate(_)
            | Request::EraseSubject(_)
            | Request::Delete
            | Request::DeleteFor(_)
            | Request::DeleteIf(_) => false,
        };
        let known = self.table.get(id).is_some() || self.remote_holder(id).is_some();
        if creates || known || self.exists(id).await? {
            return Ok(None);
        }
        let scope = ResponseScope::Conversation(id.clone());
        for key in idempotency_keys {
            let now = self.services.clock.now();
            let stored = self.store.stored_response(&scope, &key.key, now).await?;
            if let Some(stored) = stored.filter(|stored| stored.fingerprint == key.fingerprint)
                && let Ok(first_reply) = serde_json::from_value(stored.body)
            {
                return Ok(Some(first_reply));
            }
        }
        Err(Rejection::NotFound.into())
    }

    async fn exists(&self, id: &Scoped<ConversationId>) -> Result<bool, StoreError> {
        // One that is found is read again by its actor, with the store's durability; that there is
        // none is an answer by itself.
        let found = self.store.last_seqs(std::slice::from_ref(id)).await?;
        Ok(found.iter().any(Option::is_some) || self.store.summary(id).await?.is_some())
    }
}

#[async_trait]
impl ConversationClient for ConversationRouter {
    async fn deliver(
        &self,
        id: &Scoped<ConversationId>,
        request: Request,
    ) -> Result<Reply, RequestError> {
        ConversationRouter::deliver(self, id, request, Vec::new()).await
    }

    async fn sync_permits(&self, sync: PermitSync) -> Option<u32> {
        self.sync_permits_of_key(sync).await
    }
}

/// Puts a request into the mailbox of a live actor, and waits for its outcome.
pub(crate) async fn deliver_to_actor(
    handle: &ActorHandle,
    request: Box<Request>,
    context: RequestContext,
) -> Result<DeliveryOutcome, RequestError> {
    let (delivery, outcome) = Delivery::new(request, context);
    if handle.mailbox_depth.fetch_add(1, Ordering::Relaxed) >= MAX_MAILBOX_DEPTH {
        handle.mailbox_depth.fetch_sub(1, Ordering::Relaxed);
        return Err(RequestError::Overloaded);
    }
    let cast = handle.actor.cast(ConversationMsg::Deliver(Box::new(delivery)));
    // A mailbox that is closing drops the delivery, one that has closed returns it: either way the
    // request comes back.
    drop(cast);
    outcome.await.map_err(|_| RequestError::Lost)
}

/// Whether a request may be carried out twice without harm.
fn is_repeatable(request: &Request) -> bool {
    match request {
        Request::Wake
        | Request::Spawn(_)
        | Request::ChildEnded(_)
        | Request::Abandon(_)
        | Request::EraseSubject(_) => true,
        Request::Create(_)
        | Request::Fork(_)
        | Request::Send(_)
        | Request::Resolve(_)
        | Request::ResolveAll(_)
        | Request::Cancel
        | Request::Dispatch(_)
        | Request::RevokeDecision(_)
        | Request::FailCall(_)
        | Request::Update(_)
        | Request::ChangeState(_)
        | Request::Operate(_)
        | Request::External(_)
        | Request::Schedule(_)
        | Request::Unschedule(_)
        | Request::Extend(_)
        | Request::Withdraw(_)
        | Request::CancelTurn(_)
        | Request::Rewind(_)
        | Request::Regenerate(_)
        | Request::Delete
        | Request::DeleteFor(_)
        | Request::DeleteIf(_) => false,
    }
}

fn unavailable(reason: impl Into<String>) -> RequestError {
    RequestError::Unavailable(reason.into())
}

fn store_unavailable(reason: &str) -> RequestError {
    StoreError::Unavailable(reason.to_owned()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It is copied into the future of its HTTP request.
    #[test]
    fn the_future_of_a_request_stays_small() {
        type Parts = (&'static ConversationRouter, &'static Scoped<ConversationId>, Request);
        fn future_size<F: Future>(_: impl FnOnce(Parts) -> F) -> usize {
            size_of::<F>()
        }
        let size = future_size(|(router, id, request)| {
            router.deliver_for(id, request, RequestContext::of_the_program(Vec::new()))
        });
        assert!(size < 3 << 10, "{size} bytes: box what few requests need");
    }
}
