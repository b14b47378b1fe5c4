//! Erasures in Redis: few, and all in one slot: a hash of them, one of their versions, a sorted set of
//! when they are due, and a listing for each tenant.

use std::borrow::Cow;

use abide_actors::journal::{Rewrite, StoreError};
use abide_conversation::erase::SubjectAlias;
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::{
    AgentName, ConversationId, DecisionId, ErasureId, Scoped, Tenant, Timestamp,
};
use async_trait::async_trait;
use jiff::civil::Date;
use redis::cmd;

use super::super::super::erasures::Erasures;
use super::super::super::listing::Entry;
use super::super::super::operations::ChainEntry;
use super::super::super::sealing::{Label, Sealer};
use super::super::super::usage::owner_suffix;
use super::super::super::{ListError, Page, paging};
use super::super::Redis;
use super::super::audit::operations;
use super::super::command::keys::{self, Tag};
use super::super::command::script::ScriptCall;
use super::super::journal::commit_writes::inbox_entry;
use super::super::rows::decode::{self, inbox_label};
use super::super::scripts::{
    FORGET_SCHEDULE, RENAME_USAGE, REPLACE_DECISION, REPLACE_OPERATION, REWRITE, SCHEDULE, json,
    outcome,
};
use crate::erasure::Erasure;

const ERASURES: &str = "erasures";
const VERSIONS: &str = "erasure_versions";
const DUE: &str = "erasures_due";
const NAMES: &str = "erasure_names";

#[async_trait]
impl Erasures for Redis {
    async fn erasure(&self, name: &Scoped<ErasureId>) -> Result<Option<Erasure>, StoreError> {
        let mut command = cmd("HGET");
        command.arg(Tag::Agents.key(ERASURES)).arg(name.as_str());
        let json: Option<Vec<u8>> = self.query_confirmed(Tag::Agents, command).await?;
        json.map(|json| self.opened(name, &json)).transpose()
    }

    async fn replace_erasure(
        &self,
        name: &Scoped<ErasureId>,
        known: Option<u64>,
        next: Option<&Erasure>,
    ) -> Result<bool, StoreError> {
        let (tag, nonce) = (Tag::Agents, self.nonce());
        let keys = [
            tag.common(ERASURES),
            tag.common(VERSIONS),
            tag.common(DUE),
            tag.listing(name.prefix(), NAMES),
            tag.own("done", &nonce),
        ];
        let known = known.map(|version| version.to_string()).unwrap_or_default();
        let script = if next.is_some() { &SCHEDULE } else { &FORGET_SCHEDULE };
        let call = ScriptCall::new(script, tag, keys).arg(name.as_str()).arg(known);
        let call = match next {
            Some(next) => {
                let sealed = self.seal(label(name), json(next)?.into())?;
                call.arg(next.version).arg(&*sealed).arg(keys::score(next.due_at()))
            }
            None => call.arg("").arg("").arg(""),
        };
        self.call_durably(call).await
    }

