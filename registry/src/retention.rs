//! Deletes conversations in which nothing has happened for as long as their agent or their tenant keeps
//! them, and decisions that hold no longer.
//!
//! No conversation has an alarm for this, and no turn costs more. A sweep reads the index of lists in
//! the order of activity, the longest idle first, only as far as what is due, and not again what it has
//! looked at. The conversation itself judges once more before it goes: what it has answered before then
//! keeps it.

mod pass;

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

use self::pass::{Progress, Step};
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
/// The most pages of one pass in one sweep; the next goes on behind them.
const MAX_PAGES: usize = 40;
/// The most of them that find nothing, for which the store looks at thousands of conversations.
const MAX_EMPTY_PAGES: usize = 4;
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

/// How far the sweeps by each rule have come.
type AllProgress = HashMap<(Tenant, Rule), Progress>;

impl RetentionSweeper {
    /// Runs until it is dropped.
    pub async fn run(self) {
        let mut is_store_away = false;
        let mut decisions_due = Instant::now() + DECISION_INTERVAL;
        let mut progress = AllProgress::new();
        loop {
            let with_decisions = decisions_due <= Instant::now();
            match self.sweep_all(&mut progress, with_decisions).await {
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
            let is_under_way = |it: &Progress| it.recent.is_under_way() || it.whole.is_under_way();
            let is_done = is_store_away || !progress.values().any(is_under_way);
            tokio::time::sleep(if is_done { SWEEP_INTERVAL } else { BUSY_INTERVAL }).await;
        }
    }

    async fn sweep_all(
        &self,
        progress: &mut AllProgress,
        with_decisions: bool,
    ) -> Result<(), ListError> {
        let mut before = std::mem::take(progress);
        let mut unreadable = None;
        for tenant in self.rules.tenants().into_iter().filter(|tenant| self.is_mine(tenant)) {
            match self.sweep_tenant(&tenant, &mut before, progress, with_decisions).await {
                // What was damaged of one tenant keeps nothing of the others.
                Err(error @ ListError::Store(StoreError::Unreadable(_))) => {
                    unreadable = Some(error);
                }
                outcome => outcome?,
            }
        }
        unreadable.map_or(Ok(()), Err)
    }

    async fn sweep_tenant(
        &self,
        tenant: &Tenant,
        before: &mut AllProgress,
        progress: &mut AllProgress,
        with_decisions: bool,
    ) -> Result<(), ListError> {
        let agents = self.store.agents(tenant).await?;
        for rule in rules_of(self.rules.retention(tenant), &agents) {
            let Some(last) = before_idle(self.clock.now(), rule.idle) else { continue };
            let key = (tenant.clone(), rule);
            let known = before.remove(&key);
            let known = known.unwrap_or_else(|| Progress::new(last, Instant::now()));
            let of_rule = progress.entry(key.clone()).or_insert(known);
            self.sweep(tenant, &key.1, last, of_rule).await?;
        }
        if with_decisions {
            self.forget_decisions(tenant, &agents).await?;
        }
        Ok(())
    }

    /// Whether this node looks after the tenant. For a moment two may; then one deletes in vain.
    fn is_mine(&self, tenant: &Tenant) -> bool {
        let view = self.conversations.cluster().view();
        view.partitions.contains(Partition::of(tenant.as_str()))
    }

    /// Deletes what is due by a rule, the longest idle first: what has become due since the last sweep,
    /// and some more of all that was due before.
    async fn sweep(
        &self,
        tenant: &Tenant,
        rule: &Rule,
        last: Timestamp,
        progress: &mut Progress,
    ) -> Result<(), ListError> {
        let retries = progress.take_retries();
        stream::iter(retries.into_iter().map(|id| self.delete(tenant, id, last)))
            .buffer_unordered(MAX_CONCURRENT_DELETIONS)
            .for_each(|_| std::future::ready(()))
            .await;
        let (next, failed) = self.pass(tenant, rule, progress.recent.step(last)).await?;
        progress.recent.advance(&next, next.cursor.clone());
        failed.into_iter().for_each(|id| progress.retry(id));
        if progress.is_whole_due(Instant::now()) {
            let (next, failed) = self.pass(tenant, rule, progress.whole.step(last)).await?;
            progress.whole.advance(&next, next.cursor.clone());
            failed.into_iter().for_each(|id| progress.retry(id));
            if !progress.whole.is_under_way() {
                progress.end_whole(Instant::now());
            }
        }
        Ok(())
    }

    /// Does a bounded part of a pass. Returns where it goes on, if something is left, and what could
    /// not be deleted.
    async fn pass(
        &self,
        tenant: &Tenant,
        rule: &Rule,
        mut step: Step,
    ) -> Result<(Step, Vec<Scoped<ConversationId>>), ListError> {
        let query = ListQuery {
            agent: rule.agent.clone(),
            status: Some(ConversationStatus::Idle),
            root_only: true,
            active: Period { after: step.after, before: Some(step.last) },
            order: ListOrder::Active,
            direction: Direction::Ascending,
            ..ListQuery::default()
        };
        let (mut failed, mut empty_pages) = (Vec::new(), 0);
        for _ in 0..MAX_PAGES {
            let cursor = step.cursor.take();
            let page = self.store.list(tenant, &query, cursor.as_deref(), CONVERSATIONS_PER_PAGE);
            let page = page.await?;
            empty_pages += usize::from(page.items.is_empty());
            let due: Vec<_> =
                page.items.into_iter().filter(|found| is_due(found, step.last)).collect();
            let has_due = !due.is_empty();
            let deletions = due.into_iter().map(|found| self.delete(tenant, found.id, step.last));
            let deletions = stream::iter(deletions).buffer_unordered(MAX_CONCURRENT_DELETIONS);
            failed.extend(deletions.collect::<Vec<_>>().await.into_iter().flatten());
            step.cursor = page.cursor;
            if step.cursor.is_none() || !self.is_mine(tenant) || empty_pages >= MAX_EMPTY_PAGES {
                break;
            }
            if has_due {
                tokio::time::sleep(PAGE_PAUSE).await;
            }
        }
        Ok((step, failed))
    }

    /// Returns the conversation if its deletion failed.
    async fn delete(
        &self,
        tenant: &Tenant,
        id: Scoped<ConversationId>,
        last: Timestamp,
    ) -> Option<Scoped<ConversationId>> {
        let request = Request::DeleteIf(DeletionCondition::IdleSince(last));
        match self.conversations.deliver(&id, request, Vec::new()).await {
            Ok(Reply::Deleted) => self.rules.deleted(tenant),
            // Something has happened in it meanwhile.
            Ok(_) => {}
            // Another node was quicker, or the next sweep tries again.
            Err(error) => {
                tracing::debug!(conversation = %id, %error, "idle conversation not deleted");
                return Some(id);
            }
        }
        None
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
fn before_idle(now: Timestamp, idle: Duration) -> Option<Timestamp> {
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
