//! The door to other conversations as a port: how a conversation reaches its parent and children.

use std::sync::{Arc, OnceLock, Weak};

use abide_conversation::ConversationId;
use async_trait::async_trait;

use crate::journal::Refusal;
use crate::request::{Failure, Reply, Request};

/// Carries a request to any conversation, wherever it lives.
#[async_trait]
pub trait Door: Send + Sync + 'static {
    /// What was done; after `Lost` and `Refused(Unavailable)` it may have been done, or not.
    async fn deliver(&self, id: &ConversationId, request: Request) -> Result<Reply, Failure>;
}

/// Where the door will be once it is made of, among other things, the conversations themselves.
#[derive(Default)]
pub struct Doorway(OnceLock<Weak<dyn Door>>);

impl Doorway {
    /// Puts the door in; whoever made it keeps it.
    pub fn set(&self, door: &Arc<dyn Door>) {
        // A second door is a mistake that changes nothing.
        let _ = self.0.set(Arc::downgrade(door));
    }

    /// Carries a request through, if the node has begun to live and not ended.
    pub(crate) async fn deliver(
        &self,
        id: &ConversationId,
        request: Request,
    ) -> Result<Reply, Failure> {
        match self.0.get().and_then(Weak::upgrade) {
            Some(door) => door.deliver(id, request).await,
            None => Err(Refusal::Unavailable("the node is not there yet".to_owned()).into()),
        }
    }
}
