//! A conversation that begins with a copy of another's prefix; the reply waits for the whole copy.

use abide_conversation::command::Create;
use abide_conversation::event::{Created, Event, EventData};
use abide_conversation::fork::Fork;
use abide_conversation::{Action, Rejection, Seq};

use super::not_done::NotDone;
use super::{ExitReason, LiveConversation, with_store_timeout};
use crate::access::Access;
use crate::journal::ConversationSummary;
use crate::request::{
    DeletionReason, DeliveryOutcome, ForkRequest, Reply, ReplyPort, RequestContext, RequestError,
};

/// The events of a prefix that are read at once before the copy: each may be a megabyte.
const PAGE_EVENTS: usize = 64;

impl LiveConversation {
    /// Begins the copy; the reply follows when it is complete.
    pub(super) async fn fork(
        &mut self,
        request: ForkRequest,
        context: RequestContext,
        reply: ReplyPort,
    ) -> Result<(), ExitReason> {
        match self.begin_fork(request, &context).await {
            Ok(done) => self.reply_when_copied(reply, done),
            Err(NotDone::Unknown(error)) => {
                let _ = reply.send(DeliveryOutcome::Failed(error.clone().into()));
                return Err(error.into());
            }
            Err(NotDone::Failed(error)) => drop(reply.send(DeliveryOutcome::Failed(error))),
            // No hook is asked about a fork.
            Err(NotDone::AsksHooks(_)) => {}
        }
        Ok(())
    }

    /// Replies at once, or when nothing is left to copy.
    pub(super) fn reply_when_copied(&mut self, reply: ReplyPort, done: Reply) {
        if self.state.forking.is_some() {
            self.waiters.add_fork(reply, done);
        } else {
            // The caller may be gone.
            let _ = reply.send(DeliveryOutcome::Done(done));
        }
    }

    /// Deletes a fork whose original is gone before all of its prefix was copied: nobody is to take what
    /// there is for the whole. Who waits for it learns that the original is not there.
    pub(super) async fn undo_fork(&mut self) -> Result<(), ExitReason> {
        if self.state.forking.is_some() {
            tracing::info!(conversation = %self.id, "fork deleted whose original is gone");
            self.erase(&[], DeletionReason::Original).await?;
        }
        Ok(())
    }

    async fn begin_fork(
        &mut self,
        request: ForkRequest,
        context: &RequestContext,
    ) -> Result<Reply, NotDone> {
        let create = self.create_from_prefix(request, &context.access).await?;
        if self.state.exists() {
            return Err(Rejection::ConversationExists.into());
        }
        self.require_readable(create.fork.as_ref()).await?;
        let definition = self.next_definition(&create.agent).await?;
        let reply = Reply::Created {
            id: self.id.local(),
            agent: create.agent.clone(),
            revision: definition.revision.clone(),
        };
        let transition = self.decide(Action::Create(create))?;
        let responses = self.responses(&context.idempotency_keys, &reply);
        self.commit(transition, responses).await.map_err(NotDone::Unknown)?;
        self.compile_client_tools().await;
        Ok(reply)
    }

    /// Refuses a prefix of which something cannot be read before anything of the fork is stored: a
    /// copy that cannot end would be a conversation that nobody can use.
    async fn require_readable(&self, fork: Option<&Fork>) -> Result<(), RequestError> {
        let Some(Fork { conversation_id, at_seq, .. }) = fork else { return Ok(()) };
        let original = self.id.sibling(conversation_id);
        let mut after = Seq::ZERO;
        while after < *at_seq {
            let left = usize::try_from(at_seq.since(after)).unwrap_or(usize::MAX);
            let page = self.services.journal.events(&original, after, PAGE_EVENTS.min(left));
            let Some(last) = with_store_timeout(page).await?.pop() else {
                return Err(Rejection::NotFound.into());
            };
            after = last.seq;
        }
        Ok(())
    }

    /// What the fork is created with: the settings of the original, without its parent.
    ///
    /// The fork belongs to those to whom the original belongs now; the request is judged by it.
    async fn create_from_prefix(
        &self,
        request: ForkRequest,
        access: &Access,
    ) -> Result<Create, RequestError> {
        let ForkRequest { from, at_seq } = request;
        let journal = &self.services.journal;
        let original = self.id.sibling(&from);
        let before = at_seq.map_or(Seq::MAX, Seq::next);
        let newest = with_store_timeout(journal.events_before(&original, before, 1)).await?;
        let last_seq = newest.first().map_or(Seq::ZERO, |event| event.seq);
        let first = with_store_timeout(journal.events(&original, Seq::ZERO, 1)).await?.pop();
        let summary = with_store_timeout(journal.summary(&original)).await?;
        let (Some(Event { data: EventData::Created(created), at: first_at, .. }), Some(summary)) =
            (first, summary)
        else {
            return Err(Rejection::NotFound.into());
        };
        let Created { agent, assigns, metadata, tools, .. } = created;
        let ConversationSummary { participants, created_at, .. } = summary;
        access.check(&participants, Some(created_at))?;
        if at_seq.is_some_and(|at_seq| at_seq != last_seq) {
            let message = "must be the seq of an event of the conversation";
            return Err(RequestError::invalid("at_seq", message));
        }
        Ok(Create {
            agent,
            assigns,
            metadata,
            tools,
            parent: None,
            fork: Some(Fork {
                conversation_id: from,
                at_seq: last_seq,
                created_at: Some(first_at),
            }),
            title: None,
            // The fork is a new conversation, which its owner may keep for longer.
            expires_at: None,
            participants,
        })
    }
}
