//! The operators' audit in Redis: its chains are in the slot of the agents, the decisions and the API
//! keys, so that one script writes both an entry and its effect.

use abide_actors::blobs::Blobs;
use abide_actors::journal::StoreError;
use abide_conversation::{Scoped, Tenant};
use async_trait::async_trait;
use redis::cmd;

use super::super::super::operations::{
    ChainEnd, ChainEntry, Effect, MAX_OPERATIONS, Operation, OperationLog, OperationOutcome,
};
use super::super::super::sealing::Label;
use super::super::Redis;
use super::super::administration::OTHER_REVISION;
use super::super::command::error::refused;
use super::super::command::keys::{Key, Tag};
use super::super::command::script::ScriptCall;
use super::super::rows::decode;
use super::super::scripts::{OPERATION, json};

/// What the scripts answer when a chain does not end where the entry was to follow.
const OTHER_END: u8 = 3;
/// How often an entry is made anew because another node's was first. One node tries one at a time,
/// and each round writes the entry of one.
const MAX_ATTEMPTS: usize = 64;

#[async_trait]
impl OperationLog for Redis {
    async fn operate(
        &self,
        operation: &Operation,
        effect: Effect,
    ) -> Result<OperationOutcome, StoreError> {
        if let Effect::DeleteBlob(id) = &effect
            && self.blob_info(id).await?.is_none()
        {
            return Ok(OperationOutcome { answer: false, entry: None });
        }
        let _turn = self.operating.lock().await;
        for _ in 0..MAX_ATTEMPTS {
            let entries = self.next_entries(operation).await?;
            let answer = self.write_with(&entries, &effect).await?;
            if answer == OTHER_END {
                continue;
            }
            let answer = match &effect {
                Effect::PutAgent { .. } => answer != OTHER_REVISION,
                _ => answer == 1,
            };
            if !answer && effect.needs_target() {
                return Ok(OperationOutcome { answer, entry: None });
            }
            let answer = match &effect {
                // It is in another slot than the chains.
                Effect::DeleteBlob(id) => self.delete_blob(id).await?,
                Effect::Follows
                | Effect::PutAgent { .. }
                | Effect::DeleteAgent { .. }
                | Effect::ChangeRollout(_)
                | Effect::ReplaceDecision { .. }
                | Effect::ChangeKey(_)
                | Effect::ChangeWebhooks(_) => answer,
            };
            return Ok(OperationOutcome { answer, entry: entries.of_cluster() });
        }
        Err(refused("too many nodes write into the operators' audit".to_owned()))
    }

    async fn operations(
        &self,
        tenant: Option<&Tenant>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<ChainEntry>, StoreError> {
        let found = self.entries_after(tenant, after, limit).await?;
        let chain = chain_name(tenant.map(Tenant::as_str));
        let found = found.into_iter().map(|(seq, stored)| {
            let seq = seq.to_string();
            let json = self.open_value(Label::operation(chain, &seq), stored.into())?;
            decode::parse("operation", &json)
        });
        found.collect()
    }
}

impl Redis {
    /// The entries of an operation that follow what the chains have now.
    async fn next_entries(&self, operation: &Operation) -> Result<NextEntries, StoreError> {
        let mut entries = Vec::new();
        for tenant in operation.tenant.as_ref().map(Some).into_iter().chain([None]) {
            let tenant = tenant.map(|tenant| tenant.as_str().to_owned());
            let [_, end] = keys_of(tenant.as_deref());
            let mut command = cmd("GET");
            command.arg(end.into_string());
            let end_text: Option<String> = self.query(Tag::Agents, command).await?;
            let end_text = end_text.unwrap_or_default();
            let entry = ChainEntry::after(&parse_end(&end_text)?, operation)?;
            let stored = self.stored_entry(tenant.as_deref(), &entry)?;
            entries.push(NextEntry { tenant, end_text, entry, stored });
        }
        Ok(NextEntries(entries))
    }

    /// At most `limit` entries of a chain after this `seq`, as they are stored.
    pub(in crate::store::redis) async fn entries_after(
        &self,
        tenant: Option<&Tenant>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
        let [entries, _] = keys_of(tenant.map(Tenant::as_str));
        let mut command = cmd("ZRANGE");
        command.arg(entries.into_string()).arg(format!("({after}")).arg("+inf").arg("BYSCORE");
        command.arg("LIMIT").arg(0).arg(limit).arg("WITHSCORES");
        let found: Vec<(Vec<u8>, f64)> = self.query_confirmed(Tag::Agents, command).await?;
        // A number of entries is exact as a float.
        Ok(found.into_iter().map(|(stored, seq)| (seq as u64, stored)).collect())
    }

