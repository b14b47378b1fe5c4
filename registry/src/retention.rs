//! Deletes conversations in which nothing has happened for as long as their agent or their tenant keeps
//! them, and decisions that hold no longer.
//!
//! No conversation has an alarm for this, and no turn costs more. A sweep reads the index of lists in
//! the order of activity, the longest idle first, only as far as what is due. The conversation itself
//! judges once more before it goes: what it has answered before then keeps it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use abide_actors::agent;
use abide_actors::clock::Clock;
use abide_actors::journal::StoreError;
use abide_actors::request::{DeletionCondition, Reply, Request};
use abide_conversation::state::ConversationStatus;
use abide_conversation::{AgentName, ConversationId, Scoped, Tenant, Timestamp};
use futures::{StreamExt, stream};
use jiff::SignedDuration;
use tokio::time::Instant;

use crate::partition::Partition;
use crate::router::ConversationRouter;
use crate::store::{
    Direction, ListError, ListOrder, ListQuery, ListedConversation, Period, Store, StoredAgent,
    active_at,
};

/// How often a tenant is swept, so that what is newly due goes within a minute.
const SWEEP_INTERVAL: Duration = Duration::from_secs(20);
/// How often expired decisions are looked for, which are few and harm nobody.
const DECISION_INTERVAL: Duration = Duration::from_secs(3_600);
/// How long an expired decision is kept: a conversation that died while it remembered it does so again.
const EXPIRED_DECISION_TTL: SignedDuration = SignedDuration::from_hours(7 * 24);
const CONVERSATIONS_PER_PAGE: usize = 50;
/// The most pages of one rule in one sweep; the next goes on behind them.
const MAX_PAGES: usize = 40;
/// The pause before a sweep goes on that has not come to its end.
const BUSY_INTERVAL: Duration = Duration::from_secs(1);
/// How many conversations are deleted at once: others use the store, too.
const MAX_CONCURRENT_DELETIONS: usize = 4;
/// The pause after each page with deletions, which spreads a backlog over time.
const PAGE_PAUSE: Duration = Duration::from_millis(100);

/// What the operator has decided about tenants.
pub trait RetentionRules: Send + Sync + 'static {
    /// The tenants that there are. What is left of others is nobody's to keep or to delete.
    fn tenants(&self) -> Vec<Tenant>;

    /// How long all conversations of the tenant are kept at most that nothing happens in; `None`: as
    /// long as their agents say.
    fn retention(&self, tenant: &Tenant) -> Option<Duration>;

    /// Takes note that a conversation of the tenant was deleted.
    fn deleted(&self, tenant: &Tenant);
}

/// Deletes what is idle, on the node that looks after the partition of the tenant's name.
pub struct RetentionSweeper {
    pub conversations: ConversationRouter,
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub rules: Arc<dyn RetentionRules>,
}

/// How long the conversations of an agent, or of a whole tenant, are kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Rule {
    /// `None`: all of the tenant.
    agent: Option<AgentName>,
    idle: Duration,
}

/// Where the next sweep by a rule goes on: behind what was active before then, and was looked at.
type Places = HashMap<(Tenant, Rule), Timestamp>;

impl RetentionSweeper {
    /// Runs until it is dropped.
    pub async fn run(self) {
        let mut is_store_away = false;
        let mut decisions_due = Instant::now() + DECISION_INTERVAL;
        let mut places = Places::new();
        loop {
            let with_decisions = decisions_due <= Instant::now();
            match self.sweep_all(&mut places, with_decisions).await {
                Ok(()) => is_store_away = false,
                Err(error) => {
                    if !std::mem::replace(&mut is_store_away, true) {
                        tracing::warn!(%error, "idle conversations not swept");
                    }
                }
            }
            if with_decisions {
                decisions_due = Instant::now() + DECISION_INTERVAL;
            }
            let is_done = places.is_empty() || is_store_away;
            tokio::time::sleep(if is_done { SWEEP_INTERVAL } else { BUSY_INTERVAL }).await;
        }
    }

    async fn sweep_all(&self, places: &mut Places, with_decisions: bool) -> Result<(), ListError> {
        let mut next_places = Places::new();
        for tenant in self.rules.tenants() {
            if !self.is_mine(&tenant) {
                continue;
            }
            let agents = self.store.agents(&tenant).await?;
            for rule in rules_of(self.rules.retention(&tenant), &agents) {
                let key = (tenant.clone(), rule);
                let next = self.sweep(&tenant, &key.1, places.get(&key).copied()).await?;
                next_places.extend(next.map(|next| (key, next)));
            }
            if with_decisions {
                self.forget_decisions(&tenant, &agents).await?;
            }
        }
        *places = next_places;
        Ok(())
    }

    /// Whether this node looks after the tenant. For a moment two may; then one deletes in vain.
    fn is_mine(&self, tenant: &Tenant) -> bool {
        let view = self.conversations.cluster().view();
        view.partitions.contains(Partition::of(tenant.as_str()))
    }

