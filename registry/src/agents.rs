//! Agents' definitions: parsed once, kept by revision, the newest by name.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use abide_actors::agent::{Agents, Definition, joined};
use abide_actors::clock::Clock;
use abide_actors::journal::{Answer, Refusal};
use abide_actors::tools::Natives;
use abide_conversation::remembered::Remembered;
use abide_conversation::{AgentName, DecisionId, Revision};
use async_trait::async_trait;

use crate::store::{Store, StoredAgent};

/// Decisions that hold for one agent; every gated call looks through them.
const MOST_DECISIONS: usize = 1_000;
/// How many parsed revisions are kept. Past that all are dropped and parsed again when needed.
const KEPT: usize = 1_000;

/// Where the store keeps the answers to calls on an agent.
pub fn scope(name: &AgentName) -> String {
    format!("agents/{name}")
}

/// The definitions of a cluster, as this node reads them.
pub struct Catalogue {
    store: Arc<dyn Store>,
    natives: Arc<Natives>,
    clock: Arc<dyn Clock>,
    parsed: RwLock<HashMap<Revision, Arc<Definition>>>,
}

impl Catalogue {
    /// Reads through to `store`; definitions may use these native tools.
    pub fn new(store: Arc<dyn Store>, natives: Arc<Natives>, clock: Arc<dyn Clock>) -> Self {
        Self { store, natives, clock, parsed: RwLock::default() }
    }

    /// The native tools that a definition may name.
    pub fn natives(&self) -> &Natives {
        &self.natives
    }

    /// Makes a definition the newest of its name. Returns whether the name was new.
    pub async fn put(
        &self,
        definition: Definition,
        answer: Option<Answer>,
    ) -> Result<bool, Refusal> {
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
        tracing::error!(agent = %name, %revision, refused, "a stored definition is not accepted");
        None
    }
}

#[async_trait]
impl Agents for Catalogue {
    async fn newest(&self, name: &AgentName) -> Result<Option<Arc<Definition>>, Refusal> {
        match self.store.newest(name).await? {
            Some(newest) => self.revision(&newest).await,
            None => Ok(None),
        }
    }

    async fn revision(&self, revision: &Revision) -> Result<Option<Arc<Definition>>, Refusal> {
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

    async fn remember(&self, agent: &AgentName, decision: &Remembered) -> Result<(), Refusal> {
        let mut kept = self.store.decisions(agent).await?;
        kept.retain(|other| other.id != decision.id);
        kept.sort_by_key(|other| other.expires_at);
        // Those that end first make room.
        let many = (kept.len() + 1).saturating_sub(MOST_DECISIONS);
        for (at, old) in kept.iter().enumerate() {
            if at < many || old.expires_at <= self.clock.now() {
                self.store.set_decision(agent, &old.id, None).await?;
            }
        }
        self.store.set_decision(agent, &decision.id, Some(decision)).await.map(|_| ())
    }

    async fn decisions(&self, agent: &AgentName) -> Result<Vec<Remembered>, Refusal> {
        self.store.decisions(agent).await
    }

    async fn revoke(&self, agent: &AgentName, decision: &DecisionId) -> Result<bool, Refusal> {
        self.store.set_decision(agent, decision, None).await
    }
}
