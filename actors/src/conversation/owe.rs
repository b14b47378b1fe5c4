//! What commits and deletions owe to the webhooks of the tenant.

use abide_conversation::event::Event;
use abide_conversation::{ConversationId, Scoped, State};

use super::{LiveConversation, with_store_timeout};
use crate::journal::StoreError;
use crate::notices::{OwedNotice, WebhookKey, WebhookSet};
use crate::request::DeletionReason;
use crate::services::Services;
use crate::webhooks::{self, Deleted};

impl LiveConversation {
    /// What these events owe.
    pub(super) async fn owed_for(&self, events: &[Event]) -> Result<Vec<OwedNotice>, StoreError> {
        let owing = webhooks_of(&self.services, &self.id).await?;
        if owing.is_empty() {
            return Ok(Vec::new());
        }
        Ok(webhooks::owed_for(&owing, &self.id, &self.state, events))
    }

    /// What the deletion of the conversation owes.
    pub(super) async fn owed_for_deletion(
        &self,
        reason: DeletionReason,
    ) -> Result<Vec<OwedNotice>, StoreError> {
        owed_for_deletion(&self.services, &self.id, &self.state, reason).await
    }

    /// Tells the node of notices that it may deliver at once.
    pub(super) fn announce_notices(&self, webhooks: &[WebhookKey]) {
        let owed = webhooks.iter().map(|webhook| (webhook.clone(), self.id.clone()));
        self.services.near_notices.announce(owed.collect());
    }
}

/// What the deletion of a conversation in this state owes, where no actor of it can live.
pub async fn owed_for_deletion(
    services: &Services,
    id: &Scoped<ConversationId>,
    state: &State,
    reason: DeletionReason,
) -> Result<Vec<OwedNotice>, StoreError> {
    let owing = webhooks_of(services, id).await?;
    let deleted = Deleted { id, state, at: services.clock.now(), reason: reason.as_str() };
    Ok(webhooks::owed_for_deletion(&owing, &deleted))
}

/// The webhooks of the tenant. Reads the store only if the node has not heard of them lately.
async fn webhooks_of(
    services: &Services,
    id: &Scoped<ConversationId>,
) -> Result<WebhookSet, StoreError> {
    match services.webhooks.known(id) {
        Some(known) => Ok(known),
        None => with_store_timeout(services.webhooks.read(id)).await,
    }
}

/// The webhooks that something is owed to.
pub(super) fn near_notices(owed: &[OwedNotice]) -> Vec<WebhookKey> {
    let mut webhooks: Vec<WebhookKey> = owed.iter().map(|owed| owed.webhook.clone()).collect();
    webhooks.sort();
    webhooks.dedup();
    webhooks
}
