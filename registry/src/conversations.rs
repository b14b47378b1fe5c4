//! The door to every conversation: `ensure_started`, then deliver.

mod descendants;
mod ensure_started;
mod inspect;
mod repair;
pub mod rpc_server;
mod snapshot;

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_actors::conversation::{ConversationMsg, Services};
use abide_actors::conversation_client::ConversationClient;
use abide_actors::journal::{Holder, StoreError};
use abide_actors::request::{
    Delivery, DeliveryOutcome, IdempotencyKey, Reply, Request, RequestError,
};
use abide_conversation::{ConversationId, Rejection};
use async_trait::async_trait;
use ractor::ActorRef;

use crate::cluster_client::Cluster;
use crate::host::{ActorHandle, HostMsg, LiveTable};
use crate::membership::Member;
use crate::peers::CallError;
use crate::placement::Policy;
use crate::protocol;
use crate::protocol::Call;
use crate::store::Store;
pub use ensure_started::Location;
pub use repair::MoveError;

/// A request that waits longer than this is answered "unavailable"; what became of it is unknown.
const DEADLINE: Duration = Duration::from_secs(15);
/// How many deliveries may wait for one conversation; it is one person's, or one program's.
const DEPTH: usize = 256;
/// How often a delivery looks for the next actor when the one it found was just ending.
const TRIES: usize = 8;
/// A user's own call takes as long as its tool may; no longer than this on another node.
const LONGEST_RUN: Duration = Duration::from_secs(3_600);
/// How long to wait for the cluster to look different before looking anyway.
const MOMENT: Duration = Duration::from_millis(100);

/// Reaches any conversation, live or not.
#[derive(Clone)]
pub struct Conversations {
    host: ActorRef<HostMsg>,
    table: Arc<LiveTable>,
    deps: Arc<Services>,
    store: Arc<dyn Store>,
    cluster: Cluster,
    policy: Policy,
    /// Whom a conversation that lives elsewhere was found with last.
    cache: Arc<Mutex<HashMap<ConversationId, Holder>>>,
}

impl Conversations {
    /// The door of a node whose conversations live under `host`.
    pub fn new(
        host: ActorRef<HostMsg>,
        table: Arc<LiveTable>,
        deps: Arc<Services>,
        store: Arc<dyn Store>,
        cluster: Cluster,
        policy: Policy,
    ) -> Self {
        Self { host, table, deps, store, cluster, policy, cache: Arc::default() }
    }

    /// Lets conversations reach each other, as long as somebody keeps what this returns.
    pub fn open_door(&self) -> Arc<dyn ConversationClient> {
        let door: Arc<dyn ConversationClient> = Arc::new(self.clone());
        self.deps.door.set(&door);
        door
    }

    /// Carries a request to its conversation and brings back what was done.
    ///
    /// After `Lost` and `Refused(Unavailable)` it may have been carried out, or not.
    pub async fn deliver(
        &self,
        id: &ConversationId,
        request: Request,
        repeats: Vec<IdempotencyKey>,
    ) -> Result<Reply, RequestError> {
        if let Some(first) = self.missing(id, &request, &repeats).await? {
            return Ok(first);
        }
        match &request {
            // A user's own call takes as long as its tool may.
            Request::Dispatch(_) => self.deliver_whenever(id, request, repeats).await,
            Request::Delete if self.quarantined_here(id).await.is_some() => self.remove(id).await,
            Request::Delete => {
                self.part_from_parent(id).await?;
                Box::pin(self.delete_children(id)).await?;
                self.deliver_in_time(id, request, repeats).await
            }
            _ => self.deliver_in_time(id, request, repeats).await,
        }
    }

    async fn deliver_in_time(
        &self,
        id: &ConversationId,
        request: Request,
        repeats: Vec<IdempotencyKey>,
    ) -> Result<Reply, RequestError> {
        let delivered = self.deliver_whenever(id, request, repeats);
        let too_long = || StoreError::Unavailable("the conversation took too long".to_owned());
        tokio::time::timeout(DEADLINE, delivered).await.map_err(|_| too_long())?
    }

    async fn deliver_whenever(
        &self,
        id: &ConversationId,
        mut request: Request,
        mut repeats: Vec<IdempotencyKey>,
    ) -> Result<Reply, RequestError> {
        for _ in 0..TRIES {
            let answered = match self.ensure_started(id).await? {
                Location::Here(handle) => hand_in(&handle, request, repeats).await?,
                Location::There(member) => self.send(&member, id, request, repeats).await?,
            };
            match answered {
                DeliveryOutcome::Done(reply) => return Ok(reply),
                DeliveryOutcome::Failed(failure) => return Err(failure),
                DeliveryOutcome::NotTaken(again, keys) => (request, repeats) = (again, keys),
            }
        }
        Err(StoreError::Unavailable("the conversation keeps moving".to_owned()).into())
    }

