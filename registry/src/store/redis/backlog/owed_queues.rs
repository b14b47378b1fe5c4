//! What a commit or a deletion adds to queues of notices, as the scripts take it.

use abide_actors::journal::StoreError;
use abide_actors::notices::{OwedNotice, WebhookKey};
use abide_conversation::{ConversationId, Scoped};

use super::super::super::notices::StoredNotice;
use super::super::super::sealing::Sealer;
use super::super::command::keys::{self, Key, Tag};
use super::super::command::script::ScriptCall;

/// What one conversation owes to each of some webhooks.
pub(in crate::store::redis) struct OwedQueues {
    id: Scoped<ConversationId>,
    queues: Vec<OwedQueue>,
}

struct OwedQueue {
    webhook: WebhookKey,
    /// The name of the key of the queue.
    name: String,
    notices: Vec<StoredNotice>,
}

/// The name of the key of a queue. Neither part but the tenant has a slash.
pub(super) fn queue_name(webhook: &WebhookKey, id: &Scoped<ConversationId>) -> String {
    format!("{webhook}/{}", id.local())
}

impl OwedQueues {
    pub(in crate::store::redis) fn of(
        id: &Scoped<ConversationId>,
        owed: &[OwedNotice],
        sealer: Option<&Sealer>,
    ) -> Result<Self, StoreError> {
        let mut queues: Vec<OwedQueue> = Vec::new();
        for notice in owed {
            let mut stored = StoredNotice::from(notice);
            if let Some(sealer) = sealer {
                stored = sealer.seal_notice(id.as_str(), stored)?;
            }
            match queues.iter_mut().find(|queue| queue.webhook == notice.webhook) {
                Some(queue) => queue.notices.push(stored),
                None => queues.push(OwedQueue {
                    webhook: notice.webhook.clone(),
                    name: queue_name(&notice.webhook, id),
                    notices: vec![stored],
                }),
            }
        }
        Ok(Self { id: id.clone(), queues })
    }

    pub(in crate::store::redis) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// The keys, in the order of the script.
    pub(in crate::store::redis) fn keys(&self, tag: Tag) -> Vec<Key<'_>> {
        let mut keys = vec![tag.common("owed"), tag.common("owed_counts")];
        for OwedQueue { webhook, name, .. } in &self.queues {
            let of_webhook = |kind| tag.own(kind, webhook.as_str());
            keys.extend([of_webhook("nd"), of_webhook("no"), tag.own("nq", name)]);
        }
        keys
    }

    /// Adds the arguments.
    pub(in crate::store::redis) fn write(
        &self,
        mut call: ScriptCall,
    ) -> Result<ScriptCall, StoreError> {
        call = call.arg(self.queues.len());
        for OwedQueue { webhook, notices, .. } in &self.queues {
            let now = notices.first().map(|notice| keys::score(notice.at)).unwrap_or_default();
            call = call.arg(webhook.as_str()).arg(self.id.as_str()).arg(now).arg(notices.len());
            for notice in notices {
                call = call.json(prefix(notice), notice)?;
            }
        }
        Ok(call)
    }
}

/// What the text of a notice begins with: its seq, and since when it is owed.
pub(super) fn prefix(notice: &StoredNotice) -> String {
    format!("{} {} ", notice.seq, keys::score(notice.since))
}
