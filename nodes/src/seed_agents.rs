//! Defines the agents that a node brings with it, without undoing what HTTP changed since.

use std::sync::Arc;

use abide_actors::clock::Clock;
use abide_actors::definition::Definition;
use abide_actors::journal::StoreError;
use abide_conversation::{Revision, Scoped, Tenant, Timestamp};
use abide_registry::agent_catalog::AgentCatalog;
use abide_registry::cluster_view::ClusterView;
use abide_registry::seed_record::SeedRecord;
use abide_registry::store::Store;
use tokio::sync::watch;

use crate::definition_warnings;
use crate::start_error::StartError;

/// Defines the agents that are new or have changed since a start seeded them last.
///
/// An agent whose file did not change stays as HTTP left it: with another revision, or deleted. So a
/// start with unchanged files writes nothing, and a file that was changed wins, even one that was
/// changed back. It wins over what was there when this start looked: an agent that is defined in
/// between stays, however long this process was suspended.
pub(crate) async fn seed(
    catalog: &AgentCatalog,
    store: &dyn Store,
    now: Timestamp,
    definitions: &[Definition],
) -> Result<(), StartError> {
    for definition in definitions {
        let record = AgentRecord::read(store, now, definition).await.map_err(broken)?;
        let seeded = record.seeded.as_ref().map(|seeded| seeded.newest.as_str());
        if seeded != Some(definition.revision.as_str()) {
            record.replace(catalog, definition).await.map_err(broken)?;
        }
    }
    // Only now are those there that the others ask.
    for definition in definitions {
        let name = Scoped::new(&Tenant::default(), &definition.name);
        let warnings = definition_warnings::missing_agents(store, &name, definition).await;
        definition_warnings::log(definition.name.as_str(), &warnings.map_err(broken)?);
    }
    Ok(())
}

/// Defines the agents of which the store knows nothing, neither a revision nor that one was seeded:
/// it has come back empty. What other nodes seeded since and what HTTP deleted is known.
async fn restore(
    catalog: &AgentCatalog,
    store: &dyn Store,
    now: Timestamp,
    definitions: &[Definition],
) -> Result<(), StartError> {
    for definition in definitions {
        let record = AgentRecord::read(store, now, definition).await.map_err(broken)?;
        if record.newest.is_none() && record.seeded.is_none() {
            record.replace(catalog, definition).await.map_err(broken)?;
        }
    }
    Ok(())
}

/// What the store has of an agent.
struct AgentRecord {
    newest: Option<Revision>,
    /// The revisions that starts seeded.
    seeded: Option<SeedRecord>,
}

impl AgentRecord {
    async fn read(
        store: &dyn Store,
        now: Timestamp,
        definition: &Definition,
    ) -> Result<Self, StoreError> {
        // In this order: a revision that is seeded in between keeps its place.
        let name = Scoped::new(&Tenant::default(), &definition.name);
        let newest = store.newest(&name).await?;
        let seeded = SeedRecord::read(store, &name, now).await?;
        Ok(Self { newest, seeded })
    }

    /// Seeds a definition, unless the agent was changed since.
    async fn replace(
        &self,
        catalog: &AgentCatalog,
        definition: &Definition,
    ) -> Result<(), StoreError> {
        let seeded = SeedRecord::followed_by(self.seeded.as_ref(), &definition.revision);
        let newest = self.newest.as_ref();
        if !catalog.put_if(&Tenant::default(), definition.clone(), Some(seeded), newest).await? {
            tracing::info!(agent = %definition.name, "agent not seeded: it was changed meanwhile");
        }
        Ok(())
    }
}

fn broken(error: StoreError) -> StartError {
    StartError::Broken(format!("the agents could not be defined: {error}"))
}

