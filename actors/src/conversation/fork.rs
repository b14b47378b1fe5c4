//! A conversation begins with another's prefix; whoever asked for it waits until that is whole.

use abide_conversation::command::Create;
use abide_conversation::event::{Event, EventData};
use abide_conversation::fork::Fork;
use abide_conversation::{Action, Rejection};
use ractor::ActorRef;

use super::requests::NotDone;
use super::{ConversationMsg, ExitReason, LiveConversation, in_time};
use crate::request::{
    DeliveryOutcome, ForkRequest, IdempotencyKey, Reply, ReplyPort, RequestError,
};

impl LiveConversation {
    /// Begins the copy; the answer comes when it is whole.
    pub(super) async fn fork(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        request: ForkRequest,
        (repeats, reply): (Vec<IdempotencyKey>, ReplyPort),
    ) -> Result<(), ExitReason> {
        match self.begin_fork(myself, request, &repeats).await {
            Ok(done) => self.when_whole(reply, done),
            Err(NotDone::Unsure(refusal)) => {
                let _ = reply.send(DeliveryOutcome::Failed(refusal.clone().into()));
                return Err(refusal.into());
            }
            Err(NotDone::Failed(failure)) => drop(reply.send(DeliveryOutcome::Failed(failure))),
            // No hook is asked about it.
            Err(NotDone::Asks(_)) => {}
        }
        Ok(())
    }

    /// Sends the answer at once, or when nothing is left to copy.
    pub(super) fn when_whole(&mut self, reply: ReplyPort, done: Reply) {
        match self.state.forking {
            Some(_) => self.forks.push((reply, done)),
            // Who asked may have gone.
            None => drop(reply.send(DeliveryOutcome::Done(done))),
        }
    }

    /// Answers those who wait for the copy, if it is whole now.
    pub(super) fn answer_forks(&mut self) {
        if self.state.forking.is_none() {
            for (reply, done) in self.forks.drain(..) {
                let _ = reply.send(DeliveryOutcome::Done(done));
            }
        }
    }

    async fn begin_fork(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        request: ForkRequest,
        repeats: &[IdempotencyKey],
    ) -> Result<Reply, NotDone> {
        if self.state.exists() {
            return Err(Rejection::ConversationExists.into());
        }
        let create = self.prefix(request).await?;
        let definition = self.newest(&create.agent).await?;
        let reply = Reply::Created {
            id: self.id.clone(),
            agent: create.agent.clone(),
            revision: definition.revision.clone(),
        };
        let decided = self.decide(Action::Create(create))?;
        let answers = self.remember(repeats, &reply);
        self.commit(myself, decided, answers).await.map_err(NotDone::Unsure)?;
        self.compile_own().await;
        Ok(reply)
    }

    /// What the copy begins with: the other's beginning, without its parent.
    async fn prefix(&self, request: ForkRequest) -> Result<Create, RequestError> {
        let ForkRequest { from, at_seq } = request;
        let journal = &self.deps.journal;
        let before = at_seq.map_or(u64::MAX, |at_seq| at_seq.saturating_add(1));
        let last = in_time(journal.events_before(&from, before, 1)).await?;
        let last = last.first().map_or(0, |event| event.seq);
        let first = in_time(journal.events(&from, 0, 1)).await?.pop();
        let Some(Event { data: EventData::Created(created), .. }) = first else {
            return Err(Rejection::NotFound.into());
        };
        if at_seq.is_some_and(|at_seq| at_seq != last) {
            let message = "must be the seq of an event of the conversation";
            return Err(RequestError::invalid("at_seq", message));
        }
        Ok(Create {
            agent: created.agent,
            assigns: created.assigns,
            metadata: created.metadata,
            tools: created.tools,
            parent: None,
            fork: Some(Fork { conversation_id: from, at_seq: last }),
        })
    }
}
