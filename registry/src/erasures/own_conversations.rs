//! Deletes the conversations of a subject, again and again until none is found.

use std::collections::BTreeSet;

use abide_actors::request::{DeletionReason, Request, RequestError};
use abide_conversation::{ConversationId, Rejection, Scoped, Tenant};
use futures::{StreamExt, stream};

use super::eraser::{EraseError, Eraser};
use crate::erasure::{Erasure, ErasureStep, NotedBlobs};
use crate::store::{Direction, ListQuery};

/// The conversations of one step, after which the progress is stored.
const STEP_CONVERSATIONS: usize = 50;
/// How many of them are deleted at once: others use the cluster, too.
const MAX_CONCURRENT_DELETIONS: usize = 8;
/// How many blobs of several conversations are noted at once: the progress is stored with each
/// step.
const MAX_NOTED_BLOBS: usize = 1_000;
/// How often the conversations are gone through while the subject makes more of them.
const MAX_PASSES: u32 = 16;

impl Eraser {
    /// Deletes some more conversations of the subject: one step finds them and notes their blobs,
    /// and the next one deletes them. After a pass that has found none, the next step begins; after
    /// one in which something failed, another pass.
    pub(super) async fn delete_conversations(
        &self,
        tenant: &Tenant,
        erasure: &mut Erasure,
    ) -> Result<(), EraseError> {
        let Some(running) = erasure.progress() else { return Ok(()) };
        if let Some(noted) = running.noted.clone() {
            return self.delete_noted(tenant, erasure, noted).await;
        }
        if running.deleting.is_empty() {
            let query = owned_by(&running.subject, running.passes);
            let cursor = running.cursor.as_deref();
            let page = self.store.list(tenant, &query, cursor, STEP_CONVERSATIONS).await?;
            running.cursor = page.cursor;
            running.has_changed |= !page.items.is_empty();
            running.deleting = page.items.into_iter().map(|listed| listed.id.local()).collect();
        }
        if running.deleting.is_empty() {
            erasure.end_page();
        } else {
            running.noted = Some(self.note_blobs(tenant, &running.deleting).await?);
        }
        Ok(())
    }

    /// Notes the blobs of the first of these conversations: of as many as the progress has room
    /// for, and of one at least.
    async fn note_blobs(
        &self,
        tenant: &Tenant,
        found: &[ConversationId],
    ) -> Result<NotedBlobs, EraseError> {
        let (mut conversations, mut blobs) = (0, BTreeSet::new());
        for id in found {
            let of_next = self.blobs_of(&Scoped::new(tenant, id)).await?;
            if conversations > 0 && blobs.len() + of_next.len() > MAX_NOTED_BLOBS {
                break;
            }
            blobs.extend(of_next);
            conversations += 1;
        }
        Ok(NotedBlobs { conversations, blobs: blobs.into_iter().collect() })
    }

    /// Deletes the conversations whose blobs were noted. One that is gone was deleted by a node
    /// that died before it counted.
    async fn delete_noted(
        &self,
        tenant: &Tenant,
        erasure: &mut Erasure,
        noted: NotedBlobs,
    ) -> Result<(), EraseError> {
        let Some(running) = erasure.running() else { return Ok(()) };
        let count = noted.conversations.min(running.deleting.len());
        let found: Vec<Scoped<ConversationId>> =
            running.deleting.iter().take(count).map(|id| Scoped::new(tenant, id)).collect();
        let deletions = found.into_iter().map(|id| async move {
            let outcome = self.delete_conversation(&id).await;
            (id, outcome)
        });
        let deletions: Vec<_> =
            stream::iter(deletions).buffered(MAX_CONCURRENT_DELETIONS).collect().await;
        let (mut deleted, mut failed) = (Vec::new(), None);
        for (id, outcome) in deletions {
            match outcome {
                Ok(_) => deleted.push(id),
                Err(error) => failed = Some(error),
            }
        }
        // If they cannot be counted now, all of this is done again.
        let gone = self.count_gone(tenant, &noted.blobs, &deleted).await?;
        erasure.report.deleted.blobs += gone;
        for id in deleted {
            erasure.note_deleted(&id.local());
        }
        let Some(running) = erasure.progress() else { return Ok(()) };
        running.noted = None;
        running.deleting.drain(..count);
        if let Some(error) = failed {
            // The others are deleted, and this one is found again from the first page on.
            running.cursor = None;
            running.deleting.clear();
            return Err(error.into());
        }
        if running.deleting.is_empty() {
            erasure.end_page();
        }
        Ok(())
    }

    /// Returns whether there was a conversation to delete.
    pub(super) async fn delete_conversation(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<bool, RequestError> {
        let request = Request::delete(DeletionReason::Erasure);
        match self.conversations.deliver(id, request, Vec::new()).await {
            Ok(_) => Ok(true),
            Err(RequestError::Rejected(Rejection::NotFound)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Ends the erasure unless the subject has made conversations meanwhile. Whoever goes on making
    /// them is not waited for: the report counts what is there then.
    pub(super) async fn look_again(
        &self,
        tenant: &Tenant,
        erasure: &mut Erasure,
    ) -> Result<(), EraseError> {
        let Some(running) = erasure.running() else { return Ok(()) };
        let (passes, query) = (running.passes, owned_by(&running.subject, running.passes));
        let page = self.store.list(tenant, &query, None, STEP_CONVERSATIONS).await?;
        if page.items.is_empty() || passes >= MAX_PASSES {
            erasure.report.made_since = page.items.len() as u64;
            erasure.forget_subject();
        } else {
            erasure.go_on(ErasureStep::Conversations);
        }
        Ok(())
    }
}

impl Erasure {
    /// Ends a page of the subject's conversations, and with the last one the pass.
    fn end_page(&mut self) {
        let Some(running) = self.progress() else { return };
        if running.cursor.is_some() {
            return;
        }
        running.passes = running.passes.saturating_add(1);
        // The first pass is that of the roots.
        let is_over = !running.has_changed && running.passes > 1;
        if is_over || running.passes >= MAX_PASSES {
            self.go_on(ErasureStep::Others);
        } else {
            running.begin_pass();
        }
    }
}

/// The conversations of the subject, the oldest first. Children go with their roots, so that the first
/// pass looks for roots alone.
fn owned_by(subject: &str, passes: u32) -> ListQuery {
    ListQuery {
        owner: Some(subject.to_owned()),
        root_only: passes == 0,
        direction: Direction::Ascending,
        ..ListQuery::default()
    }
}
