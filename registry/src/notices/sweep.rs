//! Ends what nobody delivers: what removed and ended webhooks owe, and old notices of failing ones.

use std::collections::HashSet;
use std::time::Duration;

use abide_actors::journal::StoreError;
use abide_actors::notices::{Webhook, WebhookKey};
use tokio::time::Instant;

use super::delivery::SharedDeps;
use super::schedule::after;
use crate::partition::Partition;
use crate::store::WebhookEdit;

/// The time between two sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// How long after its end a webhook is swept: longer than a commit takes that still knew it.
const GRACE: Duration = Duration::from_secs(15);

/// Sweeps at intervals.
#[derive(Debug, Default)]
pub(super) struct Sweeper {
    swept_at: Option<Instant>,
    /// What the store has for webhooks that this node does not know.
    suspects: HashSet<(Partition, WebhookKey)>,
}

impl Sweeper {
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.swept_at.is_none_or(|at| now >= at + SWEEP_INTERVAL)
    }

    /// Takes in that something is owed to a webhook that is not known.
    pub(super) fn suspect(&mut self, partition: Partition, webhook: WebhookKey) {
        self.suspects.insert((partition, webhook));
    }

    /// Sweeps once.
    pub(super) fn sweep(
        &mut self,
        deps: SharedDeps,
        now: Instant,
    ) -> impl Future<Output = ()> + use<> {
        self.swept_at = Some(now);
        let suspects = std::mem::take(&mut self.suspects);
        async move {
            if let Err(error) = sweep(&deps, suspects).await {
                tracing::debug!(%error, "notices not swept");
            }
        }
    }
}

async fn sweep(
    deps: &SharedDeps,
    suspects: HashSet<(Partition, WebhookKey)>,
) -> Result<(), StoreError> {
    if !suspects.is_empty() {
        deps.catalog.refresh(Duration::ZERO).await?;
    }
    for (partition, webhook) in suspects {
        // A webhook is stored before anything is owed to it, so that it is not just too new.
        if deps.catalog.get(&webhook).is_none() {
            drop_all(deps, &webhook, partition).await?;
        }
    }
    deps.health.flush(&deps.catalog).await?;
    let now = deps.clock.now();
    let first = Partition::all().next();
    let is_sweeper = first.is_some_and(|first| deps.cluster.view().partitions.contains(first));
    for webhook in deps.catalog.all() {
        let key = webhook.key();
        if webhook.is_active() {
            if webhook.is_failing(now) {
                deps.expire(&key).await?;
            }
            continue;
        }
        let ended_at = webhook.removed_at.or(webhook.ended_at);
        let is_over = ended_at.is_some_and(|at| after(at, GRACE) <= now);
        let is_done = webhook.swept && webhook.removed_at.is_none();
        if is_sweeper && is_over && !is_done {
            for partition in Partition::all() {
                drop_all(deps, &key, partition).await?;
            }
            deps.catalog.edit(&key, swept).await?;
        }
    }
    Ok(())
}

async fn drop_all(
    deps: &SharedDeps,
    webhook: &WebhookKey,
    partition: Partition,
) -> Result<(), StoreError> {
    while deps.store.drop_notices(webhook, partition).await? {}
    Ok(())
}

/// What becomes of a webhook that owes nothing any more.
fn swept(webhook: &Webhook) -> Option<WebhookEdit> {
    if webhook.removed_at.is_some() {
        return Some(WebhookEdit::Remove(webhook.key()));
    }
    (!webhook.swept).then(|| WebhookEdit::Put(Box::new(Webhook { swept: true, ..webhook.clone() })))
}
