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
    /// Deletes some more conversations of the subject. After a pass that has found none, the next
    /// step begins; after one in which something failed, another pass.
    pub(super) async fn delete_conversations(
        &self,
        tenant: &Tenant,
        erasure: &mut Erasure,
    ) -> Result<(), EraseError> {
        let Some(running) = erasure.running() else { return Ok(()) };
        let (query, cursor) = (owned_by(&running.subject, running.passes), running.cursor.clone());
        let page = self.store.list(tenant, &query, cursor.as_deref(), STEP_CONVERSATIONS).await?;
        let found = !page.items.is_empty();
        let mut blobs = BTreeSet::new();
        for listed in &page.items {
            blobs.append(&mut self.blobs_of(&listed.id).await?);
        }
        let deletions = page.items.into_iter().map(|listed| async move {
            let outcome = self.delete_conversation(&listed.id).await;
            (listed.id, outcome)
        });
        let deletions: Vec<_> =
            stream::iter(deletions).buffered(MAX_CONCURRENT_DELETIONS).collect().await;
        let mut failed = None;
        for (id, outcome) in deletions {
            match outcome {
                Ok(true) => erasure.note_deleted(&id.local()),
                Ok(false) => {}
                Err(error) => failed = Some(error),
            }
        }
        erasure.report.deleted.blobs += self.count_missing(blobs).await?;
        let Some(running) = erasure.progress() else { return Ok(()) };
        running.has_changed |= found;
        running.cursor = page.cursor;
        if let Some(error) = failed {
            // The others of the page are deleted, and this one is found again in the next pass.
            running.cursor = None;
            return Err(error.into());
        }
        if running.cursor.is_none() {
            running.passes = running.passes.saturating_add(1);
            // The first pass is that of the roots.
            let is_over = !running.has_changed && running.passes > 1;
            if is_over || running.passes >= MAX_PASSES {
                erasure.go_on(ErasureStep::Others);
            } else {
                running.begin_pass();
            }
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
