//! The network between simulated nodes, which delays calls, loses them, or loses their replies.

use std::rc::Rc;
use std::time::Duration;

use abide_conversation::{ConversationId, Scoped, Timestamp};
use abide_registry::member::ProcessId;
use abide_registry::membership::LinkState;

use crate::actor::{Outcome, Request};
use crate::executor::{OneShot, either};
use crate::mutation::Mutation;
use crate::node::Node;

/// A call from one node to another.
#[derive(Clone)]
pub enum Call {
    Deliver(Scoped<ConversationId>, Box<Request>),
    Start(Scoped<ConversationId>),
}

/// The reply to a call.
pub enum CallReply {
    Delivered(Outcome),
    Started,
    /// The call was not carried out.
    NotHere,
}

/// Why a call got no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    Unconnected,
    Full,
    Lost,
}

impl Node {
    /// Calls another process, and waits for its reply for at most `within`.
    pub async fn ask_node(
        self: &Rc<Self>,
        process: &ProcessId,
        mut ask: Call,
        within: Duration,
    ) -> Result<CallReply, CallError> {
        if self.links.borrow().get(process) != Some(&LinkState::Connected) {
            return Err(CallError::Unconnected);
        }
        let world = self.world.clone();
        if world.mutation == Some(Mutation::NetworkForgetsTenant)
            && let Call::Deliver(id, _) = &mut ask
        {
            *id = Scoped::parse(id.local().as_str()).unwrap();
        }
        let exec = world.exec.clone();
        let deadline = self.now().checked_add(within).unwrap_or(Timestamp::MAX);
        let accident = world.percent(world.accident_percent.get());
        let accident_kind = if accident { world.below(5) } else { 9 };
        if accident_kind == 0 {
            return Err(CallError::Full);
        }
        let (mut before, after) = (world.below(10), world.below(10));
        if accident_kind == 1 {
            before += world.below(5_000);
        }
        let repeatable = match &ask {
            Call::Deliver(_, request) => request.is_repeatable(),
            Call::Start(_) => true,
        };
        let twice = accident_kind == 4 && repeatable
            || world.mutation == Some(Mutation::NetworkCarriesTwice);
        let (answer, to) = (OneShot::new(&exec), process.clone());
        if accident_kind != 2 {
            let (sender, call) = (answer.clone(), ask.clone());
            carry(self.clone(), to.clone(), call, deadline, before, move |done| {
                (accident_kind != 3).then(|| sender.send((done, after)));
            });
        }
        if twice {
            let again = before + world.below(2_000);
            carry(self.clone(), to, ask, deadline, again, |_| {});
        }
        let answered = async {
            let (done, after) = answer.wait().await;
            exec.sleep(after).await;
            done
        };
        let lost = either(self.disconnected(process), self.removed(process));
        match exec.within(self.ms(within), either(answered, lost)).await {
            Some(Ok(done)) => Ok(done),
            Some(Err(_)) | None => Err(CallError::Lost),
        }
    }

    /// Returns when the connection ends.
    async fn disconnected(&self, process: &ProcessId) {
        loop {
            let seen = self.heartbeat_inputs.count();
            if self.links.borrow().get(process) != Some(&LinkState::Connected) {
                return;
            }
            self.heartbeat_inputs.after(seen).await;
        }
    }

    /// Returns when a process has ceased to be a member; a process that is not yet a member may
    /// become one.
    async fn removed(&self, process: &ProcessId) {
        let mut was_member = false;
        loop {
            let seen = self.views.count();
            let is_member = self.seen().all().any(|member| member.process == *process);
            if was_member && !is_member {
                return;
            }
            was_member |= is_member;
            self.views.after(seen).await;
        }
    }

    /// Carries out a call from another node.
    async fn serve(self: Rc<Self>, ask: Call, deadline: Timestamp) -> CallReply {
        let remaining = Duration::try_from(deadline.duration_since(self.now())).unwrap_or_default();
        if remaining.is_zero() {
            return CallReply::NotHere;
        }
        let (Call::Deliver(id, _) | Call::Start(id)) = &ask;
        let ensured = self.world.exec.within(self.ms(remaining), self.ensure_here(id)).await;
        match (ask, ensured) {
            (Call::Deliver(_, request), Some(Ok(Some(live)))) => {
                CallReply::Delivered(self.hand_over(&live, *request).await)
            }
            (Call::Deliver(..), Some(Err(failed))) => CallReply::Delivered(failed),
            (Call::Start(_), Some(Ok(Some(_)))) => CallReply::Started,
            (_, _) => CallReply::NotHere,
        }
    }
}

/// Carries a call to a process, if that runs when the call arrives, even when nobody waits for the
/// reply.
fn carry(
    from: Rc<Node>,
    to: ProcessId,
    ask: Call,
    deadline: Timestamp,
    before: u64,
    answer: impl FnOnce(CallReply) + 'static,
) {
    let world = from.world.clone();
    let exec = world.exec.clone();
    world.exec.clone().spawn(None, async move {
        exec.sleep(before).await;
        // No reply tells the caller that the process is gone.
        let Some(node) = world.process(&to).filter(|node| node.alive.get()) else { return };
        let served = node.clone();
        node.spawn(async move { answer(served.serve(ask, deadline).await) });
    });
}
