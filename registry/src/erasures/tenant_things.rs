//! What names a subject besides conversations: API keys, schedules, decisions, webhooks, usage, and the
//! operators' audit.

use std::pin::pin;

use abide_actors::notices::Webhook;
use abide_actors::usage_counts::day_of;
use abide_conversation::erase::SubjectAlias;
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::{AgentName, Scoped, Tenant};
use futures::TryStreamExt;

use super::eraser::{EraseError, Eraser};
use crate::erasure::{Erasure, ErasureStep};
use crate::schedule_changes;
use crate::schedules::Schedule;
use crate::store::{KeyChange, StoredKey, WebhookChange, WebhookEdit, pages};

/// Rows of a listing that are read at once.
const PAGE_SIZE: usize = 100;
/// Entries of the operators' audit that one step reads.
const STEP_OPERATIONS: usize = 500;
/// How often a change of a schedule, a decision or the webhooks is tried anew because another one came first.
const MAX_ATTEMPTS: usize = 8;
/// What the subject of an API key begins with; its id follows.
const KEY_SUBJECT: &str = "key:";
/// What the cursor of a step begins with that reads the chain of the cluster, and not of the tenant.
const OF_CLUSTER: &str = "cluster:";

impl Eraser {
    /// Removes the API keys that the subject made, and the key that is the subject.
    pub(super) async fn delete_keys(
        &self,
        tenant: &Tenant,
        erasure: &mut Erasure,
        SubjectAlias { subject, .. }: &SubjectAlias,
    ) -> Result<(), EraseError> {
        let keys = self.store.tenants_keys(tenant).await?;
        let is_subjects = |key: &StoredKey| {
            key.owner == *subject || subject.strip_prefix(KEY_SUBJECT) == Some(key.id.as_str())
        };
        for key in keys.into_iter().filter(is_subjects) {
            let removed = self.store.change_key(KeyChange::Remove(key.scoped_id())).await?;
            erasure.report.deleted.api_keys += u64::from(removed);
        }
        Ok(())
    }

    /// Removes the schedules that the subject put.
    pub(super) async fn delete_schedules(
        &self,
        tenant: &Tenant,
        erasure: &mut Erasure,
        SubjectAlias { subject, .. }: &SubjectAlias,
    ) -> Result<(), EraseError> {
        let pages = pages(|cursor| async move {
            self.store.schedules(tenant, cursor.as_deref(), PAGE_SIZE).await
        });
        let mut pages = pin!(pages);
        while let Some(schedules) = pages.try_next().await? {
            for schedule in schedules.into_iter().filter(|it| is_put_by(it, subject)) {
                let removed = self.delete_schedule(tenant, schedule, subject).await?;
                erasure.report.deleted.schedules += u64::from(removed);
            }
        }
        Ok(())
    }

    /// Removes a schedule of the subject, each of whose ticks makes it another version. Returns whether
    /// it was there.
    async fn delete_schedule(
        &self,
        tenant: &Tenant,
        mut schedule: Schedule,
        subject: &str,
    ) -> Result<bool, EraseError> {
        let name = Scoped::new(tenant, &schedule.name);
        for _ in 0..MAX_ATTEMPTS {
            let (store, now) = (&*self.store, self.clock.now());
            if schedule_changes::replace(store, &name, Some(&schedule), None, now).await? {
                return Ok(true);
            }
            let present = self.store.schedule(&name).await?;
            let Some(present) = present.filter(|it| is_put_by(it, subject)) else {
                return Ok(false);
            };
            schedule = present;
        }
        Err(EraseError::Left(format!("{}: the schedule changes too often", schedule.name)))
    }

    /// Forgets the decisions that the subject made, and puts the alias among the voters of others.
    pub(super) async fn forget_decisions(
        &self,
        tenant: &Tenant,
        erasure: &mut Erasure,
        alias: &SubjectAlias,
    ) -> Result<(), EraseError> {
        for agent in self.store.agents(tenant).await? {
            let agent = Scoped::new(tenant, &agent.name);
            for decision in self.store.decisions(&agent).await? {
                if decision.by.as_str() == alias.subject {
                    let removed = self.store.set_decision(&agent, &decision.id, None).await?;
                    erasure.report.deleted.decisions += u64::from(removed);
                } else {
                    let renamed = self.rename_in_decision(&agent, decision, alias).await?;
                    erasure.report.rewritten.decisions += u64::from(renamed);
                }
            }
        }
        Ok(())
    }

