//! The agents' definitions: parsed once, cached by revision, the newest found by name.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use abide_actors::agent::join_errors;
use abide_actors::agents::{Agents, Choice};
use abide_actors::clock::Clock;
use abide_actors::definition::Definition;
use abide_actors::journal::{StoreError, StoredResponse};
use abide_actors::outbound::{Outbound, TenantRules};
use abide_actors::tools::Extensions;
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::{AgentName, ConversationId, DecisionId, Revision, Scoped, Tenant};
use async_trait::async_trait;

use crate::added_keys::{self, IndexChange};
use crate::revisions::prune;
use crate::seed_record::SeedRecord;
use crate::shared_reads::SharedReads;
use crate::store::{CurrentRevisions, Store, StoredAgent};

/// Remembered decisions of one agent; every gated call searches them.
const MAX_DECISIONS: usize = 1_000;
/// How long an expired decision is kept, so that the same decision is not given again.
const EXPIRED_DECISION_TTL: jiff::SignedDuration = jiff::SignedDuration::from_hours(7 * 24);
/// The schemas of cached revisions, as estimated. Past that all revisions are dropped, too.
const MAX_CACHED_SCHEMA_BYTES: usize = 256 * 1024 * 1024;
/// How many parsed revisions are cached. Past that all are dropped and parsed again when needed.
const MAX_CACHED_REVISIONS: usize = 1_000;

/// The definitions of a cluster, as this node reads them.
pub struct AgentCatalog {
    store: Arc<dyn Store>,
    extensions: Arc<Extensions>,
    clock: Arc<dyn Clock>,
    /// What tenants may do; `None` if nobody is authenticated.
    tenants: Option<Arc<dyn TenantRules>>,
    parsed: RwLock<HashMap<Scoped<Revision>, Arc<Definition>>>,
    current: SharedReads<Scoped<AgentName>, Option<CurrentRevisions>>,
    decisions: SharedReads<Scoped<AgentName>, Vec<RememberedDecision>>,
}

