//! The door to other conversations as a port: how a conversation reaches its parent and children.

use std::sync::{Arc, OnceLock, Weak};

use abide_conversation::ConversationId;
use async_trait::async_trait;

use crate::journal::StoreError;
use crate::request::{Reply, Request, RequestError};

/// Carries a request to any conversation, wherever it lives.
#[async_trait]
pub trait ConversationClient: Send + Sync + 'static {
    /// What was done; after `Lost` and `Refused(Unavailable)` it may have been done, or not.
    async fn deliver(&self, id: &ConversationId, request: Request) -> Result<Reply, RequestError>;
}

/// Where the door will be once it is made of, among other things, the conversations themselves.
#[derive(Default)]
pub struct ClientSlot(OnceLock<Weak<dyn ConversationClient>>);

impl ClientSlot {
    /// Puts the door in; whoever made it keeps it.
    pub fn set(&self, door: &Arc<dyn ConversationClient>) {
        // A second door is a mistake that changes nothing.
        let _ = self.0.set(Arc::downgrade(door));
    }

    /// Carries a request through, if the node has begun to live and not ended.
    pub(crate) async fn deliver(
        &self,
        id: &ConversationId,
        request: Request,
    ) -> Result<Reply, RequestError> {
        match self.0.get().and_then(Weak::upgrade) {
            Some(door) => door.deliver(id, request).await,
            None => Err(StoreError::Unavailable("the node is not there yet".to_owned()).into()),
        }
    }
}