    /// Carries a request to another node. What was surely not carried out comes back untouched; so
    /// does what may be repeated safely.
    async fn send(
        &self,
        member: &Member,
        id: &ConversationId,
        request: Request,
        repeats: Vec<IdempotencyKey>,
    ) -> Result<DeliveryOutcome, RequestError> {
        let mut seen = self.cluster.watch();
        seen.mark_unchanged();
        let within = match &request {
            Request::Dispatch(_) => LONGEST_RUN,
            _ => DEADLINE,
        };
        let ask = Call::Deliver {
            id: id.clone(),
            request: Box::new(request.clone()),
            repeats: repeats.clone(),
        };
        let answer = self.cluster.ask(&member.process, ask, within).await;
        if let Ok(protocol::CallOutcome::Delivered(delivered)) = answer {
            return Ok(delivered.into());
        }
        self.forget(id);
        match answer {
            Err(CallError::Full) => return Err(RequestError::Overloaded),
            Err(CallError::TooLarge) => {
                return Err(StoreError::Unavailable("too large for another node".to_owned()).into());
            }
            // Done, most likely, and nobody will know of what.
            Ok(protocol::CallOutcome::TooLarge) => return Err(RequestError::Lost),
            Err(CallError::Lost) if repeats.is_empty() && !is_repeatable(&request) => {
                return Err(RequestError::Lost);
            }
            // It moves, or its node is going: the next view tells.
            _ => self.cluster.changed(&mut seen, MOMENT).await,
        }
        Ok(DeliveryOutcome::NotTaken(request, repeats))
    }

    /// Deletes a conversation whose actor cannot live.
    async fn remove(&self, id: &ConversationId) -> Result<Reply, RequestError> {
        let me = self.deps.standing.me();
        let held = self.store.claim(id, &me, Some(&me)).await?;
        if held.holder != me {
            return Err(StoreError::Fenced.into());
        }
        self.store.delete(id, &held, None).await?;
        // A host that has ended forgets everything.
        let _ = self.host.cast(HostMsg::Forget(id.clone()));
        Ok(Reply::Deleted)
    }

    /// How many model calls and tools run here.
    pub(crate) fn busy(&self) -> usize {
        self.deps.work.len()
    }

    /// Returns when every hook that was to be told by now has been.
    pub(crate) async fn hooks_told(&self) {
        self.deps.runner.hooks().told().await;
    }

    /// The other nodes.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Who lives on this node.
    pub fn table(&self) -> &LiveTable {
        &self.table
    }

    /// Keeps requests for conversations that do not exist from starting actors. Returns the first
    /// answer to a repeated delete.
    async fn missing(
        &self,
        id: &ConversationId,
        request: &Request,
        repeats: &[IdempotencyKey],
    ) -> Result<Option<Reply>, RequestError> {
        let creates = match request {
            Request::Create(_) | Request::Fork(_) | Request::Spawn(_) | Request::Abandon(_) => true,
            Request::Send(send) => send.agent.is_some(),
            Request::Resolve(_)
            | Request::Cancel
            | Request::Dispatch(_)
            | Request::Wake
            | Request::ChildEnded(_)
            | Request::RevokeDecision(_)
            | Request::FailCall(_)
            | Request::Delete => false,
        };
        let known = self.table.get(id).is_some() || self.cached(id).is_some();
        if creates || known || self.store.head(id).await?.is_some() {
            return Ok(None);
        }
        for repeat in repeats {
            let now = self.deps.clock.now();
            let kept = self.store.answer(id.as_str(), &repeat.key, now).await?;
            if let Some(kept) = kept.filter(|kept| kept.fingerprint == repeat.fingerprint)
                && let Ok(first) = serde_json::from_value(kept.body)
            {
                return Ok(Some(first));
            }
        }
        Err(Rejection::NotFound.into())
    }
}

/// Whether a request may be carried out twice without harm.
fn is_repeatable(request: &Request) -> bool {
    match request {
        Request::Wake | Request::Spawn(_) | Request::ChildEnded(_) | Request::Abandon(_) => true,
        Request::Create(_)
        | Request::Fork(_)
        | Request::Send(_)
        | Request::Resolve(_)
        | Request::Cancel
        | Request::Dispatch(_)
        | Request::RevokeDecision(_)
        | Request::FailCall(_)
        | Request::Delete => false,
    }
}

#[async_trait]
impl ConversationClient for Conversations {
    async fn deliver(&self, id: &ConversationId, request: Request) -> Result<Reply, RequestError> {
        Conversations::deliver(self, id, request, Vec::new()).await
    }
}

/// Puts a request into the mailbox of a live actor, and waits for what becomes of it.
async fn hand_in(
    handle: &ActorHandle,
    request: Request,
    repeats: Vec<IdempotencyKey>,
) -> Result<DeliveryOutcome, RequestError> {
    let (delivery, answer) = Delivery::new(request, repeats);
    if handle.depth.fetch_add(1, Ordering::Relaxed) >= DEPTH {
        handle.depth.fetch_sub(1, Ordering::Relaxed);
        return Err(RequestError::Overloaded);
    }
    let cast = handle.actor.cast(ConversationMsg::Deliver(Box::new(delivery)));
    // A mailbox that is closing drops it, one that has closed returns it: either way it comes back.
    drop(cast);
    answer.await.map_err(|_| RequestError::Lost)
}

fn unavailable(why: &str) -> RequestError {
    StoreError::Unavailable(why.to_owned()).into()
}
