//! Deletes a conversation with its files.

use std::collections::BTreeSet;

use abide_conversation::event::{Event, EventData, PlannedChildren};
use abide_conversation::parent::Parent;
use abide_conversation::{ConversationId, Rejection, Scoped, Seq, State, replay};

use super::not_done::NotDone;
use super::owe::near_notices;
use super::publish_at_root::publish_deletion_at_root;
use super::publish_inbox::publish_deletion_to_inboxes;
use super::{LiveConversation, STORE_TIMEOUT, with_store_timeout};
use crate::journal::{Journal, StoreError};
use crate::live::Signal;
use crate::recent_events::RecentEvents;
use crate::request::{
    DeletionCondition, DeletionReason, IdempotencyKey, Reply, Request, RequestError,
};
use crate::services::Services;
use crate::workspace::WorkspaceRef;

/// How many events are read at once: each may be a megabyte.
const EVENT_PAGE_SIZE: usize = 64;

impl LiveConversation {
    /// Deletes the conversation, which must have no children any more. The actor stays: the next
    /// request may create it anew.
    ///
    /// Nobody else writes to the conversation meanwhile. So once no call waits for a child, a child
    /// that is created late deletes itself, and one that is not there now never will be.
    pub(super) async fn delete(
        &mut self,
        keys: &[IdempotencyKey],
        reason: DeletionReason,
    ) -> Result<Reply, NotDone> {
        if !self.state.exists() {
            return Err(Rejection::NotFound.into());
        }
        if self.state.awaited_children().next().is_some() || self.has_children().await? {
            return Err(RequestError::ChildrenRemain.into());
        }
        self.erase(keys, reason).await.map_err(NotDone::Unknown)?;
        Ok(Reply::Deleted)
    }

    /// Deletes the conversation as [`delete`](Self::delete) does, if it meets the condition now: what
    /// was answered before keeps it.
    pub(super) async fn delete_if(
        &mut self,
        keys: &[IdempotencyKey],
        condition: DeletionCondition,
    ) -> Result<Reply, NotDone> {
        if self.state.exists() && !condition.is_met(&self.state, self.services.clock.now()) {
            return Ok(Reply::NotDue);
        }
        self.delete(keys, condition.reason()).await
    }

    /// Has the conversation deleted, whose own end has come. Its children go first, which takes
    /// messages to other conversations; the alarm rings until that is done.
    pub(super) fn end_of_its_time(&mut self) {
        if self.ending.as_ref().is_some_and(|ending| !ending.is_finished()) {
            return;
        }
        let (services, id) = (self.services.clone(), self.id.clone());
        self.ending = Some(tokio::spawn(async move {
            let request = Request::DeleteIf(DeletionCondition::Expired);
            if let Err(error) = services.conversations.deliver(&id, request).await {
                tracing::warn!(conversation = %id, %error, "expired conversation not deleted");
            }
        }));
    }

