//! Agents' definitions: parsed once, kept by revision, the newest by name.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use abide_actors::agent::{Agents, Definition, joined};
use abide_actors::clock::Clock;
use abide_actors::journal::{StoreError, StoredResponse};
use abide_actors::tools::Extensions;
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::{AgentName, DecisionId, Revision};
use async_trait::async_trait;

use crate::store::{Store, StoredAgent};

/// Decisions that hold for one agent; every gated call looks through them.
const MOST_DECISIONS: usize = 1_000;
/// How long a decision is known to have been there after it ended.
const FORGOTTEN: jiff::SignedDuration = jiff::SignedDuration::from_hours(7 * 24);
/// How many parsed revisions are kept. Past that all are dropped and parsed again when needed.
const KEPT: usize = 1_000;

/// The definitions of a cluster, as this node reads them.
pub struct AgentCatalog {
    store: Arc<dyn Store>,
    natives: Arc<Extensions>,
    clock: Arc<dyn Clock>,
    parsed: RwLock<HashMap<Revision, Arc<Definition>>>,
}

impl AgentCatalog {
    /// Reads through to `store`; definitions may use these native tools.
    pub fn new(store: Arc<dyn Store>, natives: Arc<Extensions>, clock: Arc<dyn Clock>) -> Self {
        Self { store, natives, clock, parsed: RwLock::default() }
    }

    /// The native tools that a definition may name.
    pub fn natives(&self) -> &Extensions {
        &self.natives
    }

    /// Makes a definition the newest of its name. Returns whether the name was new.
    pub async fn put(
        &self,
        definition: Definition,
        answer: Option<StoredResponse>,
    ) -> Result<bool, StoreError> {
        let stored = StoredAgent {
            name: definition.name.clone(),
            revision: definition.revision.clone(),
            definition: definition.source.clone(),
        };
        self.keep(Arc::new(definition));
        self.store.put_agent(stored, answer).await
    }

    fn keep(&self, definition: Arc<Definition>) {
        let mut parsed = self.parsed.write().unwrap_or_else(PoisonError::into_inner);
        if parsed.len() >= KEPT {
            parsed.clear();
        }
        parsed.insert(definition.revision.clone(), definition);
    }

    /// A stored definition that this version does not accept counts as gone.
    async fn parse(&self, stored: StoredAgent) -> Option<Arc<Definition>> {
        let StoredAgent { name, revision, definition } = stored;
        let natives = self.natives.clone();
        // Conditions, templates and schemas are compiled: that may take a while.
        let parse = move || Definition::parse(definition, &natives);
        let refused = match tokio::task::spawn_blocking(parse).await {
            Ok(Ok(parsed)) => {
                let definition = Arc::new(parsed.definition);
                self.keep(definition.clone());
                return Some(definition);
            }
            Ok(Err(mistakes)) => joined(&mistakes),
            Err(error) => error.to_string(),
        };
        tracing::error!(agent = %name, %revision, said = refused, "a stored definition is not accepted");
        None
    }
}

#[async_trait]
impl Agents for AgentCatalog {
    async fn newest(&self, name: &AgentName) -> Result<Option<Arc<Definition>>, StoreError> {
        match self.store.newest(name).await? {
            Some(newest) => self.revision(&newest).await,
            None => Ok(None),
        }
    }

    async fn revision(&self, revision: &Revision) -> Result<Option<Arc<Definition>>, StoreError> {
        if let Some(kept) = self.kept(revision) {
            return Ok(Some(kept));
        }
        let stored = self.store.revision(revision).await?;
        match stored {
            Some(stored) => Ok(self.parse(stored).await),
            None => Ok(None),
        }
    }

    fn kept(&self, revision: &Revision) -> Option<Arc<Definition>> {
        let parsed = self.parsed.read().unwrap_or_else(PoisonError::into_inner);
        parsed.get(revision).cloned()
    }

    async fn remember(
        &self,
        agent: &AgentName,
        decision: &RememberedDecision,
    ) -> Result<(), StoreError> {
        let mut kept = self.store.decisions(agent).await?;
        if kept.iter().any(|other| other.id == decision.id) {
            // It was given before, and may have been revoked since.
            return Ok(());
        }
        kept.sort_by_key(|other| other.expires_at);
        // Those that end first make room, and what ended so long ago that nobody gives it again.
        let many = (kept.len() + 1).saturating_sub(MOST_DECISIONS);
        let over =
            |old: &RememberedDecision| self.clock.now().duration_since(old.expires_at) > FORGOTTEN;
        for (at, old) in kept.iter().enumerate() {
            if at < many || over(old) {
                self.store.set_decision(agent, &old.id, None).await?;
            }
        }
        self.store.set_decision(agent, &decision.id, Some(decision)).await.map(|_| ())
    }

    async fn decisions(&self, agent: &AgentName) -> Result<Vec<RememberedDecision>, StoreError> {
        self.store.decisions(agent).await
    }

    async fn revoke(&self, agent: &AgentName, decision: &DecisionId) -> Result<bool, StoreError> {
        let now = self.clock.now();
        let mut kept = self.store.decisions(agent).await?.into_iter();
        let live = kept.find(|kept| kept.id == *decision && now < kept.expires_at);
        let Some(live) = live else { return Ok(false) };
        // It stays as one that has ended: a conversation that died while it gave it does so again.
        let ended = RememberedDecision { expires_at: now, ..live };
        self.store.set_decision(agent, decision, Some(&ended)).await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use abide_conversation::{Principal, Timestamp};

    use super::*;
    use crate::store::memory::Memory;

    struct Still;

    impl Clock for Still {
        fn now(&self) -> Timestamp {
            Timestamp::UNIX_EPOCH
        }

        fn id(&self, prefix: &str) -> String {
            prefix.to_owned()
        }

        fn chance(&self) -> f64 {
            0.5
        }
    }

    #[tokio::test]
    async fn a_revoked_decision_does_not_come_back_when_it_is_given_again() {
        let catalogue =
            AgentCatalog::new(Arc::new(Memory::default()), Arc::default(), Arc::new(Still));
        let agent = AgentName::new("demo");
        let decision = RememberedDecision {
            id: DecisionId::new("dec_1"),
            tool: "send".to_owned(),
            does: String::new(),
            approved: true,
            matching: abide_conversation::remembered_decision::Match::Tool,
            fingerprint: String::new(),
            by: Principal::new("ann"),
            expires_at: Timestamp::from_second(60).unwrap(),
        };
        catalogue.remember(&agent, &decision).await.unwrap();
        assert_eq!(catalogue.revoke(&agent, &decision.id).await, Ok(true));
        catalogue.remember(&agent, &decision).await.unwrap();
        let kept = catalogue.decisions(&agent).await.unwrap();
        assert!(kept.iter().all(|kept| kept.expires_at <= Still.now()));
        assert_eq!(catalogue.revoke(&agent, &decision.id).await, Ok(false));
    }
}
