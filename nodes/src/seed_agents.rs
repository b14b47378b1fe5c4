//! Defines the agents that a node brings with it, without undoing what HTTP changed since.

use std::sync::Arc;

use abide_actors::clock::Clock;
use abide_actors::definition::Definition;
use abide_actors::journal::StoredResponse;
use abide_conversation::Timestamp;
use abide_registry::agent_catalog::AgentCatalog;
use abide_registry::cluster_view::ClusterView;
use abide_registry::store::{Store, agent_scope};
use serde_json::Value;
use tokio::sync::watch;

use crate::definition_warnings;
use crate::start_error::StartError;

/// The idempotency key under which the store remembers the revision that a start seeded last. No
/// client's key has this form.
const SEEDED_KEY: &str = "brought";

/// Defines the agents that are new or have changed since a start seeded them last.
///
/// An agent whose file did not change stays as HTTP left it: with another revision, or deleted. So a
/// start with unchanged files writes nothing, and a file that was changed wins, even one that was
/// changed back.
pub(crate) async fn seed(
    catalog: &AgentCatalog,
    store: &dyn Store,
    now: Timestamp,
    definitions: &[Definition],
) -> Result<(), StartError> {
    let broken = |error| StartError::Broken(format!("the agents could not be defined: {error}"));
    for definition in definitions {
        let scope = agent_scope(&definition.name);
        let last = store.stored_response(&scope, SEEDED_KEY, now).await.map_err(broken)?;
        if last.is_some_and(|last| last.fingerprint == definition.revision.as_str()) {
            continue;
        }
        let seeded = StoredResponse {
            key: SEEDED_KEY.to_owned(),
            fingerprint: definition.revision.to_string(),
            body: Value::Null,
            expires_at: Timestamp::MAX,
        };
        catalog.put(definition.clone(), Some(seeded)).await.map_err(broken)?;
    }
    // Only now are those there that the others ask.
    for definition in definitions {
        let warnings = definition_warnings::missing_agents(store, definition).await;
        definition_warnings::log(&definition.name, &warnings.map_err(broken)?);
    }
    Ok(())
}

/// Seeds again whenever this node rejoins the cluster as a new incarnation: the store may have come
/// back empty. Runs until it is dropped.
pub(crate) async fn reseed(
    catalog: Arc<AgentCatalog>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    definitions: Vec<Definition>,
    mut view: watch::Receiver<Arc<ClusterView>>,
) {
    let mut seeded = view.borrow().me.clone();
    // The view changes with every heartbeat: a failed seeding is tried again then.
    while view.changed().await.is_ok() {
        let me = view.borrow_and_update().me.clone();
        if me == seeded {
            continue;
        }
        match seed(&catalog, &*store, clock.now(), &definitions).await {
            Ok(()) => seeded = me,
            Err(error) => tracing::warn!(%error, "agents could not be seeded"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use abide_actors::tools::Extensions;
    use abide_conversation::AgentName;
    use abide_registry::store::memory::Memory;
    use serde_json::json;

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

        async fn max_steps(&self) -> Option<Value> {
            let agent = self.store.agent(&AgentName::new("a")).await.unwrap();
            agent.map(|agent| agent.definition["max_steps"].clone())
        }
    }

    #[tokio::test]
    async fn what_http_defined_stays_until_the_file_is_changed() {
        let node = Node::new();
        assert_eq!(node.starts_with(1).await, Some(json!(1)));
        node.catalog.put(definition(9), None).await.unwrap();
        assert_eq!(node.starts_with(1).await, Some(json!(9)));
        assert_eq!(node.starts_with(2).await, Some(json!(2)), "a changed file wins");
        assert_eq!(node.starts_with(1).await, Some(json!(1)), "also one that was changed back");
    }

    #[tokio::test]
    async fn what_http_deleted_stays_deleted_until_the_file_is_changed() {
        let node = Node::new();
        node.starts_with(1).await;
        node.store.delete_agent(&AgentName::new("a"), None).await.unwrap();
        assert_eq!(node.starts_with(1).await, None);
        assert_eq!(node.starts_with(2).await, Some(json!(2)));
    }
}
