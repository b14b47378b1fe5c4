//! Deletes a conversation with its files.

use std::sync::Arc;

use abide_conversation::{ConversationId, Rejection, Seq, State};

use super::not_done::NotDone;
use super::publish_at_root::publish_deletion_at_root;
use super::{LiveConversation, STORE_TIMEOUT, with_store_timeout};
use crate::live::Signal;
use crate::recent_events::RecentEvents;
use crate::request::{IdempotencyKey, Reply};
use crate::services::Services;
use crate::workspace::WorkspaceRef;

impl LiveConversation {
    /// Deletes the conversation. The actor stays: the next request may create it anew.
    pub(super) async fn delete(&mut self, keys: &[IdempotencyKey]) -> Result<Reply, NotDone> {
        if !self.state.exists() {
            return Err(Rejection::NotFound.into());
        }
        let response = self.responses(keys, &Reply::Deleted).pop();
        self.activities.abort_all();
        let journal = self.services.journal.clone();
        let deletion = with_store_timeout(journal.delete(&self.id, &self.claim, response)).await;
        deletion.map_err(NotDone::Unknown)?;
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
        self.client_tools = Arc::default();
        self.progress_check.end();
        self.recent_events = RecentEvents::default();
        self.cached_seq = Seq::ZERO;
        self.activities.stream = Default::default();
        self.activities.progress = Default::default();
        self.waiters.fail_callers(&Rejection::NotFound.into());
        self.services.live.publish(&self.id, Signal::Deleted);
        publish_deletion_at_root(&*self.services.live, &self.id, &before);
        Ok(Reply::Deleted)
    }

    /// Deletes a child that was created just now if its parent is gone. Whoever deletes a parent
    /// deletes its children afterwards, too, so that one of both sees what the other has done.
    pub(super) async fn delete_without_parent(&mut self) -> Result<(), NotDone> {
        let Some(parent) = &self.state.parent else { return Ok(()) };
        let journal = self.services.journal.clone();
        let first = journal.events(&parent.conversation_id, Seq::ZERO, 1);
        let first = with_store_timeout(first).await.map_err(NotDone::Unknown)?;
        if first.is_empty() {
            self.delete(&[]).await?;
            return Err(Rejection::NotFound.into());
        }
        Ok(())
    }
}

/// Discards the own files of a conversation that was deleted in this state, whether they were ever
/// journalled or not, so that a new conversation of the same id finds none. A child's files belong
/// to its root.
pub async fn discard_workspace(services: &Services, id: &ConversationId, deleted: &State) {
    if deleted.parent.is_some() {
        return;
    }
    let definition = match &deleted.agent {
        Some(agent) => services.agents.newest(agent).await.ok().flatten(),
        None => None,
    };
    // Whether a deleted agent had another root is unknown; the default one is taken.
    let default = WorkspaceRef { owner: id.to_string(), ..WorkspaceRef::default() };
    let workspace = definition.map_or(default, |definition| definition.site(id));
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