    async fn erasures(
        &self,
        tenant: &Tenant,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<Erasure>, ListError> {
        let after: Option<Scoped<ErasureId>> = paging::decode(cursor)?;
        if after.as_ref().is_some_and(|after| !after.is_of(tenant)) {
            return Err(ListError::Cursor);
        }
        let prefix = keys::prefix_of(tenant);
        let first = after.map_or("-".to_owned(), |after| format!("({after}"));
        let mut command = cmd("ZRANGE");
        command.arg(Tag::Agents.listing(&prefix, NAMES).into_string());
        // One more than the page holds shows whether it is the last.
        let limit = limit.max(1);
        command.arg(first).arg("+").arg("BYLEX").arg("LIMIT").arg(0).arg(limit + 1);
        let mut names: Vec<String> = self.query_confirmed(Tag::Agents, command).await?;
        let has_more = names.len() > limit;
        names.truncate(limit);
        let last = names.last().cloned().filter(|_| has_more);
        if names.is_empty() {
            return Ok(paging::empty());
        }
        let mut command = cmd("HMGET");
        command.arg(Tag::Agents.key(ERASURES)).arg(&names);
        let found: Vec<Option<Vec<u8>>> = self.query_confirmed(Tag::Agents, command).await?;
        let found = names.iter().zip(found).filter_map(|(name, json)| Some((name, json?)));
        let found = found.map(|(name, json)| self.opened(&parsed(name)?, &json));
        let items = found.collect::<Result<_, StoreError>>()?;
        Ok(Page { items, cursor: last.map(|last| paging::encode(&last)) })
    }

    async fn due_erasures(
        &self,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<Scoped<ErasureId>>, StoreError> {
        let mut command = cmd("ZRANGE");
        command.arg(Tag::Agents.key(DUE)).arg("-inf").arg(keys::score_until(until));
        command.arg("BYSCORE").arg("LIMIT").arg(0).arg(limit);
        let names: Vec<String> = self.query(Tag::Agents, command).await?;
        names.iter().map(|name| parsed(name)).collect()
    }

    async fn rename_usage(
        &self,
        tenant: &Tenant,
        last: Date,
        alias: &SubjectAlias,
    ) -> Result<(), StoreError> {
        let prefix = keys::prefix_of(tenant);
        let (was, is) = (owner_suffix(&alias.subject), owner_suffix(&alias.alias));
        for (tag, name) in self.usage_keys_until(&prefix, last).await? {
            let call = ScriptCall::new(&RENAME_USAGE, tag, [tag.listing(&prefix, &name)]);
            self.call_durably::<u64>(call.arg(&was).arg(&is)).await?;
        }
        Ok(())
    }

    async fn replace_operation(
        &self,
        tenant: Option<&Tenant>,
        entry: &ChainEntry,
    ) -> Result<(), StoreError> {
        let stored = self.stored_entry(tenant.map(Tenant::as_str), entry)?;
        self.replace_entry(tenant, entry.seq(), b"", &stored).await.map(drop)
    }

    async fn replace_decision(
        &self,
        agent: &Scoped<AgentName>,
        read: &RememberedDecision,
        next: &RememberedDecision,
    ) -> Result<bool, StoreError> {
        let label = Label { kind: "decision", owner: agent.as_str(), part: "" };
        let mut command = cmd("HGET");
        command.arg(Tag::Agents.key_of("decisions", agent.as_str())).arg(read.id.as_str());
        let stored: Option<Vec<u8>> = self.query_confirmed(Tag::Agents, command).await?;
        let Some(stored) = stored else { return Ok(false) };
        let present = self.open_value(label, Cow::Borrowed(&stored))?;
        if decode::parse::<RememberedDecision>("decision", &present)? != *read {
            return Ok(false);
        }
        let sealed = self.seal(label, json(next)?.into())?;
        self.replace_decision_by_script(agent, &read.id, &stored, &sealed).await
    }
}

fn parsed(name: &str) -> Result<Scoped<ErasureId>, StoreError> {
    Scoped::parse(name).map_err(|error| StoreError::Unavailable(error.to_string()))
}

/// An erasure names the person while it runs.
fn label(name: &Scoped<ErasureId>) -> Label<'_> {
    Label { kind: "erasure", owner: name.as_str(), part: "" }
}

impl Redis {
    fn opened(&self, name: &Scoped<ErasureId>, json: &[u8]) -> Result<Erasure, StoreError> {
        decode::parse("erasure", &self.open_value(label(name), json.into())?)
    }

    /// Replaces a decision if this is stored of it. Returns whether that was so.
    pub(in crate::store::redis) async fn replace_decision_by_script(
        &self,
        agent: &Scoped<AgentName>,
        id: &DecisionId,
        stored: &[u8],
        next: &[u8],
    ) -> Result<bool, StoreError> {
        let key = Tag::Agents.own("decisions", agent.as_str());
        let call = ScriptCall::new(&REPLACE_DECISION, Tag::Agents, [key]);
        let call = call.arg(id.as_str()).arg(stored).arg(next);
        Ok(self.call_durably::<u8>(call).await? == 1)
    }

    /// Replaces the entry of this number in a chain, if it is as expected; nothing stands for any.
    /// Returns whether it is the new one.
    pub(in crate::store::redis) async fn replace_entry(
        &self,
        tenant: Option<&Tenant>,
        seq: u64,
        expected: &[u8],
        next: &[u8],
    ) -> Result<bool, StoreError> {
        let [entries, _] = operations::keys_of(tenant.map(Tenant::as_str));
        let call = ScriptCall::new(&REPLACE_OPERATION, Tag::Agents, [entries]);
        self.call_durably(call.arg(seq).arg(next).arg(expected)).await
    }

    /// Replaces events and what is stored beside the journal.
    pub(in crate::store::redis) async fn rewrite_by_script(
        &self,
        id: &Scoped<ConversationId>,
        held: &abide_actors::journal::Claim,
        rewrite: &Rewrite,
    ) -> Result<(), StoreError> {
        let (tag, summary) = (Tag::of(id), &rewrite.summary);
        let own = |kind| tag.own(kind, id.as_str());
        let index = tag.listing(id.prefix(), super::super::listing::INDEX);
        let keys = [own("c"), own("j"), own("s"), own("o"), index];
        let (own, sealer) = (self.present_key(id).await?, self.sealer.as_deref());
        let form = self.stored_form(own.as_ref());
        let mut call = ScriptCall::new(&REWRITE, tag, keys)
            .held(held)
            .arg(id.as_str())
            .arg(summary.last_seq.get())
            .arg(rewrite.events.len());
        for event in &rewrite.events {
            let stored = form.of_event(event.seq, json(event)?.into())?;
            call = call.arg(event.seq.get().saturating_sub(1)).arg(&*stored);
        }
        call = call.arg(rewrite.open.len());
        for pending in &rewrite.open {
            let member = keys::inbox_member(&keys::pending_key(id, pending));
            let entry = inbox_entry(id, summary, pending, form.compression)?;
            let entry = self.seal(inbox_label(id), entry)?;
            call = call.arg(member).arg(&*entry);
        }
        let index_key = sealer.and_then(Sealer::new_index_key);
        let entry = Entry::new(summary, &rewrite.indexed, index_key);
        let call = call.listed(summary, &entry, form)?;
        outcome(&self.call_large::<String>(call).await?)
    }
}
