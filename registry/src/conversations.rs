//! The door to every conversation: `ensure_started`, then deliver.

mod operators;
pub mod serve;

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use abide_actors::conversation::{ConversationMsg, Deps};
use abide_actors::journal::{Holder, Holding, Refusal};
use abide_actors::request::{Answered, Delivery, Failure, Inspection, RepeatKey, Reply, Request};
use abide_actors::snapshot::{Overlay, Snapshot};
use abide_conversation::{ConversationId, Rejection, State, replay};
use ractor::ActorRef;

use crate::cluster::Cluster;
use crate::host::{Absent, Handle, HostMsg, Table};
use crate::membership::Member;
use crate::peers::Unreached;
use crate::placement::{self, Decision, Policy};
use crate::store::Store;
use crate::wire::{self, Ask};

/// A request that waits longer than this is answered "unavailable"; what became of it is unknown.
const DEADLINE: Duration = Duration::from_secs(15);
/// How many deliveries may wait for one conversation; it is one person's, or one program's.
const DEPTH: usize = 256;
/// How often a delivery looks for the next actor when the one it found was just ending.
const TRIES: usize = 8;

/// A user's own call takes as long as its tool may; no longer than this on another node.
const LONGEST_RUN: Duration = Duration::from_secs(3_600);
/// How long a glance at a conversation elsewhere may take; the store knows nearly as much.
const GLANCE: Duration = Duration::from_secs(2);
/// How long to wait for the cluster to look different before looking anyway.
const MOMENT: Duration = Duration::from_millis(100);
/// For how many conversations is remembered which other node holds them.
const CACHED: usize = 10_000;

/// Where a conversation lives.
#[derive(Clone)]
pub enum Place {
    Here(Handle),
    There(Member),
}

/// Which member holds it.
enum Holds {
    Here,
    There(Box<Member>),
}

