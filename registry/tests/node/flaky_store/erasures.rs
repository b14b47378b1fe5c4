//! The erasures of a flaky store.

use std::sync::atomic::Ordering;

use abide_actors::journal::StoreError;
use abide_conversation::erase::SubjectAlias;
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::{AgentName, ErasureId, Scoped, Tenant, Timestamp};
use abide_registry::erasure::Erasure;
use abide_registry::store::{ChainEntry, Erasures, ListError, Page, Store};
use async_trait::async_trait;
use jiff::civil::Date;

use super::FlakyStore;

#[async_trait]
impl Erasures for FlakyStore {
    async fn erasure(&self, name: &Scoped<ErasureId>) -> Result<Option<Erasure>, StoreError> {
        self.reachable()?.erasure(name).await
    }

    async fn replace_erasure(
        &self,
        name: &Scoped<ErasureId>,
        known: Option<u64>,
        next: Option<&Erasure>,
    ) -> Result<bool, StoreError> {
        self.with_room()?.replace_erasure(name, known, next).await
    }

    async fn erasures(
        &self,
        tenant: &Tenant,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<Erasure>, ListError> {
        self.reachable()?.erasures(tenant, cursor, limit).await
    }

    async fn due_erasures(
        &self,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<Scoped<ErasureId>>, StoreError> {
        self.reachable()?.due_erasures(until, limit).await
    }

    async fn rename_usage(
        &self,
        tenant: &Tenant,
        last: Date,
        alias: &SubjectAlias,
    ) -> Result<(), StoreError> {
        self.with_room()?.rename_usage(tenant, last, alias).await
    }

    async fn replace_operation(
        &self,
        tenant: Option<&Tenant>,
        entry: &ChainEntry,
    ) -> Result<(), StoreError> {
        self.with_room()?.replace_operation(tenant, entry).await
    }

    async fn replace_decision(
        &self,
        agent: &Scoped<AgentName>,
        read: &RememberedDecision,
        next: &RememberedDecision,
    ) -> Result<bool, StoreError> {
        if self.revokes_first.swap(false, Ordering::SeqCst) {
            self.set_decision(agent, &read.id, None).await?;
        }
        self.with_room()?.replace_decision(agent, read, next).await
    }

    async fn overwrite_deleted(&self) -> Result<(), StoreError> {
        self.overwritings.fetch_add(1, Ordering::SeqCst);
        self.reachable()?.overwrite_deleted().await
    }
}