/// Restores the agents whenever this node rejoins the cluster as a new incarnation: the store may
/// have come back empty. A node that was suspended or cut off changes nothing in a store that kept
/// its agents. Runs until it is dropped.
pub(crate) async fn restore_at_rejoin(
    catalog: Arc<AgentCatalog>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    definitions: Vec<Definition>,
    mut view: watch::Receiver<Arc<ClusterView>>,
) {
    let mut restored_as = view.borrow().me.clone();
    // The view changes with every heartbeat: what failed is tried again then.
    while view.changed().await.is_ok() {
        let me = view.borrow_and_update().me.clone();
        if me == restored_as {
            continue;
        }
        match restore(&catalog, &*store, clock.now(), &definitions).await {
            Ok(()) => restored_as = me,
            Err(error) => tracing::warn!(%error, "agents could not be seeded"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use abide_actors::agents::Agents;
    use abide_actors::outbound::{Outbound, OutboundRules, TenantRules};
    use abide_actors::tools::Extensions;
    use abide_registry::store::memory::Memory;
    use serde_json::{Value, json};

    use super::*;

    fn definition(max_steps: u32) -> Definition {
        let model = json!({"provider": "scripted", "script": [{"text": "hi"}]});
        let source = json!({"name": "a", "model": model, "max_steps": max_steps});
        Definition::parse(source, &Extensions::new()).unwrap().definition
    }

    struct Node {
        store: Arc<Memory>,
        catalog: AgentCatalog,
    }

    impl Node {
        fn new() -> Self {
            let store = Arc::new(Memory::default());
            let catalog = AgentCatalog::new(
                store.clone(),
                Arc::default(),
                Arc::new(crate::clock::SystemClock),
            );
            Self { store, catalog }
        }

        async fn starts_with(&self, max_steps: u32) -> Option<Value> {
            let definitions = vec![definition(max_steps)];
            seed(&self.catalog, &*self.store, Timestamp::UNIX_EPOCH, &definitions).await.unwrap();
            self.max_steps().await
        }

        async fn rejoins_with(&self, max_steps: u32) -> Option<Value> {
            let definitions = vec![definition(max_steps)];
            let now = Timestamp::UNIX_EPOCH;
            restore(&self.catalog, &*self.store, now, &definitions).await.unwrap();
            self.max_steps().await
        }

        async fn max_steps(&self) -> Option<Value> {
            let agent = self.store.agent(&Scoped::parse("a").unwrap()).await.unwrap();
            agent.map(|agent| agent.definition["max_steps"].clone())
        }
    }

    #[tokio::test]
    async fn what_http_defined_stays_until_the_file_is_changed() {
        let node = Node::new();
        assert_eq!(node.starts_with(1).await, Some(json!(1)));
        node.catalog.put(&Tenant::default(), definition(9), None).await.unwrap();
        assert_eq!(node.starts_with(1).await, Some(json!(9)));
        assert_eq!(node.starts_with(2).await, Some(json!(2)), "a changed file wins");
        assert_eq!(node.starts_with(1).await, Some(json!(1)), "also one that was changed back");
    }

    #[tokio::test]
    async fn a_node_that_rejoins_brings_no_old_files_back() {
        let node = Node::new();
        assert_eq!(node.starts_with(1).await, Some(json!(1)));
        assert_eq!(node.starts_with(2).await, Some(json!(2)), "the roll-out of a newer file");
        assert_eq!(node.rejoins_with(1).await, Some(json!(2)));
        node.store.delete_agent(&Scoped::parse("a").unwrap(), None).await.unwrap();
        assert_eq!(node.rejoins_with(2).await, None, "what HTTP deleted stays deleted");
        let another = Node::new();
        another.catalog.put(&Tenant::default(), definition(9), None).await.unwrap();
        assert_eq!(another.rejoins_with(1).await, Some(json!(9)), "what HTTP defined stays");
    }

    #[tokio::test]
    async fn a_node_that_rejoins_fills_a_store_that_came_back_empty() {
        assert_eq!(Node::new().rejoins_with(1).await, Some(json!(1)));
    }

    #[tokio::test]
    async fn what_is_changed_while_a_start_is_suspended_stays() {
        let node = Node::new();
        node.starts_with(1).await;
        let old = definition(2);
        let record = AgentRecord::read(&*node.store, Timestamp::UNIX_EPOCH, &old).await.unwrap();
        node.catalog.put(&Tenant::default(), definition(9), None).await.unwrap();
        record.replace(&node.catalog, &old).await.unwrap();
        assert_eq!(node.max_steps().await, Some(json!(9)));
        assert_eq!(node.starts_with(2).await, Some(json!(2)), "a later start looks anew");
    }

    /// Rules that permit nothing.
    struct Nothing;

    impl TenantRules for Nothing {
        fn outbound(&self, _: &Tenant) -> OutboundRules {
            OutboundRules { hosts: Some(Vec::new()), variables: Vec::new() }
        }
    }

    #[tokio::test]
    async fn every_revision_that_a_start_seeded_stays_the_operators() {
        let node = Node::new();
        for max_steps in [1, 2, 1, 3] {
            node.starts_with(max_steps).await;
        }
        node.catalog.put(&Tenant::default(), definition(4), None).await.unwrap();
        let catalog = AgentCatalog::new(
            node.store.clone(),
            Arc::default(),
            Arc::new(crate::clock::SystemClock),
        );
        let catalog = catalog.with_tenants(Some(Arc::new(Nothing)));
        for (max_steps, is_the_operators) in [(1, true), (2, true), (3, true), (4, false)] {
            let revision = Scoped::new(&Tenant::default(), &definition(max_steps).revision);
            let found = catalog.revision(&revision).await.unwrap().unwrap();
            assert_eq!(found.outbound == Outbound::Unbound, is_the_operators, "{max_steps}");
        }
        let acme = Tenant::parse("acme").unwrap();
        catalog.put(&acme, definition(1), None).await.unwrap();
        let theirs = catalog.revision(&Scoped::new(&acme, &definition(1).revision)).await.unwrap();
        assert_ne!(
            theirs.unwrap().outbound,
            Outbound::Unbound,
            "another tenant's of the same text"
        );
    }

    #[tokio::test]
    async fn what_http_deleted_stays_deleted_until_the_file_is_changed() {
        let node = Node::new();
        node.starts_with(1).await;
        node.store.delete_agent(&Scoped::parse("a").unwrap(), None).await.unwrap();
        assert_eq!(node.starts_with(1).await, None);
        assert_eq!(node.starts_with(2).await, Some(json!(2)));
    }
}