    /// Puts the alias among the voters of a decision, which may be revoked meanwhile, or rewritten by
    /// another erasure. Returns whether it named the subject.
    async fn rename_in_decision(
        &self,
        agent: &Scoped<AgentName>,
        mut decision: RememberedDecision,
        alias: &SubjectAlias,
    ) -> Result<bool, EraseError> {
        for _ in 0..MAX_ATTEMPTS {
            let mut next = decision.clone();
            if !alias.decision(&mut next) {
                return Ok(false);
            }
            if self.store.replace_decision(agent, &decision, &next).await? {
                return Ok(true);
            }
            let mut present = self.store.decisions(agent).await?.into_iter();
            let Some(present) = present.find(|present| present.id == decision.id) else {
                return Ok(false);
            };
            decision = present;
        }
        Err(EraseError::Left(format!("{}: the decision changes too often", decision.id)))
    }

    /// The webhooks of a tenant stay when the person goes who made them.
    pub(super) async fn rename_in_webhooks(
        &self,
        tenant: &Tenant,
        erasure: &mut Erasure,
        alias: &SubjectAlias,
    ) -> Result<(), EraseError> {
        for _ in 0..MAX_ATTEMPTS {
            let Some(list) = self.store.webhooks(None).await? else { return Ok(()) };
            let own = list.webhooks.into_iter().filter(|webhook| webhook.tenant == *tenant);
            let renamed: Vec<_> = own.filter_map(|webhook| renamed(webhook, alias)).collect();
            let count = renamed.len() as u64;
            let change = WebhookChange { version: list.version, changes: renamed };
            if count == 0 || self.store.change_webhooks(&change).await? {
                erasure.report.rewritten.webhooks += count;
                return Ok(());
            }
        }
        Ok(())
    }

    pub(super) async fn rename_usage(
        &self,
        tenant: &Tenant,
        alias: &SubjectAlias,
    ) -> Result<(), EraseError> {
        Ok(self.store.rename_usage(tenant, day_of(self.clock.now()), alias).await?)
    }

    /// Redacts some more entries of the operators' audit: those of the tenant's chain, and then those
    /// about the tenant in the cluster's.
    pub(super) async fn redact_operations(
        &self,
        tenant: &Tenant,
        erasure: &mut Erasure,
    ) -> Result<(), EraseError> {
        let Some(running) = erasure.running() else { return Ok(()) };
        let cursor = running.cursor.clone().unwrap_or_default();
        let seq = cursor.strip_prefix(OF_CLUSTER);
        let chain = if seq.is_some() { None } else { Some(tenant) };
        let after = seq.unwrap_or(&cursor).parse().unwrap_or_default();
        let entries = self.store.operations(chain, after, STEP_OPERATIONS).await?;
        let subject = running.subject.clone();
        let mut redacted_entries = 0;
        for entry in entries.iter().filter(|entry| entry.is_of(tenant)) {
            if let Some(redacted) = entry.redacted(&subject, &erasure.id) {
                self.store.replace_operation(chain, &redacted).await?;
                // Each is in both chains, and one thing.
                redacted_entries += u64::from(chain.is_some());
            }
        }
        erasure.report.rewritten.operations += redacted_entries;
        let next = match (entries.last(), chain) {
            (Some(last), Some(_)) => last.seq().to_string(),
            (Some(last), None) => format!("{OF_CLUSTER}{}", last.seq()),
            (None, Some(_)) => format!("{OF_CLUSTER}0"),
            (None, None) => {
                erasure.go_on(ErasureStep::Last);
                return Ok(());
            }
        };
        if let Some(running) = erasure.progress() {
            running.cursor = Some(next);
        }
        Ok(())
    }
}

/// Whether the messages of a schedule are the subject's.
fn is_put_by(schedule: &Schedule, subject: &str) -> bool {
    let identity = schedule.identity.as_ref();
    schedule.principal.as_str() == subject
        || identity.is_some_and(|it| it.subject.sub == subject || it.acting().sub == subject)
}

/// The webhook with the alias; `None` if it does not name the subject. Links that would answer as the
/// subject are no longer made.
fn renamed(mut webhook: Webhook, alias: &SubjectAlias) -> Option<WebhookEdit> {
    let is_made = alias.name(&mut webhook.by);
    let links = webhook.links.take_if(|links| links.subject == alias.subject);
    (is_made || links.is_some()).then(|| WebhookEdit::Put(Box::new(webhook)))
}