impl AgentCatalog {
    /// A catalog over `store`, whose definitions may use these extensions.
    pub fn new(store: Arc<dyn Store>, extensions: Arc<Extensions>, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            extensions,
            clock,
            tenants: None,
            parsed: RwLock::default(),
            current: SharedReads::default(),
            decisions: SharedReads::default(),
        }
    }

    /// The same catalog, whose definitions are bound by what their tenants may do.
    #[must_use]
    pub fn with_tenants(self, tenants: Option<Arc<dyn TenantRules>>) -> Self {
        Self { tenants, ..self }
    }

    /// The extensions that a definition may use.
    pub fn natives(&self) -> &Extensions {
        &self.extensions
    }

    /// Makes a definition the newest of its name in the tenant. Returns whether the name was new.
    pub async fn put(
        &self,
        tenant: &Tenant,
        definition: Definition,
        response: Option<StoredResponse>,
    ) -> Result<bool, StoreError> {
        self.ask_index(tenant, &definition).await?;
        let is_new = self.store.put_agent(tenant, self.stored(&definition), response).await?;
        // Only now: a turn must not begin under a revision that the store may lose.
        self.bind_and_cache(tenant, definition).await?;
        Ok(is_new)
    }

    /// Has the agent's conversations indexed by the keys that a definition adds.
    async fn ask_index(&self, tenant: &Tenant, definition: &Definition) -> Result<(), StoreError> {
        let name = Scoped::new(tenant, &definition.name);
        let newest = self.store.agent(&name).await?;
        let now = self.clock.now();
        match added_keys::ask(&*self.store, &name, newest.as_ref(), definition, now).await? {
            IndexChange::None | IndexChange::Begins => Ok(()),
            IndexChange::TooMany => {
                Err(StoreError::Unavailable("too many agents are being indexed".to_owned()))
            }
        }
    }

    /// The form in which a definition is stored now.
    pub fn stored(&self, definition: &Definition) -> StoredAgent {
        StoredAgent {
            name: definition.name.clone(),
            revision: definition.revision.clone(),
            definition: definition.source.clone(),
            put_at: Some(self.clock.now()),
        }
    }

    /// Binds and caches a definition that was [stored](Self::stored): only then, because a turn must
    /// not begin under a revision that the store may lose. What cannot be bound now is read and bound
    /// when it is used.
    pub async fn note_stored(&self, tenant: &Tenant, definition: Definition) {
        let name = Scoped::new(tenant, &definition.name);
        let pruned = prune(self.store.clone(), name, self.clock.now());
        // It looks at all conversations of the agent, which nobody should wait for.
        tokio::spawn(async move {
            if let Err(error) = pruned.await {
                tracing::warn!(%error, "old revisions not removed");
            }
        });
        if let Err(error) = self.bind_and_cache(tenant, definition).await {
            tracing::debug!(%error, "definition not cached");
        }
    }

    /// What replaces a decision of the agent that is revoked; `None` if no such decision applies. It
    /// stays as an expired one: a conversation that died while it remembered it will do so again.
    pub async fn expired(
        &self,
        agent: &Scoped<AgentName>,
        decision: &DecisionId,
    ) -> Result<Option<RememberedDecision>, StoreError> {
        let now = self.clock.now();
        let mut decisions = self.store.decisions(agent).await?.into_iter();
        let live = decisions.find(|found| found.id == *decision && now < found.expires_at);
        Ok(live.map(|live| RememberedDecision { expires_at: now, ..live }))
    }

    /// Makes a definition the newest of its name in the tenant if `newest` is that until then, or `None` and the
    /// name has none. Returns whether that was so.
    pub async fn put_if(
        &self,
        tenant: &Tenant,
        definition: Definition,
        response: Option<StoredResponse>,
        newest: Option<&Revision>,
    ) -> Result<bool, StoreError> {
        self.ask_index(tenant, &definition).await?;
        let was_put =
            self.store.put_agent_if(tenant, self.stored(&definition), response, newest).await?;
        self.bind_and_cache(tenant, definition).await?;
        Ok(was_put)
    }

    /// Stores a definition that is not the newest of its name, unless the tenant has it.
    pub async fn add_revision(
        &self,
        tenant: &Tenant,
        definition: Definition,
    ) -> Result<(), StoreError> {
        self.store.add_revision(tenant, self.stored(&definition)).await?;
        self.bind_and_cache(tenant, definition).await.map(drop)
    }

    /// Binds a definition to the rules of its tenant, unless the operator wrote it, and caches it.
    async fn bind_and_cache(
        &self,
        tenant: &Tenant,
        definition: Definition,
    ) -> Result<Arc<Definition>, StoreError> {
        let outbound = match &self.tenants {
            Some(rules) if !self.is_operators(tenant, &definition).await? => {
                Outbound::of(rules.clone(), tenant.clone())
            }
            Some(_) | None => Outbound::Unbound,
        };
        let definition = Arc::new(definition.bind(&outbound));
        self.cache(tenant, definition.clone());
        Ok(definition)
    }

    /// Whether a node once brought this revision with it, so that it is the operator's.
    async fn is_operators(
        &self,
        tenant: &Tenant,
        definition: &Definition,
    ) -> Result<bool, StoreError> {
        if *tenant != Tenant::default() {
            return Ok(false);
        }
        let name = Scoped::new(tenant, &definition.name);
        let record = SeedRecord::read(&*self.store, &name, self.clock.now()).await?;
        Ok(record.is_some_and(|record| record.includes(&definition.revision)))
    }

    fn cache(&self, tenant: &Tenant, definition: Arc<Definition>) {
        let mut parsed = self.parsed.write().unwrap_or_else(PoisonError::into_inner);
        let bytes = parsed.values().map(|it| it.compiled_bytes()).fold(0, usize::saturating_add);
        let is_full = bytes.saturating_add(definition.compiled_bytes()) > MAX_CACHED_SCHEMA_BYTES;
        if parsed.len() >= MAX_CACHED_REVISIONS || is_full {
            parsed.clear();
        }
        parsed.insert(Scoped::new(tenant, &definition.revision), definition);
    }

    /// Parses a stored definition; one that this version does not accept counts as absent.
    async fn parse(
        &self,
        tenant: &Tenant,
        stored: StoredAgent,
    ) -> Result<Option<Arc<Definition>>, StoreError> {
        let StoredAgent { name, revision, definition, put_at: _ } = stored;
        let extensions = self.extensions.clone();
        // Compiling conditions, templates and schemas may take a while.
        let parse = move || Definition::parse(definition, &extensions);
        let reason = match tokio::task::spawn_blocking(parse).await {
            Ok(Ok(parsed)) => {
                return self.bind_and_cache(tenant, parsed.definition).await.map(Some);
            }
            Ok(Err(mistakes)) => join_errors(&mistakes),
            Err(error) => error.to_string(),
        };
        tracing::error!(agent = %name, %revision, content = reason, "stored definition not accepted");
        Ok(None)
    }
}