    /// Deletes what is due by a rule, the longest idle first, of what was active at `from` or later.
    /// Returns where the next sweep goes on, if something is left.
    async fn sweep(
        &self,
        tenant: &Tenant,
        rule: &Rule,
        from: Option<Timestamp>,
    ) -> Result<Option<Timestamp>, ListError> {
        let Some(last) = before(self.clock.now(), rule.idle) else { return Ok(None) };
        let after = from.and_then(|from| from.checked_sub(SignedDuration::from_millis(1)).ok());
        let query = ListQuery {
            agent: rule.agent.clone(),
            status: Some(ConversationStatus::Idle),
            root_only: true,
            active: Period { after, before: Some(last) },
            order: ListOrder::Active,
            direction: Direction::Ascending,
            ..ListQuery::default()
        };
        let (mut cursor, mut reached) = (None, None);
        for _ in 0..MAX_PAGES {
            let page = self.store.list(tenant, &query, cursor.as_deref(), CONVERSATIONS_PER_PAGE);
            let page = page.await?;
            reached = page.items.last().map(|found| active_at(&found.summary)).or(reached);
            let due: Vec<_> = page.items.into_iter().filter(|found| is_due(found, last)).collect();
            let has_due = !due.is_empty();
            let deletions = due.into_iter().map(|found| self.delete(tenant, found.id, last));
            let deletions = stream::iter(deletions).buffer_unordered(MAX_CONCURRENT_DELETIONS);
            deletions.collect::<()>().await;
            cursor = page.cursor;
            if cursor.is_none() || !self.is_mine(tenant) {
                return Ok(None);
            }
            if has_due {
                tokio::time::sleep(PAGE_PAUSE).await;
            }
        }
        Ok(reached)
    }

    async fn delete(&self, tenant: &Tenant, id: Scoped<ConversationId>, last: Timestamp) {
        let request = Request::DeleteIf(DeletionCondition::IdleSince(last));
        match self.conversations.deliver(&id, request, Vec::new()).await {
            Ok(Reply::Deleted) => self.rules.deleted(tenant),
            // Something has happened in it meanwhile.
            Ok(_) => {}
            // Another node was quicker, or the next sweep tries again.
            Err(error) => {
                tracing::debug!(conversation = %id, %error, "idle conversation not deleted");
            }
        }
    }

    /// Removes the decisions of these agents that expired long ago.
    async fn forget_decisions(
        &self,
        tenant: &Tenant,
        agents: &[StoredAgent],
    ) -> Result<(), StoreError> {
        for agent in agents {
            let name = Scoped::new(tenant, &agent.name);
            for decision in self.store.decisions(&name).await? {
                let expired_for = self.clock.now().duration_since(decision.expires_at);
                if expired_for > EXPIRED_DECISION_TTL {
                    self.store.set_decision(&name, &decision.id, None).await?;
                }
            }
        }
        Ok(())
    }
}

/// The rules of a tenant. Both hold, so that the shorter one decides; an agent's rule that keeps for
/// longer than the tenant's has nothing to add.
fn rules_of(tenant: Option<Duration>, agents: &[StoredAgent]) -> Vec<Rule> {
    let of_agent = |stored: &StoredAgent| {
        let idle = agent::idle_retention_of(&stored.definition)?;
        let decides = tenant.is_none_or(|tenant| idle < tenant);
        decides.then(|| Rule { agent: Some(stored.name.clone()), idle })
    };
    let of_tenant = tenant.map(|idle| Rule { agent: None, idle });
    agents.iter().filter_map(of_agent).chain(of_tenant).collect()
}

/// The moment since which a conversation must have been idle.
fn before(now: Timestamp, idle: Duration) -> Option<Timestamp> {
    now.checked_sub(SignedDuration::try_from(idle).ok()?).ok()
}

/// Whether a conversation seems to be due. One that is woken for more than its own end waits for
/// something, such as a scheduled message.
fn is_due(found: &ListedConversation, last: Timestamp) -> bool {
    let summary = &found.summary;
    let waits = summary.alarm.is_some() && summary.alarm != summary.listing.expires_at;
    !summary.active && !waits && active_at(summary) <= last
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use abide_conversation::Revision;
    use serde_json::json;

    use super::*;

    fn agent(name: &str, idle: Option<&str>) -> StoredAgent {
        StoredAgent {
            name: AgentName::new(name),
            revision: Revision::new("r1"),
            definition: json!({"retention": {"idle": idle}}),
            put_at: None,
        }
    }

    #[test]
    fn the_shorter_retention_of_a_tenant_and_an_agent_decides() {
        let agents = [agent("short", Some("1h")), agent("long", Some("90d")), agent("none", None)];
        let rule = |agent: Option<&str>, hours: u64| Rule {
            agent: agent.map(AgentName::new),
            idle: Duration::from_secs(hours * 3_600),
        };
        let day = Duration::from_secs(24 * 3_600);
        assert_eq!(rules_of(Some(day), &agents), [rule(Some("short"), 1), rule(None, 24)]);
        assert_eq!(rules_of(None, &agents), [rule(Some("short"), 1), rule(Some("long"), 90 * 24)]);
        assert_eq!(rules_of(None, &agents[2..]), []);
    }
}
