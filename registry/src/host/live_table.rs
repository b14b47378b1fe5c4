//! The conversations that live on a node.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use abide_actors::conversation::ConversationMsg;
use abide_actors::journal::Holder;
use abide_conversation::{ConversationId, Scoped, Timestamp};
use ractor::ActorRef;
use tokio::sync::watch;

/// The live actor of a conversation, as the router sees it.
#[derive(Clone)]
pub struct ActorHandle {
    pub actor: ActorRef<ConversationMsg>,
    /// Deliveries that the actor has not taken up.
    pub mailbox_depth: Arc<AtomicUsize>,
    pub since: Timestamp,
    /// How often this process restarted the actor after a crash.
    pub restarts: u32,
    /// The dead holder whose claim it was started to replace.
    pub replacing: Option<Holder>,
}

impl ActorHandle {
    /// How many deliveries wait for the actor.
    pub fn mailbox_depth(&self) -> usize {
        self.mailbox_depth.load(Ordering::Relaxed)
    }
}

/// The live actors of this node, which the router reads without asking the host.
#[derive(Default)]
pub struct LiveTable {
    handles: RwLock<HashMap<Scoped<ConversationId>, ActorHandle>>,
    count: watch::Sender<usize>,
}

impl LiveTable {
    /// The live actor of a conversation.
    pub fn get(&self, id: &Scoped<ConversationId>) -> Option<ActorHandle> {
        self.handles.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// How many conversations live here.
    pub fn len(&self) -> usize {
        self.handles.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Waits until no conversation lives here.
    pub async fn wait_until_empty(&self) {
        // The sender lives as long as the table.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }

    /// Whether no conversation lives here.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// At most `limit` live conversations, by id, after `cursor`.
    pub fn page(
        &self,
        cursor: Option<&str>,
        limit: usize,
    ) -> Vec<(Scoped<ConversationId>, ActorHandle)> {
        let table = self.handles.read().unwrap_or_else(PoisonError::into_inner);
        let is_after =
            |id: &Scoped<ConversationId>| cursor.is_none_or(|cursor| id.as_str() > cursor);
        let mut page: Vec<_> = table
            .iter()
            .filter(|(id, _)| is_after(id))
            .map(|(id, handle)| (id.clone(), handle.clone()))
            .collect();
        page.sort_by(|(a, _), (b, _)| a.cmp(b));
        page.truncate(limit);
        page
    }

    /// How many deliveries wait for all actors together, and for the one with the most.
    pub fn mailbox_depths(&self) -> (usize, usize) {
        let table = self.handles.read().unwrap_or_else(PoisonError::into_inner);
        let depths = table.values().map(ActorHandle::mailbox_depth);
        depths.fold((0, 0), |(total, max), depth| (total + depth, max.max(depth)))
    }

    pub(super) fn set(&self, id: Scoped<ConversationId>, handle: Option<ActorHandle>) {
        let mut table = self.handles.write().unwrap_or_else(PoisonError::into_inner);
        match handle {
            Some(handle) => table.insert(id, handle),
            None => table.remove(&id),
        };
        self.count.send_replace(table.len());
    }
}
