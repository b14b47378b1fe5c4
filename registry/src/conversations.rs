//! The door to every conversation: `ensure_started`, then deliver.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_actors::conversation::{ConversationMsg, Deps};
use abide_actors::journal::Refusal;
use abide_actors::request::{Answered, Delivery, Failure, Inspection, RepeatKey, Reply, Request};
use abide_actors::snapshot::{Overlay, Snapshot};
use abide_conversation::{ConversationId, Rejection, State, replay};
use ractor::{ActorRef, MessagingErr};

use crate::host::{Absent, Handle, HostMsg, Quarantined, Table};
use crate::partition::Share;
use crate::store::Store;

/// A request that waits longer than this is answered "unavailable"; what became of it is unknown.
const DEADLINE: Duration = Duration::from_secs(15);
/// How many deliveries may wait for one conversation; it is one person's, or one program's.
const DEPTH: usize = 256;
/// How often a delivery looks for the next actor when the one it found was just ending.
const TRIES: usize = 8;

/// How many are taken up at once after a start, and how long to wait while so many run, or until a
/// store that is away is asked again.
const PAGE: usize = 1_000;
const AT_ONCE: usize = 256;
const BREATH: Duration = Duration::from_millis(20);
const AGAIN: Duration = Duration::from_secs(1);

/// Reaches any conversation, live or not.
#[derive(Clone)]
pub struct Conversations {
    host: ActorRef<HostMsg>,
    table: Arc<Table>,
    deps: Arc<Deps>,
    store: Arc<dyn Store>,
}

impl Conversations {
    /// The door of a node whose conversations live under `host`.
    pub fn new(
        host: ActorRef<HostMsg>,
        table: Arc<Table>,
        deps: Arc<Deps>,
        store: Arc<dyn Store>,
    ) -> Self {
        Self { host, table, deps, store }
    }

    /// Carries a request to its conversation and brings back what was done.
    ///
    /// After `Lost` and `Refused(Unavailable)` it may have been carried out, or not.
    pub async fn deliver(
        &self,
        id: &ConversationId,
        request: Request,
        repeats: Vec<RepeatKey>,
    ) -> Result<Reply, Failure> {
        if let Some(first) = self.missing(id, &request, &repeats).await? {
            return Ok(first);
        }
        match &request {
            // A user's own call takes as long as its tool may.
            Request::Dispatch(_) => self.deliver_whenever(id, request, repeats).await,
            Request::Delete if self.quarantined(id).await.is_some() => self.remove(id).await,
            _ => {
                let delivered = self.deliver_whenever(id, request, repeats);
                tokio::time::timeout(DEADLINE, delivered).await.map_err(|_| {
                    Refusal::Unavailable("the conversation took too long".to_owned())
                })?
            }
        }
    }

    async fn deliver_whenever(
        &self,
        id: &ConversationId,
        mut request: Request,
        mut repeats: Vec<RepeatKey>,
    ) -> Result<Reply, Failure> {
        for _ in 0..TRIES {
            let (delivery, answer) = Delivery::new(request, repeats);
            self.send(id, delivery).await?;
            match answer.await {
                Ok(Answered::Done(reply)) => return Ok(reply),
                Ok(Answered::Failed(failure)) => return Err(failure),
                Ok(Answered::Untouched(again, keys)) => (request, repeats) = (again, keys),
                Err(_) => return Err(Failure::Lost),
            }
        }
        Err(Refusal::Unavailable("the actor keeps ending".to_owned()).into())
    }

    /// Deletes a conversation whose actor cannot live.
    async fn remove(&self, id: &ConversationId) -> Result<Reply, Failure> {
        let me = &self.deps.me;
        let held = self.store.claim(id, me, Some(me)).await?;
        self.store.delete(id, &held, None).await?;
        // A host that has ended forgets everything.
        let _ = self.host.cast(HostMsg::Forget(id.clone()));
        Ok(Reply::Deleted)
    }

    /// Puts a delivery into the mailbox of the live actor. A mailbox that is closing gives it back.
    async fn send(&self, id: &ConversationId, delivery: Delivery) -> Result<(), Failure> {
        let mut message = ConversationMsg::Deliver(Box::new(delivery));
        for _ in 0..TRIES {
            let handle = self.ensure_started(id).await?;
            if handle.depth.fetch_add(1, Ordering::Relaxed) >= DEPTH {
                handle.depth.fetch_sub(1, Ordering::Relaxed);
                return Err(Failure::Overloaded);
            }
            match handle.actor.cast(message) {
                Ok(()) => return Ok(()),
                Err(MessagingErr::SendErr(refused)) => message = refused,
                Err(MessagingErr::ChannelClosed | MessagingErr::InvalidActorType) => {
                    return Err(Failure::Lost);
                }
            }
        }
        Err(Refusal::Unavailable("the actor keeps ending".to_owned()).into())
    }