    async fn has_children(&self) -> Result<bool, StoreError> {
        let journal = &self.services.journal;
        for child in planned_children(journal.as_ref(), &self.id).await? {
            if !journal.events(&child, Seq::ZERO, 1).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Deletes a child that has done nothing yet if its parent is gone, or does not wait for it any
    /// more. Returns whether it did.
    pub(super) async fn delete_if_unawaited(&mut self) -> Result<bool, StoreError> {
        let parent = self.state.parent.as_ref().filter(|_| self.state.is_newborn_child()).cloned();
        match parent {
            // Boxed: most conversations have no parent.
            Some(parent) => Box::pin(self.delete_unless_awaited_by(&parent)).await,
            None => Ok(false),
        }
    }

    async fn delete_unless_awaited_by(&mut self, parent: &Parent) -> Result<bool, StoreError> {
        let parent_id = self.id.sibling(&parent.conversation_id);
        let stored = self.services.journal.load(&parent_id);
        let stored = with_store_timeout(stored).await?;
        let stored = stored.map(|stored| replay(stored.state, &stored.events)).unwrap_or_default();
        let id = self.id.local();
        let me = (&parent.call_id, &id);
        if stored.awaited_children().any(|awaited| awaited == me) {
            return Ok(false);
        }
        tracing::debug!(conversation = %self.id, "child deleted that nobody waits for");
        self.erase(&[], DeletionReason::Parent).await?;
        Ok(true)
    }

    /// Deletes what the store has of the conversation, and its files.
    pub(super) async fn erase(
        &mut self,
        keys: &[IdempotencyKey],
        reason: DeletionReason,
    ) -> Result<(), StoreError> {
        let response = self.responses(keys, &Reply::Deleted).pop();
        let owed = self.owed_for_deletion(reason).await?;
        let near_notices = near_notices(&owed);
        self.activities.abort_all();
        let journal = self.services.journal.clone();
        with_store_timeout(journal.delete(&self.id, &self.claim, response, owed)).await?;
        note_deletion(&self.id, reason);
        self.announce_notices(&near_notices);
        // The claim was deleted, too; the next request may create the conversation anew. Without a
        // new claim, such as on a store that is full, that request is fenced and its client told to
        // try again: the deletion is done, and must be answered.
        let me = self.services.lease.me();
        let before = std::mem::take(&mut self.state);
        match with_store_timeout(journal.claim(&self.id, &me, None)).await {
            Ok(claim) => {
                self.claim = claim;
                // The files come last: only the fenced write proves that they are this actor's to
                // delete, and only the claim that no new conversation uses them.
                if self.claim.holder == me {
                    discard_workspace(&self.services, &self.id, &before).await;
                }
            }
            Err(error) => {
                tracing::warn!(conversation = %self.id, %error, "deleted conversation not claimed");
            }
        }
        self.notify_session_end(&before);
        self.declared_tools = Default::default();
        self.progress_check.end();
        self.recent_events = RecentEvents::default();
        self.cached_seq = Seq::ZERO;
        self.activities.stream = Default::default();
        self.activities.progress = Default::default();
        self.waiters.fail_callers(&Rejection::NotFound.into());
        self.services.live.publish(&self.id, Signal::Deleted);
        publish_deletion_at_root(&*self.services.live, &self.id, &before);
        publish_deletion_to_inboxes(&*self.services.live, &self.id, &before);
        Ok(())
    }
}

/// Tells operators that a conversation was deleted, and why.
pub fn note_deletion(id: &Scoped<ConversationId>, reason: DeletionReason) {
    let reason = reason.as_str();
    metrics::counter!("abide_conversations_deleted_total", "reason" => reason).increment(1);
    tracing::info!(conversation = %id, reason, "conversation deleted");
}

/// All children that a conversation ever planned, but for those that are there and no children of it.
pub async fn planned_children(
    journal: &dyn Journal,
    id: &Scoped<ConversationId>,
) -> Result<BTreeSet<Scoped<ConversationId>>, StoreError> {
    let mut planned = PlannedChildren::default();
    let mut after = Seq::ZERO;
    loop {
        let page = with_store_timeout(journal.events(id, after, EVENT_PAGE_SIZE)).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        planned.add(&page);
    }
    let mut children = BTreeSet::new();
    for child in planned.into_ids() {
        let child = id.sibling(&child);
        if !is_of_another(journal, &child, id).await? {
            children.insert(child);
        }
    }
    Ok(children)
}

/// Whether a conversation is there and is no child of this one, which an imported journal may have
/// planned nevertheless. One that cannot be read is taken for a child.
async fn is_of_another(
    journal: &dyn Journal,
    child: &Scoped<ConversationId>,
    id: &Scoped<ConversationId>,
) -> Result<bool, StoreError> {
    let first = match with_store_timeout(journal.events(child, Seq::ZERO, 1)).await {
        Err(StoreError::Unreadable(_)) => return Ok(false),
        first => first?.pop(),
    };
    let Some(Event { data: EventData::Created(created), .. }) = first else { return Ok(false) };
    Ok(created.parent.is_none_or(|parent| parent.conversation_id != id.local()))
}

/// Discards the own files of a conversation that was deleted in this state, whether they were ever
/// journalled or not, so that a new conversation of the same id finds none. A child's files belong
/// to its root.
pub async fn discard_workspace(services: &Services, id: &Scoped<ConversationId>, deleted: &State) {
    if deleted.parent.is_some() {
        return;
    }
    let choice = match &deleted.agent {
        Some(agent) => services.agents.choose(agent, id).await.ok().flatten(),
        None => None,
    };
    // Whether a deleted agent had another root is unknown; the default one is taken.
    let default = WorkspaceRef { owner: id.to_string(), ..WorkspaceRef::default() };
    let workspace = choice.map_or(default, |choice| choice.definition.site(id));
    let storage = deleted.storages.get(&workspace.root_name()).cloned();
    let workspaces = services.workspaces.clone();
    let discarding =
        tokio::task::spawn_blocking(move || workspaces.discard(&workspace, storage.as_deref()));
    match tokio::time::timeout(STORE_TIMEOUT, discarding).await {
        Ok(Ok(Ok(Some(discarded)))) => {
            drop(tokio::task::spawn_blocking(|| discarded.remove()));
        }
        Ok(Ok(Ok(None))) => {}
        Ok(Ok(Err(why))) => {
            tracing::warn!(conversation = %id, %why, "workspace not discarded");
        }
        Ok(Err(_)) | Err(_) => {
            tracing::error!(conversation = %id, "workspace not discarded");
        }
    }
}
