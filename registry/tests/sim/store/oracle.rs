//! What the checks read of the store, past all faults: blobs, decisions, queues, notices, schedules, usage.

use abide_actors::blobs::Blobs as _;
use abide_conversation::{AgentName, BlobId, DecisionId, Revision, ScheduleName, Scoped, Tenant};
use abide_registry::partition::PartitionSet;
use abide_registry::schedules::Schedule;
use abide_registry::store::{
    OperationLog as _, Outbox as _, QueueDepth, QueueIndex as _, Schedules as _, Store as _,
    TenantCounts as _, UsagePage, UsageQuery,
};

use super::{Store, complete_now};

impl Store {
    /// The first of these blobs that is not there.
    pub fn missing_blob<'a>(&self, blobs: &'a [Scoped<BlobId>]) -> Option<&'a Scoped<BlobId>> {
        blobs.iter().find(|id| complete_now(self.oracle.blob_info(id)).unwrap().is_none())
    }

    /// The decisions that the agent of a tenant has.
    pub fn decisions(&self, tenant: &Tenant) -> Vec<DecisionId> {
        let agent = Scoped::new(tenant, &AgentName::new("a"));
        let decisions = complete_now(self.oracle.decisions(&agent)).unwrap();
        decisions.into_iter().map(|decision| decision.id).collect()
    }

    /// The queues in which calls of a tenant wait.
    pub fn queues(&self, tenant: &Tenant) -> Vec<QueueDepth> {
        complete_now(self.oracle.queue_depths(tenant, None)).unwrap()
    }

    /// How many notices are owed.
    pub fn owed(&self) -> u64 {
        complete_now(self.oracle.owed_in(&self.used(&PartitionSet::all()))).unwrap().owed
    }

    pub fn schedule(&self, name: &Scoped<ScheduleName>) -> Option<Schedule> {
        complete_now(self.oracle.schedule(name)).unwrap()
    }

    /// The newest revision of an agent.
    pub fn newest(&self, agent: &Scoped<AgentName>) -> Option<Revision> {
        complete_now(self.oracle.newest(agent)).unwrap()
    }

    /// What the entries of a tenant's operators' audit are about.
    pub fn operations(&self, tenant: &Tenant) -> Vec<String> {
        let entries = complete_now(self.oracle.operations(Some(tenant), 0, super::ALL)).unwrap();
        let target = |entry| serde_json::to_value(entry).unwrap()["target"].to_string();
        entries.iter().map(target).collect()
    }

    /// What a tenant has used, on these days and in all.
    pub fn usage(&self, query: &UsageQuery) -> UsagePage {
        complete_now(self.oracle.usage(query)).unwrap()
    }
}
