//! The blobs, the audit logs, the counts and the schedules of a flaky store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use abide_actors::audit::{AuditEntry, AuditLog};
use abide_actors::blobs::{Blob, BlobHold, BlobHolder, BlobInfo, Blobs};
use abide_actors::journal::{Claim, Commit, ConversationSummary, StoreError};
use abide_conversation::ids::QueueName;
use abide_conversation::{
    AgentName, BlobId, ConversationId, Event, Revision, ScheduleName, Scoped, Tenant, Timestamp,
};
use abide_registry::partition::PartitionSet;
use abide_registry::schedules::Schedule;
use abide_registry::store::{
    BlobNames, ChainEntry, CurrentRevisions, Effect, History, HistoryEntry, IndexJobs, ListError,
    ListQuery, ListedConversation, Lists, Operation, OperationLog, OperationOutcome, Page,
    QueueDepth, QueueHeads, QueueIndex, Rebuild, Schedules, StagedJournal, Staging, StoredAgent,
    TenantCounts, UsagePage, UsageQuery,
};
use async_trait::async_trait;
use jiff::civil::Date;

use super::FlakyStore;

impl FlakyStore {
    /// Lets others ask meanwhile, as a store does that is not in memory.
    pub(super) async fn count_agent_read(&self) {
        self.agent_reads.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
    }
}

#[async_trait]
impl Blobs for FlakyStore {
    async fn store_blob(
        &self,
        id: &Scoped<BlobId>,
        blob: &Blob,
        hold: Option<&BlobHold>,
    ) -> Result<bool, StoreError> {
        self.with_room()?.store_blob(id, blob, hold).await
    }

    async fn hold_blob(
        &self,
        id: &Scoped<BlobId>,
        hold: &BlobHold,
    ) -> Result<Option<BlobInfo>, StoreError> {
        self.with_room()?;
        self.in_turn().await?.hold_blob(id, hold).await
    }

    async fn blob_info(&self, id: &Scoped<BlobId>) -> Result<Option<BlobInfo>, StoreError> {
        self.reachable()?.blob_info(id).await
    }

    async fn blob(&self, id: &Scoped<BlobId>) -> Result<Option<Blob>, StoreError> {
        self.reachable()?.blob(id).await
    }

    async fn delete_blob(&self, id: &Scoped<BlobId>) -> Result<bool, StoreError> {
        self.reachable()?.delete_blob(id).await
    }
}

