//! Which tenants a Redis has anything of.

use std::collections::BTreeSet;

use abide_actors::journal::StoreError;
use abide_actors::notices::WebhookKey;
use abide_conversation::{ScheduleName, Scoped, Tenant};
use redis::cmd;

use super::super::super::Store;
use super::super::Redis;
use super::super::backlog::notices::HOOKS;
use super::super::backlog::schedules::SCHEDULES;
use super::super::command::keys::Tag;
use super::super::connection::execute::read;
use crate::partition::PartitionSet;

/// The tenants other than `default` that ever had an agent.
const TENANTS: &str = "tenants";

impl Redis {
    /// Notes that a tenant has agents, before it has any: it stays noted.
    pub(super) async fn note_tenant(&self, tenant: &Tenant) -> Result<(), StoreError> {
        if *tenant == Tenant::default() {
            return Ok(());
        }
        let mut command = cmd("SADD");
        command.arg(Tag::Agents.key(TENANTS)).arg(tenant.as_str());
        self.query::<u64>(Tag::Agents, command).await.map(drop)
    }

    pub(in crate::store::redis) async fn find_all_tenants(
        &self,
    ) -> Result<BTreeSet<Tenant>, StoreError> {
        let mut tenants = self.tenants().await?;
        let mut command = cmd("SMEMBERS");
        command.arg(Tag::Agents.key(TENANTS));
        let noted: Vec<String> = self.query_confirmed(Tag::Agents, command).await?;
        tenants.extend(noted.iter().filter_map(|name| Tenant::parse(name).ok()));
        let mut command = cmd("HKEYS");
        command.arg(Tag::Agents.key(HOOKS));
        let webhooks: Vec<String> = self.query_confirmed(Tag::Agents, command).await?;
        let webhooks = webhooks.iter().filter_map(|key| WebhookKey::parse(key).ok());
        tenants.extend(webhooks.map(|key| key.tenant()));
        let keys = self.keys(None).await?.unwrap_or_default().keys;
        tenants.extend(keys.into_iter().map(|key| key.tenant));
        tenants.extend(self.tenants_with_schedules().await?);
        Ok(tenants)
    }

    async fn tenants_with_schedules(&self) -> Result<BTreeSet<Tenant>, StoreError> {
        let partitions = self.scheduled_among(&PartitionSet::all()).await?;
        let queries = partitions.iter().map(Tag::Partition).map(|tag| {
            let mut command = cmd("HKEYS");
            command.arg(tag.key(SCHEDULES));
            (tag, command)
        });
        let mut tenants = BTreeSet::new();
        for answer in self.query_all(queries.collect()).await? {
            let names: Vec<String> = read("schedules", answer)?;
            let names = names.iter().filter_map(|name| Scoped::<ScheduleName>::parse(name).ok());
            tenants.extend(names.map(|name| name.tenant()));
        }
        Ok(tenants)
    }
}