    /// An entry as it is stored in the chain of a tenant, or of the cluster.
    pub(in crate::store::redis) fn stored_entry(
        &self,
        tenant: Option<&str>,
        entry: &ChainEntry,
    ) -> Result<Vec<u8>, StoreError> {
        let seq = entry.seq().to_string();
        let label = Label::operation(chain_name(tenant), &seq);
        Ok(self.seal(label, json(entry)?.into())?.into_owned())
    }

    async fn write_with(&self, entries: &NextEntries, effect: &Effect) -> Result<u8, StoreError> {
        match effect {
            Effect::Follows | Effect::DeleteBlob(_) => {
                let nonce = self.nonce();
                let mut keys = vec![Tag::Agents.own("done", &nonce)];
                keys.extend(entries.keys());
                let call = ScriptCall::new(&OPERATION, Tag::Agents, keys).entries(entries)?;
                self.call_durably(call).await
            }
            Effect::PutAgent { tenant, agent, response, newest } => {
                let (name, response) = (Scoped::new(tenant, &agent.name), response.clone());
                self.agent_if_by_script(&name, agent, response, newest.as_ref(), entries).await
            }
            Effect::DeleteAgent { name, response } => {
                self.agent_by_script(name, None, response.clone(), entries).await
            }
            Effect::ChangeRollout(change) => self.rollout_by_script(change, entries).await,
            Effect::ReplaceDecision { agent, decision } => {
                self.decision_by_script(agent, &decision.id, Some(decision), entries).await
            }
            Effect::ChangeKey(change) => self.api_key_by_script(change, entries).await,
            Effect::ChangeWebhooks(change) => self.webhooks_by_script(change, entries).await,
        }
    }
}

/// The next entries of an operation's chains; none for a write that is no operation.
pub(in crate::store::redis) struct NextEntries(Vec<NextEntry>);

struct NextEntry {
    /// The tenant that the chain belongs to; `None` for the cluster's.
    tenant: Option<String>,
    /// The end of the chain as its key has it.
    end_text: String,
    entry: ChainEntry,
    /// The entry as it is stored.
    stored: Vec<u8>,
}

impl NextEntries {
    pub(in crate::store::redis) fn none() -> Self {
        Self(Vec::new())
    }

    /// The keys that a script needs for the entries, in its order.
    pub(in crate::store::redis) fn keys(&self) -> impl Iterator<Item = Key<'_>> {
        self.0.iter().flat_map(|next| keys_of(next.tenant.as_deref()))
    }

    fn of_cluster(self) -> Option<ChainEntry> {
        self.0.into_iter().find(|next| next.tenant.is_none()).map(|next| next.entry)
    }
}

impl ScriptCall {
    /// Adds the arguments for the entries; they are the last ones.
    pub(in crate::store::redis) fn entries(
        mut self,
        entries: &NextEntries,
    ) -> Result<Self, StoreError> {
        for NextEntry { end_text, entry, stored, .. } in &entries.0 {
            let end = format!("{} {}", entry.seq(), entry.hash());
            self = self.arg(entry.seq()).arg(end_text).arg(end).arg(stored);
        }
        Ok(self.arg(MAX_OPERATIONS).arg(entries.0.len()))
    }
}

/// The name of the chain of a tenant, or of the cluster's. No tenant has an empty name.
pub(in crate::store::redis) fn chain_name(tenant: Option<&str>) -> &str {
    tenant.unwrap_or_default()
}

/// The entries of a chain, and its end.
pub(in crate::store::redis) fn keys_of(tenant: Option<&str>) -> [Key<'_>; 2] {
    let key = |name: &'static str| match tenant {
        Some(tenant) => Tag::Agents.own(name, tenant),
        None => Tag::Agents.common(name),
    };
    ["operations", "operations_end"].map(key)
}

fn parse_end(text: &str) -> Result<ChainEnd, StoreError> {
    if text.is_empty() {
        return Ok(ChainEnd::default());
    }
    let parsed = text.split_once(' ').and_then(|(seq, hash)| {
        let seq = seq.parse().ok()?;
        Some(ChainEnd { seq, hash: hash.to_owned() })
    });
    parsed.ok_or_else(|| refused(format!("the end of the operators' audit is unreadable: {text}")))
}