#[async_trait]
impl BlobNames for FlakyStore {
    async fn named_blobs(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<BTreeSet<BlobId>, StoreError> {
        self.reachable()?.named_blobs(id).await
    }

    async fn name_blobs(
        &self,
        id: &Scoped<ConversationId>,
        blobs: &BTreeSet<BlobId>,
    ) -> Result<(), StoreError> {
        self.with_room()?.name_blobs(id, blobs).await
    }

    async fn due_blobs(
        &self,
        partitions: &PartitionSet,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<Scoped<BlobId>>, StoreError> {
        self.reachable()?.due_blobs(partitions, until, limit).await
    }

    async fn blob_holds(&self, id: &Scoped<BlobId>) -> Result<Vec<BlobHold>, StoreError> {
        self.reachable()?.blob_holds(id).await
    }

    async fn end_holds(
        &self,
        id: &Scoped<BlobId>,
        released: Option<&BlobHolder>,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.in_turn().await?.end_holds(id, released, now).await
    }

    async fn drop_lost_names(
        &self,
        partitions: &PartitionSet,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Option<String>, StoreError> {
        let store = self.reachable()?;
        self.name_looks.lock().unwrap().push(cursor.map(str::to_owned));
        store.drop_lost_names(partitions, cursor, limit.min(1)).await
    }
}

#[async_trait]
impl AuditLog for FlakyStore {
    async fn put_entry(
        &self,
        id: &Scoped<ConversationId>,
        entry: &AuditEntry,
        expires_at: Timestamp,
    ) -> Result<(), StoreError> {
        self.with_room()?.put_entry(id, entry, expires_at).await
    }

    async fn entries(
        &self,
        id: &Scoped<ConversationId>,
        before: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        self.reachable()?.entries(id, before, limit, now).await
    }
}

#[async_trait]
impl OperationLog for FlakyStore {
    async fn operate(
        &self,
        operation: &Operation,
        effect: Effect,
    ) -> Result<OperationOutcome, StoreError> {
        self.with_room()?.operate(operation, effect).await
    }

    async fn operations(
        &self,
        tenant: Option<&Tenant>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<ChainEntry>, StoreError> {
        self.reachable()?.operations(tenant, after, limit).await
    }
}

#[async_trait]
impl TenantCounts for FlakyStore {
    async fn usage(&self, query: &UsageQuery) -> Result<UsagePage, StoreError> {
        self.reachable()?.usage(query).await
    }

    async fn tokens_of_day(&self, tenant: &Tenant, day: Date) -> Result<u64, StoreError> {
        self.reachable()?.tokens_of_day(tenant, day).await
    }

    async fn conversation_count(&self, tenant: &Tenant) -> Result<u64, StoreError> {
        self.reachable()?.conversation_count(tenant).await
    }

    async fn blob_bytes(&self, tenant: &Tenant) -> Result<u64, StoreError> {
        self.reachable()?.blob_bytes(tenant).await
    }
}

#[async_trait]
impl Schedules for FlakyStore {
    async fn schedule(&self, name: &Scoped<ScheduleName>) -> Result<Option<Schedule>, StoreError> {
        self.in_turn().await?.schedule(name).await
    }

    async fn replace_schedule(
        &self,
        name: &Scoped<ScheduleName>,
        known: Option<u64>,
        next: Option<&Schedule>,
    ) -> Result<bool, StoreError> {
        self.with_room()?;
        let inner = self.in_turn().await?;
        if next.is_none() && self.ticks_first.swap(false, Ordering::SeqCst) {
            let mut ticked = inner.schedule(name).await?.expect("it is there");
            ticked.version += 1;
            assert!(inner.replace_schedule(name, known, Some(&ticked)).await?);
        }
        inner.replace_schedule(name, known, next).await
    }

    async fn schedules(
        &self,
        tenant: &Tenant,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<Schedule>, ListError> {
        self.reachable()?.schedules(tenant, cursor, limit).await
    }

    async fn schedule_count(&self, tenant: &Tenant) -> Result<u64, StoreError> {
        self.reachable()?.schedule_count(tenant).await
    }

    async fn due_schedules(
        &self,
        partitions: &PartitionSet,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Scoped<ScheduleName>, Timestamp)>, StoreError> {
        self.reachable()?.due_schedules(partitions, until, limit).await
    }
}

#[async_trait]
impl History for FlakyStore {
    async fn history(&self, name: &Scoped<AgentName>) -> Result<Vec<HistoryEntry>, StoreError> {
        self.reachable()?.history(name).await
    }

    async fn current_revisions(
        &self,
        name: &Scoped<AgentName>,
    ) -> Result<Option<CurrentRevisions>, StoreError> {
        self.count_agent_read().await;
        self.reachable()?.current_revisions(name).await
    }

    async fn add_revision(&self, tenant: &Tenant, agent: StoredAgent) -> Result<(), StoreError> {
        self.with_room()?.add_revision(tenant, agent).await
    }

    async fn drop_revisions(
        &self,
        name: &Scoped<AgentName>,
        revisions: &[Revision],
        spared: usize,
    ) -> Result<(), StoreError> {
        self.reachable()?.drop_revisions(name, revisions, spared).await
    }
}

#[async_trait]
impl Staging for FlakyStore {
    async fn stage(&self, staged: &StagedJournal, events: Arc<[Event]>) -> Result<(), StoreError> {
        self.with_room()?.stage(staged, events).await
    }

    async fn publish(
        &self,
        staged: &StagedJournal,
        held: &Claim,
        commit: Commit,
    ) -> Result<(), StoreError> {
        self.with_room()?.publish(staged, held, commit).await
    }

    async fn unstage(&self, staged: &StagedJournal) -> Result<(), StoreError> {
        self.reachable()?.unstage(staged).await
    }
}

#[async_trait]
impl QueueIndex for FlakyStore {
    async fn queue_heads(
        &self,
        tenant: &Tenant,
        queue: &QueueName,
        tool: &str,
        limit: usize,
    ) -> Result<QueueHeads, StoreError> {
        self.reachable()?.queue_heads(tenant, queue, tool, limit).await
    }

    async fn queue_depths(
        &self,
        tenant: &Tenant,
        queue: Option<&QueueName>,
    ) -> Result<Vec<QueueDepth>, StoreError> {
        self.reachable()?.queue_depths(tenant, queue).await
    }
}

#[async_trait]
impl Lists for FlakyStore {
    async fn list(
        &self,
        tenant: &Tenant,
        query: &ListQuery,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<ListedConversation>, ListError> {
        if self.lists_nothing.load(Ordering::SeqCst) {
            return Ok(Page { items: Vec::new(), cursor: None });
        }
        self.reachable()?.list(tenant, query, cursor, limit).await
    }

    async fn relist(
        &self,
        id: &Scoped<ConversationId>,
        summary: &ConversationSummary,
        indexed: &[String],
    ) -> Result<bool, StoreError> {
        self.with_room()?.relist(id, summary, indexed).await
    }

    async fn rebuild(&self) -> Result<Option<Rebuild>, StoreError> {
        self.reachable()?.rebuild().await
    }

    async fn replace_rebuild(
        &self,
        present: Option<&Rebuild>,
        next: &Rebuild,
    ) -> Result<bool, StoreError> {
        self.with_room()?.replace_rebuild(present, next).await
    }

    async fn index_jobs(&self) -> Result<IndexJobs, StoreError> {
        self.reachable()?.index_jobs().await
    }

    async fn replace_index_jobs(
        &self,
        present: &IndexJobs,
        next: &IndexJobs,
    ) -> Result<bool, StoreError> {
        self.with_room()?.replace_index_jobs(present, next).await
    }
}
