//! A conversation and its children, grandchildren and so on.

use std::collections::BTreeSet;

use abide_actors::child_calls::{ChildCalls, DescendantCalls};
use abide_actors::conversation;
use abide_actors::request::{DeletionReason, Request, RequestError, UpdateRequest};
use abide_conversation::command::ChildEnded;
use abide_conversation::message::{ErrorType, Outcome};
use abide_conversation::{CallId, ConversationId, Principal, Rejection, Scoped, State};
use futures::future::try_join_all;

use super::ConversationRouter;

/// How many conversations of a tree are visited: 16 children each, 5 levels deep, could be a
/// million.
const MAX_DESCENDANTS: usize = 1_000;
/// How many descendants a snapshot reads: the children that one root may have at once, and theirs.
const MAX_SHOWN_DESCENDANTS: usize = 256;
/// A snapshot reads no further level of descendants when it has this many of their calls.
const MAX_SHOWN_CALLS: usize = 256;
/// How many descendants are read at a time.
const MAX_CONCURRENT_READS: usize = 8;

impl ConversationRouter {
    /// The conversation, its children that answer open calls now, and theirs, as far as the store
    /// knows; at most 1,000.
    pub async fn with_descendants(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Vec<Scoped<ConversationId>>, RequestError> {
        let mut tree = vec![id.clone()];
        let mut next = 0;
        while let Some(member) = tree.get(next).cloned() {
            if let Some(state) = self.stored_state(&member).await? {
                tree.extend(open_children(&member, &state));
                tree.truncate(MAX_DESCENDANTS);
            }
            next += 1;
        }
        Ok(tree)
    }

    /// What the descendants of a root wait for, as far as the store knows; nothing for a child.
    /// Without children that answer open calls, nothing is read.
    pub(super) async fn descendant_calls(
        &self,
        id: &Scoped<ConversationId>,
        root: &State,
    ) -> Result<DescendantCalls, RequestError> {
        let mut found = DescendantCalls { calls: Vec::new(), is_complete: true };
        let mut level = if root.parent.is_none() { open_children(id, root) } else { Vec::new() };
        let mut open_calls = 0;
        while !level.is_empty() {
            let room = if open_calls < MAX_SHOWN_CALLS {
                MAX_SHOWN_DESCENDANTS.saturating_sub(found.calls.len())
            } else {
                0
            };
            found.is_complete &= level.len() <= room;
            level.truncate(room);
            let mut states = Vec::with_capacity(level.len());
            for ids in level.chunks(MAX_CONCURRENT_READS) {
                let mut reads = Vec::with_capacity(ids.len());
                for id in ids {
                    reads.push(self.stored_state(id));
                }
                states.extend(try_join_all(reads).await?);
            }
            // A child that its parent has journalled may not exist yet.
            let states: Vec<State> = states.into_iter().map(Option::unwrap_or_default).collect();
            let calls =
                level.iter().zip(&states).map(|(id, state)| ChildCalls::new(id.local(), state));
            found.calls.extend(calls);
            open_calls = found.calls.iter().map(|calls| calls.pending.len()).sum();
            level = states.iter().flat_map(|state| open_children(id, state)).collect();
        }
        Ok(found)
    }

    /// Has a child that is about to be deleted fail its parent's call, so that the parent does not
    /// wait for it in vain.
    pub(super) async fn report_deletion_to_parent(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<(), RequestError> {
        let Some(state) = self.stored_state(id).await? else { return Ok(()) };
        let awaited =
            state.owed_report.is_some() || state.turns_started <= 1 && state.turn.is_some();
        let Some(parent) = state.parent.as_ref().filter(|_| awaited) else { return Ok(()) };
        let ended = child_deleted(parent.call_id.clone(), id.local(), &state);
        match Box::pin(self.deliver(&id.sibling(&parent.conversation_id), ended, Vec::new())).await
        {
            // The parent waits no longer, or is gone.
            Ok(_) | Err(RequestError::Rejected(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Deletes all children that a conversation ever had, since they belong to it, after it has
    /// stopped waiting for them. Returns them.
    ///
    /// They are deleted for the reason of their root: it is what the receiver of a notice asks, and
    /// nodes of every version then understand the deletion of children by hand.
    pub(super) async fn delete_children(
        &self,
        id: &Scoped<ConversationId>,
        reason: DeletionReason,
    ) -> Result<BTreeSet<Scoped<ConversationId>>, RequestError> {
        let children = conversation::planned_children(self.store.as_ref(), id).await?;
        if !children.is_empty() {
            self.stop_awaiting_children(id).await?;
            self.delete_all(&children, reason).await?;
        }
        Ok(children)
    }

    /// Ends the turn and the dispatches that wait for children.
    async fn stop_awaiting_children(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<(), RequestError> {
        self.deliver_if_able(id, Request::Cancel).await?;
        let Some(state) = self.stored_state(id).await? else { return Ok(()) };
        for (call, child) in state.awaited_children() {
            let ended = child_deleted(call.clone(), child.clone(), &State::default());
            self.deliver_if_able(id, ended).await?;
        }
        Ok(())
    }

    /// Delivers a request that comes too late if the conversation is quarantined, so that nothing of
    /// it runs, or if it is gone or has gone on.
    async fn deliver_if_able(
        &self,
        id: &Scoped<ConversationId>,
        request: Request,
    ) -> Result<(), RequestError> {
        match Box::pin(self.deliver(id, request, Vec::new())).await {
            Ok(_) | Err(RequestError::Rejected(_) | RequestError::Quarantined(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Gives all children that a conversation ever had its own members. Whoever repeats the request
    /// when it fails goes on where it ended.
    pub(super) async fn update_members_of_children(
        &self,
        id: &Scoped<ConversationId>,
        by: &Principal,
    ) -> Result<(), RequestError> {
        let children = conversation::planned_children(self.store.as_ref(), id).await?;
        let mut given = None;
        while !children.is_empty() {
            // What somebody else wrote meanwhile must not be replaced by what was there before.
            let Some(summary) = self.store.summary(id).await? else { return Ok(()) };
            let members = Some(summary.participants.members);
            if members == given {
                break;
            }
            for child in &children {
                let (members, by) = (members.clone(), by.clone());
                let update =
                    UpdateRequest { metadata: None, members, title: None, expires_at: None, by };
                self.deliver_if_able(child, Request::Update(update)).await?;
            }
            given = members;
        }
        Ok(())
    }

    /// Deletes those of these conversations that exist.
    pub(super) async fn delete_all(
        &self,
        ids: &BTreeSet<Scoped<ConversationId>>,
        reason: DeletionReason,
    ) -> Result<(), RequestError> {
        for id in ids {
            match Box::pin(self.deliver(id, Request::delete(reason), Vec::new())).await {
                Ok(_) | Err(RequestError::Rejected(Rejection::NotFound)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Tells a parent that a child in this state was deleted.
fn child_deleted(call: CallId, child: ConversationId, deleted: &State) -> Request {
    let reason = "sub_agent_failed: its conversation was deleted".to_owned();
    Request::ChildEnded(Box::new(ChildEnded {
        call,
        child,
        outcome: Outcome::Err(reason, ErrorType::ToolError),
        ui: None,
        usage: deleted.usage,
        storages: deleted.storages.clone(),
    }))
}

/// The children of a conversation, or of another of its tenant, that answer open calls now.
fn open_children(id: &Scoped<ConversationId>, state: &State) -> Vec<Scoped<ConversationId>> {
    state.awaited_children().map(|(_, child)| id.sibling(child)).collect()
}
