//! The revisions of agents in Redis: for each agent a sorted set, by the time at which each was put
//! last.

use abide_actors::journal::StoreError;
use abide_conversation::{AgentName, Revision, Scoped, Tenant, Timestamp};
use async_trait::async_trait;
use redis::cmd;

use super::super::super::revisions::{History, HistoryEntry};
use super::super::super::{CurrentRevisions, Rollout, StoredAgent};
use super::super::Redis;
use super::super::command::error::refused;
use super::super::command::keys::{self, Tag};
use super::super::command::script::ScriptCall;
use super::super::scripts::{ADD_REVISION, DROP_REVISIONS};

/// The kind of the keys of histories.
pub(super) const HISTORY: &str = "history";

#[async_trait]
impl History for Redis {
    async fn history(&self, name: &Scoped<AgentName>) -> Result<Vec<HistoryEntry>, StoreError> {
        let mut command = cmd("ZRANGE");
        command.arg(Tag::Agents.key_of(HISTORY, name.as_str())).arg(0).arg(-1).arg("WITHSCORES");
        let rows: Vec<(String, f64)> = self.query_confirmed(Tag::Agents, command).await?;
        let entry = |(revision, score): (String, f64)| HistoryEntry {
            revision: Revision::new(revision),
            put_at: Some(keys::time(score)).filter(|at| *at > Timestamp::UNIX_EPOCH),
        };
        Ok(rows.into_iter().rev().map(entry).collect())
    }

    async fn current_revisions(
        &self,
        name: &Scoped<AgentName>,
    ) -> Result<Option<CurrentRevisions>, StoreError> {
        let mut command = cmd("HMGET");
        command.arg(Tag::Agents.listing(name.prefix(), "newest").into_string());
        command.arg(name.local().as_str()).arg(rollout_field(&name.local()));
        // As with `newest`: a definition is confirmed as it is read, only that there is none is not.
        let mut found: (Option<String>, Option<String>) =
            self.query(Tag::Agents, command.clone()).await?;
        if found.0.is_none() {
            found = self.query_confirmed(Tag::Agents, command).await?;
        }
        let (newest, rollout) = found;
        let rollout = rollout.as_deref().map(parse_rollout).transpose()?;
        Ok(newest.map(|newest| CurrentRevisions { newest: Revision::new(newest), rollout }))
    }

    async fn add_revision(&self, tenant: &Tenant, agent: StoredAgent) -> Result<(), StoreError> {
        self.note_tenant(tenant).await?;
        let (tag, name) = (Tag::Agents, Scoped::new(tenant, &agent.name));
        let keys = [tag.listing(name.prefix(), "revisions"), tag.own(HISTORY, name.as_str())];
        let call = ScriptCall::new(&ADD_REVISION, tag, keys)
            .arg(agent.revision.as_str())
            .arg(self.sealed_agent(&name, &agent)?);
        self.call_durably::<u64>(call).await.map(drop)
    }

    async fn drop_revisions(
        &self,
        name: &Scoped<AgentName>,
        revisions: &[Revision],
        spared: usize,
    ) -> Result<(), StoreError> {
        let tag = Tag::Agents;
        let keys = [
            tag.listing(name.prefix(), "newest"),
            tag.listing(name.prefix(), "revisions"),
            tag.own(HISTORY, name.as_str()),
        ];
        let mut call =
            ScriptCall::new(&DROP_REVISIONS, tag, keys).arg(name.local().as_str()).arg(spared);
        for revision in revisions {
            call = call.arg(revision.as_str());
        }
        self.call_durably::<u64>(call).await.map(drop)
    }
}

/// The field beside the newest revision of a name; no name has a blank.
fn rollout_field(name: &AgentName) -> String {
    format!("{name} rollout")
}

fn parse_rollout(text: &str) -> Result<Rollout, StoreError> {
    let parsed = text.split_once(' ').and_then(|(revision, percent)| {
        Some(Rollout { revision: Revision::new(revision), percent: percent.parse().ok()? })
    });
    parsed.ok_or_else(|| refused(format!("a rollout is unreadable: {text}")))
}
