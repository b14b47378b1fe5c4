//! Tells the listeners of a child's root what the child waits for.

use std::sync::Arc;

use abide_conversation::{ConversationId, Scoped, State};

use super::LiveConversation;
use crate::child_calls::ChildCalls;
use crate::live::{LiveSink, Signal};

impl LiveConversation {
    /// Publishes what this conversation waits for now, if it is a child.
    pub(super) fn publish_at_root(&self) {
        if let Some(parent) = &self.state.parent {
            let calls = ChildCalls::new(self.id.local(), &self.state);
            let signal = Signal::Child(Arc::new(calls));
            let root = self.id.sibling(&parent.root_conversation_id);
            self.services.live.publish(&root, signal);
        }
    }
}

/// Publishes that a child that was deleted in this state waits for nothing any more.
pub(super) fn publish_deletion_at_root(
    live: &dyn LiveSink,
    id: &Scoped<ConversationId>,
    deleted: &State,
) {
    if let Some(parent) = &deleted.parent {
        let calls = ChildCalls {
            seq: deleted.seq.next(),
            pending: Vec::new(),
            ..ChildCalls::new(id.local(), deleted)
        };
        live.publish(&id.sibling(&parent.root_conversation_id), Signal::Child(Arc::new(calls)));
    }
}