/// Reaches any conversation, live or not.
#[derive(Clone)]
pub struct Conversations {
    host: ActorRef<HostMsg>,
    table: Arc<Table>,
    deps: Arc<Deps>,
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
        table: Arc<Table>,
        deps: Arc<Deps>,
        store: Arc<dyn Store>,
        cluster: Cluster,
        policy: Policy,
    ) -> Self {
        Self { host, table, deps, store, cluster, policy, cache: Arc::default() }
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
            Request::Delete if self.quarantined_here(id).await.is_some() => self.remove(id).await,
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
            let answered = match self.ensure_started(id).await? {
                Place::Here(handle) => hand_in(&handle, request, repeats).await?,
                Place::There(member) => self.send(&member, id, request, repeats).await?,
            };
            match answered {
                Answered::Done(reply) => return Ok(reply),
                Answered::Failed(failure) => return Err(failure),
                Answered::Untouched(again, keys) => (request, repeats) = (again, keys),
            }
        }
        Err(Refusal::Unavailable("the conversation keeps moving".to_owned()).into())
    }

    /// Carries a request to another node. What was surely not carried out comes back untouched; so
    /// does what may be repeated safely.
    async fn send(
        &self,
        member: &Member,
        id: &ConversationId,
        request: Request,
        repeats: Vec<RepeatKey>,
    ) -> Result<Answered, Failure> {
        let mut seen = self.cluster.watch();
        seen.mark_unchanged();
        let within = match &request {
            Request::Dispatch(_) => LONGEST_RUN,
            _ => DEADLINE,
        };
        let ask = Ask::Deliver {
            id: id.clone(),
            request: Box::new(request.clone()),
            repeats: repeats.clone(),
        };
        let answer = self.cluster.ask(&member.process, ask, within).await;
        if let Ok(wire::Answer::Delivered(delivered)) = answer {
            return Ok(delivered.into());
        }
        self.forget(id);
        match answer {
            Err(Unreached::Full) => return Err(Failure::Overloaded),
            Err(Unreached::TooLarge) => {
                return Err(Refusal::Unavailable("too large for another node".to_owned()).into());
            }
            Err(Unreached::Lost) if repeats.is_empty() && request != Request::Wake => {
                return Err(Failure::Lost);
            }
            // It moves, or its node is going: the next view tells.
            _ => self.cluster.changed(&mut seen, MOMENT).await,
        }
        Ok(Answered::Untouched(request, repeats))
    }

    /// Deletes a conversation whose actor cannot live.
    async fn remove(&self, id: &ConversationId) -> Result<Reply, Failure> {
        let me = self.deps.standing.me();
        let held = self.store.claim(id, &me, Some(&me)).await?;
        if held.holder != me {
            return Err(Refusal::Fenced.into());
        }
        self.store.delete(id, &held, None).await?;
        // A host that has ended forgets everything.
        let _ = self.host.cast(HostMsg::Forget(id.clone()));
        Ok(Reply::Deleted)
    }

    /// Where the conversation lives: the live actor here, started if it is to live here, or the
    /// member that holds it or shall.
    ///
    /// This is the only door. Losing a race for a conversation is no error: the winner is returned.
    pub async fn ensure_started(&self, id: &ConversationId) -> Result<Place, Failure> {
        if let Some(handle) = self.live_here(id) {
            return Ok(Place::Here(handle));
        }
        if let Some(member) = self.cached(id) {
            return Ok(Place::There(member));
        }
        match tokio::time::timeout(DEADLINE, self.find(id, false)).await {
            Ok(found) => found?.ok_or_else(|| unavailable("no node takes conversations now")),
            Err(_) => Err(unavailable("its holder cannot be reached")),
        }
    }

    /// The same for another node that was told that the conversation lives here, or shall: never
    /// passes it on. `None` if it is not to live here.
    async fn ensure_here(&self, id: &ConversationId) -> Result<Option<Handle>, Failure> {
        if let Some(handle) = self.live_here(id) {
            return Ok(Some(handle));
        }
        match self.find(id, true).await? {
            Some(Place::Here(handle)) => Ok(Some(handle)),
            Some(Place::There(_)) | None => Ok(None),
        }
    }

    /// Reads who holds it, and acts on what that means. With `here`, what is to be placed is placed
    /// on this node, or nowhere. `None` if no node takes it now.
    async fn find(&self, id: &ConversationId, here: bool) -> Result<Option<Place>, Failure> {
        let mut seen = self.cluster.watch();
        let mut over = None;
        loop {
            let view = seen.borrow_and_update().clone();
            let holder = self.store.holding(id).await?.map(|held| held.holder);
            let decision = match &holder {
                Some(dead) if over.as_ref() == Some(dead) => Decision::Place,
                holder => placement::decide(holder.as_ref(), &view),
            };
            match decision {
                Decision::Here => return self.start_here(id, None).await.map(Some),
                Decision::Ask(member) => return Ok(Some(self.remember(id, member))),
                Decision::Confirm => match holder {
                    Some(holder) if self.cluster.is_dead(&holder).await? => over = Some(holder),
                    _ => self.cluster.changed(&mut seen, MOMENT).await,
                },
                Decision::Wait(_) if here => return Ok(None),
                Decision::Wait(_) => self.cluster.changed(&mut seen, MOMENT).await,
                Decision::Place => {
                    let drains = self.cluster.standing().is_draining();
                    let chosen = match here {
                        true => view.member(&view.me).filter(|_| !drains),
                        false => placement::place(self.policy, id, &view),
                    };
                    match chosen {
                        // The next view says so, too.
                        Some(member) if member.holder == view.me && drains => {
                            self.cluster.changed(&mut seen, MOMENT).await;
                        }
                        Some(member) if member.holder == view.me => {
                            return self.start_here(id, over).await.map(Some);
                        }
                        chosen => return Ok(chosen.cloned().map(Place::There)),
                    }
                }
            }
        }
    }

    fn live_here(&self, id: &ConversationId) -> Option<Handle> {
        let up = |handle: &Handle| handle.actor.get_status() < ractor::ActorStatus::Draining;
        self.table.get(id).filter(up)
    }

    async fn start_here(
        &self,
        id: &ConversationId,
        over: Option<Holder>,
    ) -> Result<Place, Failure> {
        let ask = |reply| HostMsg::Ensure(id.clone(), over, reply);
        match self.host.call(ask, Some(DEADLINE)).await {
            Ok(ractor::rpc::CallResult::Success(ensured)) => {
                ensured.map(Place::Here).map_err(|absent| match absent {
                    Absent::Quarantined(quarantined) => Failure::Quarantined(quarantined.reason),
                    Absent::Away => unavailable("the store was away"),
                })
            }
            Ok(_) | Err(_) => Err(Failure::Lost),
        }
    }

    /// Starts a conversation wherever it is to live.
    pub async fn start(&self, id: &ConversationId) -> Result<(), Failure> {
        let Place::There(member) = self.ensure_started(id).await? else { return Ok(()) };
        match self.cluster.ask(&member.process, Ask::Start { id: id.clone() }, DEADLINE).await {
            Ok(wire::Answer::Started) => Ok(()),
            _ => Err(unavailable("the node did not start it")),
        }
    }

    /// Whether nobody runs a conversation whose claim reads so.
    pub(crate) async fn is_orphan(&self, id: &ConversationId, holder: Option<Holder>) -> bool {
        let Some(holder) = holder else { return true };
        if holder == self.cluster.standing().me() {
            return self.table.get(id).is_none();
        }
        let alive = self.cluster.view().member(&holder).is_some();
        !alive && self.cluster.is_dead(&holder).await.unwrap_or(false)
    }

    /// How many model calls and tools run here.
    pub(crate) fn busy(&self) -> usize {
        self.deps.work.len()
    }

    /// The other nodes.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    fn remember(&self, id: &ConversationId, member: &Member) -> Place {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= CACHED {
            cache.clear();
        }
        cache.insert(id.clone(), member.holder.clone());
        Place::There(member.clone())
    }

    fn forget(&self, id: &ConversationId) {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// Whom it was found with before; the member says if it has it no more.
    fn cached(&self, id: &ConversationId) -> Option<Member> {
        let holder = self.cache.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()?;
        let view = self.cluster.view();
        view.member(&holder).filter(|member| view.reaches(member)).cloned()
    }

    /// A conversation as clients see it; never starts an actor. `None` if there is none.
    pub async fn snapshot(&self, id: &ConversationId) -> Result<Option<Snapshot>, Failure> {
        let held = self.holder(id).await?;
        let live = match &held {
            Some((_, Holds::Here)) => self.inspect(id).await,
            Some((_, Holds::There(member))) => self.inspect_there(member, id).await,
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
        let newest = newest.map(|definition| definition.revision.clone());
        Ok(Some(Snapshot::new(id.clone(), &state, overlay, newest)))
    }

    /// The holding of a conversation by a member that lives.
    async fn holder(&self, id: &ConversationId) -> Result<Option<(Holding, Holds)>, Failure> {
        let Some(held) = self.store.holding(id).await? else { return Ok(None) };
        let view = self.cluster.view();
        if held.holder == view.me {
            return Ok(Some((held, Holds::Here)));
        }
        let member = view.member(&held.holder).cloned();
        Ok(member.map(|member| (held, Holds::There(Box::new(member)))))
    }

    async fn inspect_there(&self, member: &Member, id: &ConversationId) -> Option<Inspection> {
        match self.cluster.ask(&member.process, Ask::Inspect { id: id.clone() }, GLANCE).await {
            Ok(wire::Answer::Inspected(live)) => live.map(|live| *live),
            Ok(_) | Err(_) => None,
        }
    }

    /// The state that the journal comes to.
    pub async fn stored(&self, id: &ConversationId) -> Result<Option<State>, Failure> {
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

    /// Who lives on this node.
    pub fn table(&self) -> &Table {
        &self.table
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

/// Puts a request into the mailbox of a live actor, and waits for what becomes of it.
async fn hand_in(
    handle: &Handle,
    request: Request,
    repeats: Vec<RepeatKey>,
) -> Result<Answered, Failure> {
    let (delivery, answer) = Delivery::new(request, repeats);
    if handle.depth.fetch_add(1, Ordering::Relaxed) >= DEPTH {
        handle.depth.fetch_sub(1, Ordering::Relaxed);
        return Err(Failure::Overloaded);
    }
    let cast = handle.actor.cast(ConversationMsg::Deliver(Box::new(delivery)));
    // A mailbox that is closing drops it, one that has closed returns it: either way it comes back.
    drop(cast);
    answer.await.map_err(|_| Failure::Lost)
}

fn unavailable(why: &str) -> Failure {
    Refusal::Unavailable(why.to_owned()).into()
}
