//! Rebuilds the index of lists, and the names of blobs: for conversations of a version without them,
//! and on request; and for the conversations of an agent whose definition indexes more.

mod added_keys;

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use abide_actors::agents::Agents;
use abide_actors::blobs::{BlobHold, named_blobs};
use abide_actors::clock::Clock;
use abide_actors::conversation::relist;
use abide_actors::journal::{ConversationSummary, StoreError, event_json};
use abide_conversation::{AgentName, BlobId, ConversationId, Scoped, Seq, Tenant, replay};
use futures::{StreamExt, TryStreamExt, stream};

use crate::cluster_client::ClusterClient;
use crate::partition::Partition;
use crate::store::{ListError, Rebuild, Store, SummaryFilter};

/// How often a node looks whether there is something to rebuild.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The conversations of one step, after which the progress is stored: enough that what a step takes
/// by itself is little beside them.
const STEP_CONVERSATIONS: usize = 500;
/// How many of them are read at once: others use the store, too.
const MAX_CONCURRENT_READS: usize = 8;
/// How many events are read at once: each may be a megabyte.
const EVENT_PAGE_SIZE: usize = 64;
/// The schedules that are read at once.
const SCHEDULE_PAGE_SIZE: usize = 100;
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
            let done = if is_mine { self.round().await } else { Ok(true) };
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

    /// Takes a step of both, so that neither waits for the other.
    async fn round(&self) -> Result<bool, ListError> {
        let is_indexed = self.index_step().await?;
        Ok(self.step().await? && is_indexed)
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
        let tenant = match &present.tenant {
            Some(tenant) => Some(tenant.clone()),
            None => self.store.tenants().await?.pop_first(),
        };
        let mut next = Rebuild { tenant: tenant.clone(), ..present.clone() };
        match tenant {
            Some(tenant) => {
                if next.names_blobs && next.cursor.is_none() {
                    self.hold_blobs_of_schedules(&tenant).await?;
                }
                let cursor = self.relist_page(&tenant, &mut next).await?;
                if cursor.is_none() {
                    let others = self.store.tenants().await?;
                    next.tenant = others.into_iter().find(|other| *other > tenant);
                }
                next.cursor = cursor;
                if next.tenant.is_none() {
                    next = next.ended(self.clock.now());
                }
            }
            None => next = next.ended(self.clock.now()),
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
                let keys = self.indexed_keys(unread.key()).await?;
                unread.insert(keys.unwrap_or_default());
            }
        }
        progress.conversations += page.items.len() as u64;
        let (indexed, names_blobs) = (&indexed, progress.names_blobs);
        let relists = page.items.into_iter().map(|(id, summary)| async move {
            let keys = indexed.get(&id.sibling(&summary.agent)).cloned().unwrap_or_default();
            self.relist(&id, summary, &keys).await?;
            Ok::<_, StoreError>(!names_blobs || self.name_blobs(&id).await?)
        });
        let relists = stream::iter(relists).buffer_unordered(MAX_CONCURRENT_READS);
        let readable: Vec<bool> = relists.try_collect().await?;
        // What one names that cannot be read now may be read with another key later.
        progress.names_blobs &= readable.into_iter().all(|is_readable| is_readable);
        Ok(page.cursor)
    }

    /// The keys that the newest definition of an agent indexes; `None` if it is gone.
    async fn indexed_keys(
        &self,
        agent: &Scoped<AgentName>,
    ) -> Result<Option<Arc<[String]>>, StoreError> {
        let definition = match self.agents.newest(agent).await {
            // A definition that was damaged holds up no conversation.
            Err(StoreError::Unreadable(_)) => None,
            definition => definition?,
        };
        Ok(definition.map(|definition| definition.index.clone()))
    }

    /// Notes which blobs the journal of a conversation names. Returns whether it could be read.
    async fn name_blobs(&self, id: &Scoped<ConversationId>) -> Result<bool, StoreError> {
        let (mut after, mut blobs) = (Seq::ZERO, BTreeSet::<BlobId>::new());
        loop {
            let events = match self.store.events(id, after, EVENT_PAGE_SIZE).await {
                Ok(events) => events,
                Err(StoreError::Unreadable(_)) => return Ok(false),
                Err(error) => return Err(error),
            };
            let Some(last) = events.last() else { break };
            after = last.seq;
            blobs.extend(event_json(&events)?.iter().flat_map(|json| named_blobs(json)));
        }
        if !blobs.is_empty() {
            self.store.name_blobs(id, &blobs).await?;
        }
        Ok(true)
    }

    /// Holds the blobs that the messages of schedules name.
    async fn hold_blobs_of_schedules(&self, tenant: &Tenant) -> Result<(), ListError> {
        let mut cursor = None;
        loop {
            let page = self.store.schedules(tenant, cursor.as_deref(), SCHEDULE_PAGE_SIZE).await?;
            for schedule in page.items {
                let hold = BlobHold::new(schedule.blob_holder(), self.clock.now());
                for blob in schedule.named_blobs() {
                    self.store.hold_blob(&Scoped::new(tenant, &blob), &hold).await?;
                }
            }
            cursor = page.cursor;
            if cursor.is_none() {
                return Ok(());
            }
        }
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
