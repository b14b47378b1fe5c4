//! Puts the alias into the journals of others' conversations that name the subject.

use abide_actors::journal::StoreError;
use abide_actors::request::{Reply, Request, RequestError};
use abide_conversation::erase::SubjectAlias;
use abide_conversation::{ConversationId, Rejection, Scoped, Seq, Tenant};
use futures::{StreamExt, stream};

use super::eraser::{EraseError, Eraser};
use crate::erasure::{Erasure, ErasureStep};
use crate::store::SummaryFilter;

/// The conversations of one step, after which the progress is stored: enough that what a step takes
/// by itself is little beside them.
const STEP_CONVERSATIONS: usize = 200;
/// How many of them are read at once: others use the store, too.
const MAX_CONCURRENT_READS: usize = 4;
/// How many events are read at once: each may be a megabyte.
const EVENT_PAGE_SIZE: usize = 64;

impl Eraser {
    /// Goes through some more conversations of the tenant. One that cannot be rewritten holds up none
    /// of the others: the pass goes on, and is repeated later.
    pub(super) async fn rewrite_others(
        &self,
        tenant: &Tenant,
        erasure: &mut Erasure,
    ) -> Result<(), EraseError> {
        let (Some(running), Some(alias)) = (erasure.running(), erasure.alias()) else {
            return Ok(());
        };
        let (filter, cursor) = (SummaryFilter::default(), running.cursor.clone());
        let mut problem = running.problem.clone().filter(|_| cursor.is_some());
        let page = self
            .store
            .conversations(tenant, &filter, cursor.as_deref(), STEP_CONVERSATIONS)
            .await?;
        // A list may not have shown all of the subject's own, and there may be new ones.
        let (own, others): (Vec<_>, Vec<_>) =
            page.items.into_iter().partition(|(_, it)| it.participants.is_owner(&alias.subject));
        for (id, _) in own {
            match self.delete_conversation(&id).await {
                Ok(true) => erasure.note_deleted(&id.local()),
                Ok(false) => {}
                Err(error) => problem = Some(format!("{}: {error}", id.local())),
            }
        }
        let alias = &alias;
        let rewrites = others.into_iter().map(|(id, _)| async move {
            let rewritten = self.rewrite_one(&id, alias).await;
            (id, rewritten)
        });
        let rewrites: Vec<_> =
            stream::iter(rewrites).buffer_unordered(MAX_CONCURRENT_READS).collect().await;
        for (id, rewritten) in rewrites {
            match rewritten {
                Ok(events) => {
                    erasure.report.rewritten.conversations += u64::from(events > 0);
                    erasure.report.rewritten.events += events;
                }
                Err(error) => problem = Some(format!("{}: {error}", id.local())),
            }
        }
        let Some(running) = erasure.progress() else { return Ok(()) };
        running.cursor = page.cursor;
        running.problem = problem.clone();
        match (running.cursor.is_some(), problem) {
            (true, _) => Ok(()),
            (false, None) => {
                erasure.go_on(ErasureStep::Things);
                Ok(())
            }
            // The conversations are gone through again: what is rewritten names the subject no more.
            (false, Some(problem)) => Err(EraseError::Left(problem)),
        }
    }

    /// Has the conversation rewritten if its journal names the subject. Returns how many events did.
    async fn rewrite_one(
        &self,
        id: &Scoped<ConversationId>,
        alias: &SubjectAlias,
    ) -> Result<u64, EraseError> {
        if !self.names(id, alias).await? {
            return Ok(0);
        }
        let request = Request::EraseSubject(alias.clone());
        match self.conversations.deliver(id, request, Vec::new()).await {
            Ok(Reply::SubjectErased { events }) => Ok(events),
            Ok(other) => Err(RequestError::Unavailable(format!("answered {other:?}")).into()),
            Err(RequestError::Rejected(Rejection::NotFound)) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the journal names the subject, which needs no actor to find out.
    async fn names(
        &self,
        id: &Scoped<ConversationId>,
        alias: &SubjectAlias,
    ) -> Result<bool, StoreError> {
        let mut after = Seq::ZERO;
        loop {
            let mut page = self.store.events(id, after, EVENT_PAGE_SIZE).await?;
            let Some(last) = page.last() else { return Ok(false) };
            after = last.seq;
            if page.iter_mut().any(|event| alias.apply(&mut event.data)) {
                return Ok(true);
            }
        }
    }
}
