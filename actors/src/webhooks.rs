//! What a commit owes to webhooks, and how one notice is sent (`reference/webhooks.md`).

mod payload;
mod sender;

use abide_conversation::{ConversationId, Scoped};
use async_trait::async_trait;

use crate::journal::StoreError;
use crate::notices::WebhookSet;

pub(crate) use payload::{Deleted, owed_for, owed_for_deletion};
pub use sender::{NoticeSender, Sending, Sent, WebhookMistake};

/// The webhooks, as a node knows them. A commit looks here for what it owes.
#[async_trait]
pub trait Webhooks: Send + Sync + 'static {
    /// The webhooks of the tenant of this conversation; `None` if what the node knows is too old.
    fn known(&self, id: &Scoped<ConversationId>) -> Option<WebhookSet>;

    /// The webhooks of the tenant of this conversation, as the store has them now.
    async fn read(&self, id: &Scoped<ConversationId>) -> Result<WebhookSet, StoreError>;
}
