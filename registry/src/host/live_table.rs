//! Who lives on a node.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use abide_actors::conversation::ConversationMsg;
use abide_actors::journal::Holder;
use abide_conversation::{ConversationId, Timestamp};
use ractor::ActorRef;
use tokio::sync::watch;

/// A live conversation, as the door sees it.
#[derive(Clone)]
pub struct ActorHandle {
    pub actor: ActorRef<ConversationMsg>,
    /// Deliveries that it has not taken up.
    pub depth: Arc<AtomicUsize>,
    pub since: Timestamp,
    /// How often it was revived after a crash, by this process.
    pub restarts: u32,
    /// The dead holder whose claim it was started to replace.
    pub replacing: Option<Holder>,
}

impl ActorHandle {
    /// How many deliveries wait.
    pub fn depth(&self) -> usize {
        self.depth.load(Ordering::Relaxed)
    }
}

/// Who lives here; read by the door without asking the host.
#[derive(Default)]
pub struct LiveTable {
    handles: RwLock<HashMap<ConversationId, ActorHandle>>,
    count: watch::Sender<usize>,
}

impl LiveTable {
    /// The live actor of a conversation.
    pub fn get(&self, id: &ConversationId) -> Option<ActorHandle> {
        self.handles.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// How many live here.
    pub fn len(&self) -> usize {
        self.handles.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns as soon as none lives here.
    pub async fn emptied(&self) {
        // The sender lives as long as the table.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }

    /// Whether none lives here.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// At most `limit` of them, by id, after `cursor`.
    pub fn page(&self, cursor: Option<&str>, limit: usize) -> Vec<(ConversationId, ActorHandle)> {
        let table = self.handles.read().unwrap_or_else(PoisonError::into_inner);
        let after = |id: &ConversationId| cursor.is_none_or(|cursor| id.as_str() > cursor);
        let mut page: Vec<_> = table
            .iter()
            .filter(|(id, _)| after(id))
            .map(|(id, handle)| (id.clone(), handle.clone()))
            .collect();
        page.sort_by(|(a, _), (b, _)| a.cmp(b));
        page.truncate(limit);
        page
    }

    /// How many deliveries wait for all of them, and for the one with the most.
    pub fn depths(&self) -> (usize, usize) {
        let table = self.handles.read().unwrap_or_else(PoisonError::into_inner);
        let depths = table.values().map(ActorHandle::depth);
        depths.fold((0, 0), |(all, most), depth| (all + depth, most.max(depth)))
    }

    pub(super) fn set(&self, id: ConversationId, handle: Option<ActorHandle>) {
        let mut table = self.handles.write().unwrap_or_else(PoisonError::into_inner);
        match handle {
            Some(handle) => table.insert(id, handle),
            None => table.remove(&id),
        };
        self.count.send_replace(table.len());
    }
}
