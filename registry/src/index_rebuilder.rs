//! Rebuilds the index of lists: for conversations of a version without it, and on request.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use abide_actors::agents::Agents;
use abide_actors::clock::Clock;
use abide_actors::conversation::relist;
use abide_actors::journal::{ConversationSummary, StoreError};
use abide_conversation::{AgentName, ConversationId, Scoped, Tenant, replay};
use futures::{StreamExt, TryStreamExt, stream};

use crate::cluster_client::ClusterClient;
use crate::partition::Partition;
use crate::store::{ListError, Rebuild, Store, SummaryFilter};

/// How often a node looks whether there is something to rebuild.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The conversations of one step, after which the progress is stored.
const STEP_CONVERSATIONS: usize = 100;
/// How many of them are read at once: others use the store, too.
const MAX_CONCURRENT_READS: usize = 8;
/// How often a conversation is read anew that is written to meanwhile. Then its own commits have to
/// tell the index.
const MAX_ATTEMPTS: usize = 5;

/// Rebuilds the index, on the node that looks after the first partition.
pub struct IndexRebuilder {
    pub store: Arc<dyn Store>,
    pub agents: Arc<dyn Agents>,
    pub clock: Arc<dyn Clock>,
}

type IndexedKeys = HashMap<Scoped<AgentName>, Arc<[String]>>;

impl IndexRebuilder {
    /// Runs until it is dropped.
    pub async fn run(self, cluster: ClusterClient) {
        let mut is_store_away = false;
        loop {
            let is_mine = Partition::all()
                .next()
                .is_some_and(|first| cluster.view().partitions.contains(first));
            let done = if is_mine { self.step().await } else { Ok(true) };
            match done {
                Ok(false) => {
                    is_store_away = false;
                    continue;
                }
                Ok(true) => is_store_away = false,
                Err(error) => {
                    if !std::mem::replace(&mut is_store_away, true) {
                        tracing::warn!(%error, "index of lists not rebuilt");
                    }
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Goes through some more conversations. Returns whether nothing is left to do.
    pub async fn step(&self) -> Result<bool, ListError> {
        let Some(present) = self.store.rebuild().await? else {
            // A store of a version without lists, or a new one.
            let first = Rebuild::after(None, self.clock.now());
            self.store.replace_rebuild(None, &first).await?;
            return Ok(false);
        };
        if present.ended_at.is_some() {
            return Ok(true);
        }
        let tenants = self.store.tenants().await?;
        let tenant = match &present.tenant {
            Some(tenant) => Some(tenant.clone()),
            None => tenants.first().cloned(),
        };
        let mut next = Rebuild { tenant: tenant.clone(), ..present.clone() };
        match tenant {
            Some(tenant) => {
                let cursor = self.relist_page(&tenant, &mut next).await?;
                if cursor.is_none() {
                    next.tenant = tenants.into_iter().find(|other| *other > tenant);
                }
                next.ended_at = next.tenant.is_none().then(|| self.clock.now());
                next.cursor = cursor;
            }
            None => next.ended_at = Some(self.clock.now()),
        }
        // Somebody may have asked for another one meanwhile: then that one begins.
        if self.store.replace_rebuild(Some(&present), &next).await? && next.ended_at.is_some() {
            tracing::info!(conversations = next.conversations, "index of lists rebuilt");
        }
        Ok(false)
    }

    /// Writes the entries of the next conversations of a tenant. Returns where to go on.
    async fn relist_page(
        &self,
        tenant: &Tenant,
        progress: &mut Rebuild,
    ) -> Result<Option<String>, ListError> {
        let filter = SummaryFilter::default();
        let cursor = progress.cursor.as_deref();
        let page = self.store.conversations(tenant, &filter, cursor, STEP_CONVERSATIONS).await?;
        let mut indexed = IndexedKeys::new();
        for (id, summary) in &page.items {
            let agent = id.sibling(&summary.agent);
            if let Entry::Vacant(unread) = indexed.entry(agent) {
                let definition = self.agents.newest(unread.key()).await?;
                let keys = definition.map(|definition| definition.index.clone());
                unread.insert(keys.unwrap_or_default());
            }
        }
        progress.conversations += page.items.len() as u64;
        let indexed = &indexed;
        let relists = page.items.into_iter().map(|(id, summary)| async move {
            let keys = indexed.get(&id.sibling(&summary.agent)).cloned().unwrap_or_default();
            self.relist(&id, summary, &keys).await
        });
        stream::iter(relists).buffer_unordered(MAX_CONCURRENT_READS).try_collect::<()>().await?;
        Ok(page.cursor)
    }

    async fn relist(
        &self,
        id: &Scoped<ConversationId>,
        summary: ConversationSummary,
        indexed: &[String],
    ) -> Result<(), StoreError> {
        let mut summary = Some(summary);
        for _ in 0..MAX_ATTEMPTS {
            let present = match summary.take().filter(|it| it.listing.active_at.is_some()) {
                Some(summary) => summary,
                // Only the journal has what a version without lists did not note.
                None => match self.store.load(id).await {
                    Ok(Some(stored)) => relist::summary(&replay(stored.state, &stored.events)),
                    // One that cannot be read stays as it is, and the others are found.
                    Ok(None) | Err(StoreError::Unreadable(_)) => return Ok(()),
                    Err(error) => return Err(error),
                },
            };
            if self.store.relist(id, &present, indexed).await? {
                return Ok(());
            }
        }
        Ok(())
    }
}
