//! The router of a simulated node: find or start the actor, then deliver the request here or on
//! another node.

use std::rc::Rc;
use std::time::Duration;

use abide_actors::conversation::Origin;
use abide_actors::journal::Holder;
use abide_conversation::{ConversationId, Rejection, Scoped};
use abide_registry::membership::Member;
use abide_registry::placement::{Decision, PlacementRules, locate};
use abide_registry::store::Occupancy;

use crate::actor::{Ask, Delivery, Msg, Outcome, Request};
use crate::executor::OneShot;
use crate::host::{HostMsg, Live};
use crate::network::{Call, CallError, CallReply};
use crate::node::Node;

/// A request that takes longer is answered "unavailable".
pub const DEADLINE: Duration = Duration::from_millis(3_000);
/// How often a delivery looks for the next actor when the one that it found is ending.
const MAX_DELIVERY_ATTEMPTS: usize = 8;
/// How long to wait for a change of the cluster view before looking again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// The longest that a read of the store may take.
const READ: Duration = Duration::from_millis(1_500);

#[derive(Clone)]
pub enum Place {
    Here(Rc<Live>),
    There(Box<Member>),
}

type Failed = Outcome;

impl Node {
    /// Delivers a request to its conversation, and returns the outcome.
    pub async fn deliver(
        self: &Rc<Self>,
        id: &Scoped<ConversationId>,
        request: Request,
    ) -> Outcome {
        let known = self.lives_here(id) || self.cached(id).is_some();
        if !request.creates() && !known {
            match self.ask(READ, self.store.exists(id)).await {
                Ok(true) => {}
                Ok(false) => return self.first_reply(id, &request).await,
                Err(_) => return Outcome::Unavailable("the store is away"),
            }
        }
        match request.ask {
            Ask::Delete => self.delete(id, request).await,
            Ask::Act(_) | Ask::Fork(_) | Ask::Erase(_) => self.deliver_in_time(id, request).await,
        }
    }

    /// The reply to a request for a conversation that is not there: a repeated deletion gets the
    /// first reply.
    async fn first_reply(&self, id: &Scoped<ConversationId>, request: &Request) -> Outcome {
        let not_found = Outcome::Rejected(Rejection::NotFound);
        let Some(key) = &request.key else { return not_found };
        match self.ask(READ, self.store.stored_response(id, key)).await {
            Ok(first) => first.map_or(not_found, Outcome::Done),
            Err(_) => Outcome::Unavailable("the store is away"),
        }
    }

    /// Delivers a request that concerns no other conversation.
    pub async fn deliver_in_time(
        self: &Rc<Self>,
        id: &Scoped<ConversationId>,
        request: Request,
    ) -> Outcome {
        let delivered = self.deliver_whenever(id, request);
        let done = self.world.exec.within(self.ms(DEADLINE), delivered).await;
        done.unwrap_or(Outcome::Unavailable("the conversation took too long"))
    }

    async fn deliver_whenever(
        self: &Rc<Self>,
        id: &Scoped<ConversationId>,
        request: Request,
    ) -> Outcome {
        for _ in 0..MAX_DELIVERY_ATTEMPTS {
            let outcome = match self.ensure_started(id).await {
                Ok(Place::Here(live)) => self.hand_over(&live, request.clone()).await,
                Ok(Place::There(member)) => self.send(&member, id, request.clone()).await,
                Err(failed) => return failed,
            };
            if !matches!(outcome, Outcome::Untouched) {
                return outcome;
            }
        }
        Outcome::Unavailable("the conversation keeps moving")
    }

    /// Delivers a request through another node. A lost request is repeated if that is safe.
    async fn send(
        self: &Rc<Self>,
        member: &Member,
        id: &Scoped<ConversationId>,
        request: Request,
    ) -> Outcome {
        let seen = self.views.count();
        let repeatable = request.is_repeatable();
        let ask = Call::Deliver(id.clone(), Box::new(request));
        let answer = self.ask_node(&member.process, ask, DEADLINE).await;
        match answer {
            Ok(CallReply::Delivered(outcome)) if !matches!(outcome, Outcome::Untouched) => outcome,
            answer => {
                self.cache.borrow_mut().remove(id);
                if matches!(answer, Err(CallError::Lost)) && !repeatable {
                    return Outcome::Lost;
                }
                self.changed(seen, RETRY_INTERVAL).await;
                Outcome::Untouched
            }
        }
    }

    pub async fn hand_over(&self, live: &Rc<Live>, request: Request) -> Outcome {
        let reply = OneShot::new(&self.world.exec);
        live.cast(Msg::Deliver(Delivery::new(request, reply.clone())));
        reply.wait().await
    }

