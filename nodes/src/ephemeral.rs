//! Conversations that a chat began without naming one. Nobody finds them again, so they are deleted a
//! day later.
//!
//! Their ids begin with the time, so that a listing from their prefix on has the oldest first: a sweep
//! reads what it deletes, and little more.

use std::sync::Arc;
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_actors::journal::ConversationSummary;
use abide_actors::request::Request;
use abide_conversation::{ConversationId, Scoped, Tenant, Timestamp};
use abide_registry::router::ConversationRouter;
use abide_registry::store::{ListError, Store, SummaryFilter, cursor_after};
use jiff::SignedDuration;

use crate::access::AccessControl;

/// What the ids of such conversations begin with.
pub(crate) const PREFIX: &str = "ephemeral";
/// The member of their metadata that says what they are.
pub(crate) const MARK: &str = "ephemeral";

const LIFETIME: SignedDuration = SignedDuration::from_hours(24);
const SWEEP_INTERVAL: Duration = Duration::from_secs(600);
const CONVERSATIONS_PER_PAGE: usize = 100;
/// The most pages of a sweep; the next goes on.
const MAX_PAGES: usize = 100;

/// Deletes such conversations.
pub(crate) struct EphemeralSweeper {
    pub(crate) conversations: ConversationRouter,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) access: AccessControl,
}

impl EphemeralSweeper {
    /// Sweeps until it is dropped. Every node does: what is gone is nothing to delete.
    pub(crate) async fn run(self) {
        loop {
            if let Err(error) = self.sweep_all().await {
                tracing::warn!(%error, "ephemeral conversations not swept");
            }
            tokio::time::sleep(SWEEP_INTERVAL).await;
        }
    }

    async fn sweep_all(&self) -> Result<(), ListError> {
        for tenant in self.store.tenants().await? {
            self.sweep(&tenant).await?;
        }
        Ok(())
    }

    async fn sweep(&self, tenant: &Tenant) -> Result<(), ListError> {
        let mut cursor = cursor_after(tenant, &ConversationId::new(PREFIX));
        let filter = SummaryFilter::default();
        for _ in 0..MAX_PAGES {
            let page = self
                .store
                .conversations(tenant, &filter, Some(&cursor), CONVERSATIONS_PER_PAGE)
                .await?;
            let now = self.clock.now();
            for (id, summary) in page.items {
                match verdict(&id.local(), &summary, now) {
                    Verdict::Keep => {}
                    Verdict::End => return Ok(()),
                    Verdict::Delete => self.delete(tenant, &id).await,
                }
            }
            match page.cursor {
                Some(next) => cursor = next,
                None => break,
            }
        }
        Ok(())
    }

    async fn delete(&self, tenant: &Tenant, id: &Scoped<ConversationId>) {
        match self.conversations.deliver(id, Request::Delete, Vec::new()).await {
            Ok(_) => self.access.deleted(tenant),
            // Another node was quicker, or the next sweep tries again.
            Err(error) => tracing::debug!(%error, "ephemeral conversation not deleted"),
        }
    }
}

/// What a sweep does about a conversation.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Keep,
    Delete,
    /// All that follow are younger, or of another kind.
    End,
}

fn verdict(id: &ConversationId, summary: &ConversationSummary, now: Timestamp) -> Verdict {
    let is_of_kind = id.as_str().strip_prefix(PREFIX).is_some_and(|rest| rest.starts_with('_'));
    if !is_of_kind {
        return Verdict::End;
    }
    if summary.metadata.get(MARK) != Some(&serde_json::Value::Bool(true)) {
        // Somebody has chosen such an id.
        return Verdict::Keep;
    }
    if now.duration_since(summary.created_at) >= LIFETIME { Verdict::Delete } else { Verdict::End }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn summary(created_at: &str, metadata: serde_json::Value) -> ConversationSummary {
        serde_json::from_value(json!({"agent": "a", "state": "idle", "last_seq": 3,
            "created_at": created_at, "metadata": metadata, "alarm": null, "active": false}))
        .unwrap()
    }

    #[test]
    fn only_what_a_chat_has_begun_a_day_ago_is_deleted() {
        let now = "2026-01-02T12:00:00.000Z".parse().unwrap();
        let (old, young) = ("2026-01-01T12:00:00.000Z", "2026-01-01T12:00:00.001Z");
        let mark = || json!({"ephemeral": true});
        for (id, created_at, metadata, expected) in [
            ("ephemeral_01", old, mark(), Verdict::Delete),
            ("ephemeral_01", young, mark(), Verdict::End),
            ("ephemeral_mine", old, json!({}), Verdict::Keep),
            ("ephemeral_mine", old, json!({"ephemeral": "yes"}), Verdict::Keep),
            ("ephemerally", old, mark(), Verdict::End),
            ("f", old, mark(), Verdict::End),
        ] {
            let found = verdict(&ConversationId::new(id), &summary(created_at, metadata), now);
            assert_eq!(found, expected, "{id} of {created_at}");
        }
    }
}
