//! Erasures in a store, and what they change of things that no conversation has.

use abide_actors::journal::StoreError;
use abide_conversation::erase::SubjectAlias;
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::{AgentName, ErasureId, Scoped, Tenant, Timestamp};
use async_trait::async_trait;
use jiff::civil::Date;

use super::operations::ChainEntry;
use super::{ListError, Page};
use crate::erasure::Erasure;

/// Keeps erasures, and finds those with something to do.
#[async_trait]
pub trait Erasures: Send + Sync + 'static {
    /// An erasure by the name under which it is stored.
    async fn erasure(&self, name: &Scoped<ErasureId>) -> Result<Option<Erasure>, StoreError>;

    /// Writes an erasure, or removes it, if the one that is stored has the version `known`; `None` if
    /// there is to be none. Returns whether that was so; otherwise nothing is written.
    async fn replace_erasure(
        &self,
        name: &Scoped<ErasureId>,
        known: Option<u64>,
        next: Option<&Erasure>,
    ) -> Result<bool, StoreError>;

    /// The erasures of a tenant, sorted by name.
    async fn erasures(
        &self,
        tenant: &Tenant,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<Erasure>, ListError>;

    /// The names of the erasures of all tenants that are [due](Erasure::due_at) by `until`, earliest
    /// first.
    async fn due_erasures(
        &self,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<Scoped<ErasureId>>, StoreError>;

    /// Gives the usage of an owner to the alias, in all days that are kept up to this one.
    async fn rename_usage(
        &self,
        tenant: &Tenant,
        last: Date,
        alias: &SubjectAlias,
    ) -> Result<(), StoreError>;

    /// Replaces the entry of this number in a chain of the operators' audit, unless the chain has
    /// dropped it.
    async fn replace_operation(
        &self,
        tenant: Option<&Tenant>,
        entry: &ChainEntry,
    ) -> Result<(), StoreError>;

    /// Replaces a decision of an agent, if it is still as it was read. Returns whether that was so;
    /// otherwise nothing is written, so that one that was revoked meanwhile stays so.
    async fn replace_decision(
        &self,
        agent: &Scoped<AgentName>,
        read: &RememberedDecision,
        next: &RememberedDecision,
    ) -> Result<bool, StoreError>;

    /// Overwrites what deletions have left where the store keeps its data, as far as that is the
    /// store's own to do.
    async fn overwrite_deleted(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