    /// Where the conversation is live, or is to be started.
    async fn ensure_started(self: &Rc<Self>, id: &Scoped<ConversationId>) -> Result<Place, Failed> {
        self.stay_sound().await?;
        if let Some(live) = self.live(id) {
            return Ok(Place::Here(live));
        }
        if let Some(member) = self.cached(id) {
            return Ok(Place::There(Box::new(member)));
        }
        let found = self.world.exec.within(self.ms(DEADLINE), self.find(id, false)).await;
        let found = found.unwrap_or(Err(Outcome::Unavailable("its holder cannot be reached")))?;
        found.ok_or(Outcome::Unavailable("no node takes conversations now"))
    }

    /// The actor on this node, for a caller on another node that expects it here; never forwards
    /// the call.
    pub async fn ensure_here(
        self: &Rc<Self>,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<Rc<Live>>, Failed> {
        self.stay_sound().await?;
        if let Some(live) = self.live(id) {
            return Ok(Some(live));
        }
        match self.find(id, true).await? {
            Some(Place::Here(live)) => Ok(Some(live)),
            Some(Place::There(_)) | None => Ok(None),
        }
    }

    async fn find(
        self: &Rc<Self>,
        id: &Scoped<ConversationId>,
        here: bool,
    ) -> Result<Option<Place>, Failed> {
        let mut confirmed_dead = None;
        loop {
            let seen = self.views.count();
            let view = self.seen();
            let occupancy = self.ask(READ, self.store.occupancy(id)).await;
            let Ok(occupancy) = occupancy else {
                return Err(Outcome::Unavailable("the store is away"));
            };
            let is_new = occupancy == Occupancy::New;
            let holder = occupancy.claim().map(|held| held.holder);
            let (policy, draining) = (self.world.policy, self.draining.get());
            let rules = PlacementRules { policy, only_here: here, draining };
            match locate(id, holder.as_ref(), confirmed_dead.as_ref(), &view, rules) {
                Decision::StartHere { replacing } => {
                    let origin = if is_new { Origin::New } else { replacing.into() };
                    return self.start_here(id, origin).await.map(Some);
                }
                Decision::HeldBy(member) => {
                    self.cache.borrow_mut().insert(id.clone(), member.holder.clone());
                    return Ok(Some(Place::There(Box::new(member))));
                }
                Decision::PlaceOn(member) => return Ok(Some(Place::There(Box::new(member)))),
                Decision::NoNode => return Ok(None),
                Decision::ConfirmDead(holder) => match self.is_dead(&holder).await {
                    Some(true) => confirmed_dead = Some(holder),
                    Some(false) => self.changed(seen, RETRY_INTERVAL).await,
                    None => return Err(Outcome::Unavailable("the store is away")),
                },
                Decision::AwaitView | Decision::AwaitLink(_) => {
                    self.changed(seen, RETRY_INTERVAL).await
                }
            }
        }
    }

    async fn stay_sound(&self) -> Result<(), Failed> {
        if !self.is_sound() {
            self.changed(self.views.count(), RETRY_INTERVAL).await;
        }
        if self.is_sound() {
            Ok(())
        } else {
            Err(Outcome::Unavailable("this node could not renew its lease"))
        }
    }

    async fn start_here(
        self: &Rc<Self>,
        id: &Scoped<ConversationId>,
        origin: Origin,
    ) -> Result<Place, Failed> {
        let reply = OneShot::new(&self.world.exec);
        self.cast(HostMsg::Ensure(id.clone(), origin, reply.clone()));
        let ensured = self.world.exec.within(self.ms(DEADLINE), reply.wait()).await;
        let live = ensured.flatten().ok_or(Outcome::Unavailable("the store was away"))?;
        Ok(Place::Here(live))
    }

    /// Starts a conversation on the node where it belongs. Returns whether it is live.
    pub async fn start_anywhere(self: &Rc<Self>, id: &Scoped<ConversationId>) -> bool {
        match self.ensure_started(id).await {
            Ok(Place::Here(_)) => true,
            Ok(Place::There(member)) => {
                let ask = Call::Start(id.clone());
                matches!(
                    self.ask_node(&member.process, ask, DEADLINE).await,
                    Ok(CallReply::Started)
                )
            }
            Err(_) => false,
        }
    }

    /// Whether a holder is dead; `None` if the store did not answer.
    pub async fn is_dead(&self, who: &Holder) -> Option<bool> {
        if self.dead.borrow().contains(who) {
            return Some(true);
        }
        let within = Duration::from_millis(crate::world::LEASE_MS);
        let dead = self.ask(within, self.store.declare_dead(who, false)).await.ok()?;
        if dead && self.dead.borrow_mut().insert(who.clone()) {
            self.view_doubts.change();
        }
        Some(dead)
    }

    /// Waits until the view has changed since `seen` was counted.
    pub async fn changed(&self, seen: u64, within: Duration) {
        self.view_doubts.change();
        self.world.exec.within(self.ms(within), self.views.after(seen)).await;
    }

    fn cached(&self, id: &Scoped<ConversationId>) -> Option<Member> {
        let holder = self.cache.borrow().get(id).cloned()?;
        let view = self.seen();
        view.member(&holder).filter(|member| view.reaches(member)).cloned()
    }
}
