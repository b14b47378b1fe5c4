//! Deletes the conversations of a subject, again and again until none is found.

use std::collections::BTreeSet;

use abide_actors::request::{DeletionReason, Request, RequestError};
use abide_conversation::{ConversationId, Rejection, Scoped, Tenant};
use futures::{StreamExt, stream};

use super::eraser::{EraseError, Eraser};
use crate::erasure::{Erasure, ErasureStep};
use crate::store::{Direction, ListQuery};

/// The conversations of one step, after which the progress is stored.
const STEP_CONVERSATIONS: usize = 50;
/// How many of them are deleted at once: others use the cluster, too.
const MAX_CONCURRENT_DELETIONS: usize = 8;
/// How often the conversations are gone through while the subject makes more of them.
const MAX_PASSES: u32 = 16;

impl Eraser {
    /// Deletes some more conversations of the subject: one step finds them, and the next one deletes
    /// them. After a pass that has found none, the next step begins; after one in which something
    /// failed, another pass.
    pub(super) async fn delete_conversations(
        &self,
        tenant: &Tenant,
        erasure: &mut Erasure,
    ) -> Result<(), EraseError> {
        let Some(running) = erasure.progress() else { return Ok(()) };
        let found = std::mem::take(&mut running.deleting);
        if !found.is_empty() {
            return self.delete_found(tenant, erasure, found).await;
        }
        let query = owned_by(&running.subject, running.passes);
        let cursor = running.cursor.as_deref();
        let page = self.store.list(tenant, &query, cursor, STEP_CONVERSATIONS).await?;
        running.cursor = page.cursor;
        running.has_changed |= !page.items.is_empty();
        running.deleting = page.items.into_iter().map(|listed| listed.id.local()).collect();
        if running.deleting.is_empty() {
            erasure.end_page();
        }
        Ok(())
    }

    /// Deletes what was found. One that is gone was deleted by a node that died before it counted.
    async fn delete_found(
        &self,
        tenant: &Tenant,
        erasure: &mut Erasure,
        found: Vec<ConversationId>,
    ) -> Result<(), EraseError> {
        let found = found.into_iter().map(|id| Scoped::new(tenant, &id));
        let found: Vec<Scoped<ConversationId>> = found.collect();
        let mut blobs = BTreeSet::new();
        for id in &found {
            blobs.append(&mut self.blobs_of(id).await?);
        }
        let deletions = found.into_iter().map(|id| async move {
            let outcome = self.delete_conversation(&id).await;
            (id, outcome)
        });
        let deletions: Vec<_> =
            stream::iter(deletions).buffered(MAX_CONCURRENT_DELETIONS).collect().await;
        let mut failed = None;
        for (id, outcome) in deletions {
            match outcome {
                Ok(_) => erasure.note_deleted(&id.local()),
                Err(error) => failed = Some(error),
            }
        }
        erasure.report.deleted.blobs += self.count_missing(blobs).await?;
        match failed {
            Some(error) => {
                // The others of the page are deleted, and this one is found again in the next pass.
                if let Some(running) = erasure.progress() {
                    running.cursor = None;
                }
                Err(error.into())
            }
            None => {
                erasure.end_page();
                Ok(())
            }
        }
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