    /// The live actor of a conversation, started if there is none.
    pub async fn ensure_started(&self, id: &ConversationId) -> Result<Handle, Failure> {
        let live = self.table.get(id);
        let up = |handle: &Handle| handle.actor.get_status() < ractor::ActorStatus::Draining;
        if let Some(handle) = live.filter(up) {
            return Ok(handle);
        }
        let ask = |reply| HostMsg::Ensure(id.clone(), reply);
        match self.host.call(ask, Some(DEADLINE)).await {
            Ok(ractor::rpc::CallResult::Success(ensured)) => {
                ensured.map_err(|absent| match absent {
                    Absent::Quarantined(quarantined) => Failure::Quarantined(quarantined.reason),
                    Absent::Away => Refusal::Unavailable("the store was away".to_owned()).into(),
                })
            }
            Ok(_) | Err(_) => Err(Failure::Lost),
        }
    }

    /// A conversation as clients see it; never starts an actor. `None` if there is none.
    pub async fn snapshot(&self, id: &ConversationId) -> Result<Option<Snapshot>, Failure> {
        let (state, overlay) = match self.inspect(id).await {
            Some(live) if live.state.exists() => {
                let Inspection { state, held, streaming, progress, .. } = live;
                (state, Overlay { held: Some(held), streaming, progress })
            }
            Some(_) | None => match self.stored(id).await? {
                Some(state) => (state, Overlay::default()),
                None => return Ok(None),
            },
        };
        let newest = match &state.agent {
            Some(agent) => self.deps.agents.newest(agent).await?,
            None => None,
        };
        let newest = newest.map(|definition| definition.revision.clone());
        Ok(Some(Snapshot::new(id.clone(), &state, overlay, newest)))
    }

    /// The state that the journal comes to.
    pub async fn stored(&self, id: &ConversationId) -> Result<Option<State>, Failure> {
        let stored = self.store.load(id).await?;
        Ok(stored.map(|stored| replay(stored.state, &stored.events)))
    }

    /// What a live actor says of itself; `None` when there is none, or it is too busy to say.
    pub async fn inspect(&self, id: &ConversationId) -> Option<Inspection> {
        let handle = self.table.get(id)?;
        match handle.actor.call(ConversationMsg::Inspect, Some(DEADLINE)).await {
            Ok(ractor::rpc::CallResult::Success(inspection)) => Some(*inspection),
            Ok(_) | Err(_) => None,
        }
    }

    /// Why nothing is delivered to a conversation, if that is so.
    pub async fn quarantined(&self, id: &ConversationId) -> Option<Quarantined> {
        let ask = |reply| HostMsg::Quarantined(id.clone(), reply);
        match self.host.call(ask, Some(DEADLINE)).await {
            Ok(ractor::rpc::CallResult::Success(quarantined)) => quarantined,
            Ok(_) | Err(_) => None,
        }
    }

    /// Crashes the live actor, as a bug would, and lets the conversation out of quarantine.
    /// Returns whether there was anything to do.
    pub async fn kill(&self, id: &ConversationId) -> bool {
        let live = self.table.get(id);
        let held = self.quarantined(id).await.is_some();
        let pardoned = held && self.host.cast(HostMsg::Pardon(id.clone())).is_ok();
        pardoned || live.is_some_and(|handle| handle.actor.cast(ConversationMsg::Kill).is_ok())
    }

    /// Who lives on this node.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Starts every conversation that wants something running, however long the store takes, a few
    /// at a time: each may call a model or a tool at once. Returns how many.
    pub async fn revive_active(&self) -> usize {
        let (mut cursor, mut revived) = (None, 0);
        loop {
            let page = match self.store.active(&Share::all(), cursor.as_deref(), PAGE).await {
                Ok(page) => page,
                Err(refusal) => {
                    tracing::warn!(%refusal, "what was running cannot be read");
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
            };
            for (id, _) in &page.items {
                while self.deps.work.len() >= AT_ONCE {
                    tokio::time::sleep(BREATH).await;
                }
                // Whatever keeps it from starting, its supervisor tries again.
                match self.ensure_started(id).await {
                    Ok(_) => revived += 1,
                    Err(failure) => tracing::warn!(conversation = %id, %failure, "not revived"),
                }
            }
            match page.cursor {
                Some(next) => cursor = Some(next),
                None => return revived,
            }
        }
    }

    /// Keeps requests for conversations that do not exist from starting actors. Returns the first
    /// answer to a repeated delete.
    async fn missing(
        &self,
        id: &ConversationId,
        request: &Request,
        repeats: &[RepeatKey],
    ) -> Result<Option<Reply>, Failure> {
        let creates = match request {
            Request::Create(_) => true,
            Request::Send(send) => send.agent.is_some(),
            Request::Resolve(_)
            | Request::Cancel
            | Request::Dispatch(_)
            | Request::Wake
            | Request::Delete => false,
        };
        if creates || self.table.get(id).is_some() || self.store.head(id).await?.is_some() {
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
