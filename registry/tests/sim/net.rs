//! The network between simulated nodes: calls are late, lost, or carried out without an answer.

use std::rc::Rc;
use std::time::Duration;

use abide_conversation::{Action, ConversationId, Timestamp};
use abide_registry::membership::LinkState;

use crate::actor::{Outcome, Request};
use crate::broken::Broken;
use crate::exec::{Once, either};
use crate::node::Node;

/// What one node asks of another.
#[derive(Clone)]
pub enum Ask {
    Deliver(ConversationId, Box<Request>),
    Start(ConversationId),
}

/// What it answers.
pub enum Answer {
    Delivered(Outcome),
    Started,
    /// Nothing was done.
    NotHere,
}

/// Why a call was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreached {
    Unconnected,
    Full,
    Lost,
}

impl Node {
    /// Asks another process, and waits for at most so long.
    pub async fn ask_node(
        self: &Rc<Self>,
        process: &str,
        ask: Ask,
        within: Duration,
    ) -> Result<Answer, Unreached> {
        if self.links.borrow().get(process) != Some(&LinkState::Connected) {
            return Err(Unreached::Unconnected);
        }
        let world = self.world.clone();
        let exec = world.exec.clone();
        let deadline = self.now().checked_add(within).unwrap_or(Timestamp::MAX);
        let accident = world.percent(world.rough.get());
        let kind = if accident { world.below(5) } else { 9 };
        if kind == 0 {
            return Err(Unreached::Full);
        }
        let (mut before, after) = (world.below(10), world.below(10));
        if kind == 1 {
            before += world.below(5_000);
        }
        let repeatable = match &ask {
            Ask::Deliver(_, request) => request.key.is_some() || request.action == Action::Wake,
            Ask::Start(_) => true,
        };
        let twice = kind == 4 && repeatable || world.broken == Some(Broken::CarriedTwice);
        let (answer, to) = (Once::new(&exec), process.to_owned());
        if kind != 2 {
            let (told, asked) = (answer.clone(), ask.clone());
            carry(self.clone(), to.clone(), asked, deadline, before, move |done| {
                (kind != 3).then(|| told.tell((done, after)));
            });
        }
        if twice {
            let again = before + world.below(2_000);
            carry(self.clone(), to, ask, deadline, again, |_| {});
        }
        let answered = async {
            let (done, after) = answer.told().await;
            exec.sleep(after).await;
            done
        };
        let lost = either(self.disconnected(process), self.gone(process));
        match exec.within(self.ms(within), either(answered, lost)).await {
            Some(Ok(done)) => Ok(done),
            Some(Err(_)) | None => Err(Unreached::Lost),
        }
    }

    /// Returns when the connection ends.
    async fn disconnected(&self, process: &str) {
        loop {
            let seen = self.around.count();
            if self.links.borrow().get(process) != Some(&LinkState::Connected) {
                return;
            }
            self.around.after(seen).await;
        }
    }

    /// Returns when a process is no member any more; one that is not yet may become one.
    async fn gone(&self, process: &str) {
        let mut was = false;
        loop {
            let seen = self.views.count();
            let is = self.seen().all().any(|member| member.process == process);
            if was && !is {
                return;
            }
            was |= is;
            self.views.after(seen).await;
        }
    }

    /// Answers a call of another node.
    async fn serve(self: Rc<Self>, ask: Ask, deadline: Timestamp) -> Answer {
        let left = Duration::try_from(deadline.duration_since(self.now())).unwrap_or_default();
        if left.is_zero() {
            return Answer::NotHere;
        }
        let (Ask::Deliver(id, _) | Ask::Start(id)) = &ask;
        let ensured = self.world.exec.within(self.ms(left), self.ensure_here(id)).await;
        match (ask, ensured) {
            (Ask::Deliver(_, request), Some(Ok(Some(live)))) => {
                Answer::Delivered(self.hand_in(&live, *request).await)
            }
            (Ask::Deliver(..), Some(Err(failed))) => Answer::Delivered(failed),
            (Ask::Start(_), Some(Ok(Some(_)))) => Answer::Started,
            (_, _) => Answer::NotHere,
        }
    }
}

/// Takes a call to a process, if that is there when it arrives, whoever waits for it still.
fn carry(
    from: Rc<Node>,
    to: String,
    ask: Ask,
    deadline: Timestamp,
    before: u64,
    answer: impl FnOnce(Answer) + 'static,
) {
    let world = from.world.clone();
    let exec = world.exec.clone();
    world.exec.clone().spawn(None, async move {
        exec.sleep(before).await;
        // Nobody says that nobody is there.
        let Some(node) = world.process(&to).filter(|node| node.alive.get()) else { return };
        let served = node.clone();
        node.spawn(async move { answer(served.serve(ask, deadline).await) });
    });
}
