//! The definitions that a node brings along, and what it does when the store has others.

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

use crate::node::StartError;

/// Under what the store keeps which revision a start brought last. No client's key is named so.
const BROUGHT: &str = "brought";

/// Defines what is new or was changed since a start brought it last.
///
/// What a start brought before stays as HTTP made it since: another revision, or none. So an
/// unchanged start writes nothing, and a file that was changed, also back, wins.
pub(crate) async fn seed(
    catalogue: &AgentCatalog,
    store: &dyn Store,
    now: Timestamp,
    definitions: &[Definition],
) -> Result<(), StartError> {
    let broken =
        |refusal| StartError::Broken(format!("the agents could not be defined: {refusal}"));
    for definition in definitions {
        let scope = agent_scope(&definition.name);
        let last = store.answer(&scope, BROUGHT, now).await.map_err(broken)?;
        if last.is_some_and(|last| last.fingerprint == definition.revision.as_str()) {
            continue;
        }
        let brought = StoredResponse {
            key: BROUGHT.to_owned(),
            fingerprint: definition.revision.to_string(),
            body: Value::Null,
            expires_at: Timestamp::MAX,
        };
        catalogue.put(definition.clone(), Some(brought)).await.map_err(broken)?;
    }
    Ok(())
}

/// Does the same whenever this node goes on as another incarnation: its store may have come back
/// empty. Runs until it is dropped.
pub(crate) async fn keep(
    catalogue: Arc<AgentCatalog>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    definitions: Vec<Definition>,
    mut view: watch::Receiver<Arc<ClusterView>>,
) {
    let mut seeded = view.borrow().me.clone();
    // The view changes at every renewal: what fails is tried again then.
    while view.changed().await.is_ok() {
        let me = view.borrow_and_update().me.clone();
        if me == seeded {
            continue;
        }
        match seed(&catalogue, &*store, clock.now(), &definitions).await {
            Ok(()) => seeded = me,
            Err(error) => tracing::warn!(%error, "the agents of this node may be gone"),
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
        catalogue: AgentCatalog,
    }

    impl Node {
        fn new() -> Self {
            let store = Arc::new(Memory::default());
            let catalogue = AgentCatalog::new(
                store.clone(),
                Arc::default(),
                Arc::new(crate::clock::SystemClock),
            );
            Self { store, catalogue }
        }

        async fn starts_with(&self, max_steps: u32) -> Option<Value> {
            let brought = vec![definition(max_steps)];
            seed(&self.catalogue, &*self.store, Timestamp::UNIX_EPOCH, &brought).await.unwrap();
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
        node.catalogue.put(definition(9), None).await.unwrap();
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