#[async_trait]
impl Agents for AgentCatalog {
    async fn newest(
        &self,
        name: &Scoped<AgentName>,
    ) -> Result<Option<Arc<Definition>>, StoreError> {
        match self.store.newest(name).await? {
            Some(newest) => self.revision(&name.sibling(&newest)).await,
            None => Ok(None),
        }
    }

    async fn choose(
        &self,
        agent: &AgentName,
        conversation: &Scoped<ConversationId>,
    ) -> Result<Option<Choice>, StoreError> {
        let agent_id = conversation.sibling(agent);
        let current = self.current.read(&agent_id, self.store.current_revisions(&agent_id)).await?;
        let Some(CurrentRevisions { newest, rollout }) = current else { return Ok(None) };
        let rollout = rollout.filter(|rollout| rollout.revision != newest);
        let Some(newest) = self.revision(&conversation.sibling(&newest)).await? else {
            return Ok(None);
        };
        let definition = match rollout.as_ref().filter(|it| it.includes(agent, conversation)) {
            // One that this version does not accept runs nowhere.
            Some(rollout) => self.revision(&conversation.sibling(&rollout.revision)).await?,
            None => None,
        };
        let definition = definition.unwrap_or_else(|| newest.clone());
        let canary = rollout.map(|rollout| rollout.revision);
        Ok(Some(Choice { definition, newest, canary }))
    }

    async fn revision(
        &self,
        revision: &Scoped<Revision>,
    ) -> Result<Option<Arc<Definition>>, StoreError> {
        if let Some(cached) = self.cached(revision) {
            return Ok(Some(cached));
        }
        let stored = self.store.revision(revision).await?;
        match stored {
            // Boxed: it is rare, and ten times as large as the rest.
            Some(stored) => Box::pin(self.parse(&revision.tenant(), stored)).await,
            None => Ok(None),
        }
    }

    fn cached(&self, revision: &Scoped<Revision>) -> Option<Arc<Definition>> {
        let parsed = self.parsed.read().unwrap_or_else(PoisonError::into_inner);
        parsed.get(revision).cloned()
    }

    async fn remember(
        &self,
        agent: &Scoped<AgentName>,
        decision: &RememberedDecision,
    ) -> Result<(), StoreError> {
        let mut decisions = self.store.decisions(agent).await?;
        if decisions.iter().any(|other| other.id == decision.id) {
            // It was remembered before, and may have been revoked since.
            return Ok(());
        }
        decisions.sort_by_key(|other| other.expires_at);
        // Decisions that expire first make room; those that expired long ago are removed, too.
        let surplus = (decisions.len() + 1).saturating_sub(MAX_DECISIONS);
        let is_stale = |old: &RememberedDecision| {
            self.clock.now().duration_since(old.expires_at) > EXPIRED_DECISION_TTL
        };
        for (position, old) in decisions.iter().enumerate() {
            if position < surplus || is_stale(old) {
                self.store.set_decision(agent, &old.id, None).await?;
            }
        }
        self.store.set_decision(agent, &decision.id, Some(decision)).await.map(|_| ())
    }

    async fn decisions(
        &self,
        agent: &Scoped<AgentName>,
    ) -> Result<Vec<RememberedDecision>, StoreError> {
        self.decisions.read(agent, self.store.decisions(agent)).await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use abide_conversation::{Principal, Timestamp};

    use super::*;
    use crate::store::memory::Memory;

    struct FixedClock;

    impl Clock for FixedClock {
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
        let catalog =
            AgentCatalog::new(Arc::new(Memory::default()), Arc::default(), Arc::new(FixedClock));
        let agent = Scoped::new(&Tenant::default(), &AgentName::new("demo"));
        let decision = RememberedDecision {
            id: DecisionId::new("dec_1"),
            tool: "send".to_owned(),
            tool_digest: String::new(),
            approved: true,
            matching: abide_conversation::remembered_decision::Match::Tool,
            fingerprint: String::new(),
            by: Principal::new("ann"),
            voters: Vec::new(),
            expires_at: Timestamp::from_second(60).unwrap(),
        };
        catalog.remember(&agent, &decision).await.unwrap();
        let expired = catalog.expired(&agent, &decision.id).await.unwrap().unwrap();
        catalog.store.set_decision(&agent, &expired.id, Some(&expired)).await.unwrap();
        catalog.remember(&agent, &decision).await.unwrap();
        let decisions = catalog.decisions(&agent).await.unwrap();
        assert!(decisions.iter().all(|decision| decision.expires_at <= FixedClock.now()));
        assert_eq!(catalog.expired(&agent, &decision.id).await, Ok(None));
    }
}
