//! A conversation and those that it asks, however deep.

use std::collections::BTreeSet;

use abide_actors::request::{Request, RequestError};
use abide_conversation::command::ChildEnded;
use abide_conversation::event::EventData;
use abide_conversation::message::{ErrorType, Outcome};
use abide_conversation::{ConversationId, Rejection, State};

use super::Conversations;

/// How many of a family are looked at; 16 at once, 5 deep, could be a million.
const LARGEST: usize = 1_000;
/// How many events are read at once.
const PAGE: usize = 1_000;

impl Conversations {
    /// The conversation and its children that are at work, with theirs, as far as the store knows.
    /// At most 1,000.
    pub async fn family(&self, id: &ConversationId) -> Result<Vec<ConversationId>, RequestError> {
        let mut family = vec![id.clone()];
        let mut next = 0;
        while let Some(member) = family.get(next).cloned() {
            if let Some(state) = self.stored(&member).await? {
                family.extend(children(&state));
                family.truncate(LARGEST);
            }
            next += 1;
        }
        Ok(family)
    }

    /// A child that is to be deleted answers its parent before it goes, so that nobody waits for it.
    pub(super) async fn part_from_parent(&self, id: &ConversationId) -> Result<(), RequestError> {
        let Some(state) = self.stored(id).await? else { return Ok(()) };
        let waits = state.owed_report.is_some() || state.turns_started <= 1 && state.turn.is_some();
        let Some(parent) = state.parent.filter(|_| waits) else { return Ok(()) };
        let why = "sub_agent_failed: its conversation was deleted".to_owned();
        let ended = ChildEnded {
            call: parent.call_id,
            child: id.clone(),
            outcome: Outcome::Err(why, ErrorType::ToolError),
            ui: None,
            usage: state.usage,
            storages: state.storages,
        };
        let request = Request::ChildEnded(Box::new(ended));
        match Box::pin(self.deliver(&parent.conversation_id, request, Vec::new())).await {
            // A parent that waits no more, or is gone, is told enough.
            Ok(_) | Err(RequestError::Rejected(_)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Deletes the children that a conversation ever had, since what they hold is its own. Stops
    /// what runs first, and looks again until there are no more of them.
    pub(super) async fn delete_children(&self, id: &ConversationId) -> Result<(), RequestError> {
        let mut deleted = BTreeSet::new();
        loop {
            let children = self.children_ever(id).await?;
            let mut left = children.into_iter().filter(|child| !deleted.contains(child)).peekable();
            if left.peek().is_none() {
                return Ok(());
            }
            Box::pin(self.deliver(id, Request::Cancel, Vec::new())).await?;
            let left: Vec<_> = left.collect();
            for child in left {
                // One that never began, or is gone, is what is wanted.
                match Box::pin(self.deliver(&child, Request::Delete, Vec::new())).await {
                    Ok(_) | Err(RequestError::Rejected(Rejection::NotFound)) => {}
                    Err(failure) => return Err(failure),
                }
                deleted.insert(child);
            }
        }
    }

    async fn children_ever(
        &self,
        id: &ConversationId,
    ) -> Result<Vec<ConversationId>, RequestError> {
        let mut children = Vec::new();
        let mut after = 0;
        loop {
            let page = self.store.events(id, after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(children) };
            after = last.seq;
            children.extend(page.into_iter().filter_map(|event| match event.data {
                EventData::ToolCall(call) => call.child,
                EventData::DispatchStarted(run) => run.child,
                _ => None,
            }));
        }
    }
}

/// The children that answer open calls now.
fn children(state: &State) -> Vec<ConversationId> {
    let calls = state.turn.iter().flat_map(|turn| &turn.calls);
    let runs = state.dispatches.values().filter_map(|run| run.child.clone());
    calls.filter_map(|call| call.child.clone()).chain(runs).collect()
}
