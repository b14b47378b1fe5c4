//! The way to other conversations as a port: a conversation reaches its parent and children by it.

use std::sync::{Arc, OnceLock, Weak};

use abide_conversation::{ConversationId, Scoped};
use async_trait::async_trait;

use crate::journal::StoreError;
use crate::permit_sync::PermitSync;
use crate::request::{Reply, Request, RequestError};

/// Delivers a request to any conversation, wherever it lives.
#[async_trait]
pub trait ConversationClient: Send + Sync + 'static {
    /// The reply. After `Lost` and `Store(Unavailable)`, the request may have been carried out.
    async fn deliver(
        &self,
        id: &Scoped<ConversationId>,
        request: Request,
    ) -> Result<Reply, RequestError>;

    /// Tells the node that gives the permits of a tool what runs here, and returns how many more may
    /// begin; `None` if that node could not be asked.
    async fn sync_permits(&self, sync: PermitSync) -> Option<u32>;
}

/// A slot for the client, which can be made only after the conversations that need it.
#[derive(Default)]
pub struct ClientSlot(OnceLock<Weak<dyn ConversationClient>>);

impl ClientSlot {
    /// Fills the slot. The caller keeps the client alive; a second call changes nothing.
    pub fn set(&self, client: &Arc<dyn ConversationClient>) {
        let _ = self.0.set(Arc::downgrade(client));
    }

    /// As [`ConversationClient::sync_permits`], if the node has started and not stopped.
    pub(crate) async fn sync_permits(&self, sync: PermitSync) -> Option<u32> {
        let client = self.0.get().and_then(Weak::upgrade)?;
        client.sync_permits(sync).await
    }

    /// Delivers a request, if the node has started and not stopped.
    pub(crate) async fn deliver(
        &self,
        id: &Scoped<ConversationId>,
        request: Request,
    ) -> Result<Reply, RequestError> {
        match self.0.get().and_then(Weak::upgrade) {
            Some(client) => client.deliver(id, request).await,
            None => {
                Err(StoreError::Unavailable("the node is starting or stopping".to_owned()).into())
            }
        }
    }
}
