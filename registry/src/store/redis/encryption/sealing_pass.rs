//! Seals what was written before there was a key file, and belongs to no conversation: definitions of
//! agents, webhooks, and the operators' audit.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use abide_actors::journal::StoreError;
use abide_conversation::{Revision, Scoped, Tenant};
use redis::cmd;

use super::super::super::Store;
use super::super::super::operations::ChainEntry;
use super::super::super::sealing::{self, Label, is_sealed};
use super::super::Redis;
use super::super::audit::operations::chain_name;
use super::super::backlog::notices::HOOKS;
use super::super::command::keys::{self, Tag};
use super::super::rows::decode;

/// How many definitions are read at once: each may have a megabyte.
const REVISIONS_AT_ONCE: usize = 16;
/// How many entries of a chain are read at once.
const ENTRIES_AT_ONCE: usize = 500;

impl Redis {
    /// Seals all of it. Returns how many things were plain. What is written meanwhile is sealed by
    /// whoever writes it.
    pub(super) async fn seal_plain(&self) -> Result<u64, StoreError> {
        let mut tenants = self.all_tenants().await?;
        let mut sealed = self.seal_webhooks().await?;
        // Earlier versions did not note which tenants have agents.
        sealed += self.seal_operations(None, &mut tenants).await?;
        for tenant in tenants.clone() {
            sealed += self.seal_definitions(&tenant).await?;
            sealed += self.seal_operations(Some(&tenant), &mut tenants).await?;
        }
        Ok(sealed)
    }

    async fn seal_webhooks(&self) -> Result<u64, StoreError> {
        let mut command = cmd("HGETALL");
        command.arg(Tag::Agents.key(HOOKS));
        let webhooks: BTreeMap<String, Vec<u8>> = self.query(Tag::Agents, command).await?;
        let mut sealed = 0;
        for (key, stored) in webhooks {
            sealed += self.seal_field(HOOKS, &key, Label::webhook(&key), &stored).await?;
        }
        Ok(sealed)
    }

    async fn seal_definitions(&self, tenant: &Tenant) -> Result<u64, StoreError> {
        let name = format!("{}revisions", keys::prefix_of(tenant));
        let mut command = cmd("HKEYS");
        command.arg(Tag::Agents.key(&name));
        let revisions: Vec<String> = self.query(Tag::Agents, command).await?;
        let mut sealed = 0;
        for some in revisions.chunks(REVISIONS_AT_ONCE) {
            let mut command = cmd("HMGET");
            command.arg(Tag::Agents.key(&name)).arg(some);
            let stored: Vec<Option<Vec<u8>>> = self.query(Tag::Agents, command).await?;
            for (revision, stored) in some.iter().zip(stored) {
                let Some(stored) = stored else { continue };
                let id = Scoped::new(tenant, &Revision::new(revision.as_str()));
                let label = Label::definition(&id);
                sealed += self.seal_field(&name, revision, label, &stored).await?;
            }
        }
        Ok(sealed)
    }

    /// Seals a field of a hash of the agents, if it is plain and still this. Returns how many it
    /// sealed.
    async fn seal_field(
        &self,
        hash: &str,
        field: &str,
        label: Label<'_>,
        stored: &[u8],
    ) -> Result<u64, StoreError> {
        if is_sealed(stored) {
            return Ok(0);
        }
        let next = self.seal(label, stored.into())?;
        let present = self.rekey(Tag::Agents.common(hash), field, stored, &next).await?;
        Ok(u64::from(present == *next))
    }

    /// Seals the entries of a chain, and notes of which tenants it tells.
    async fn seal_operations(
        &self,
        tenant: Option<&Tenant>,
        tenants: &mut BTreeSet<Tenant>,
    ) -> Result<u64, StoreError> {
        let chain = chain_name(tenant.map(Tenant::as_str));
        let (mut sealed, mut after) = (0, 0);
        loop {
            let found = self.entries_after(tenant, after, ENTRIES_AT_ONCE).await?;
            if found.is_empty() {
                return Ok(sealed);
            }
            for (seq, stored) in found {
                after = seq;
                let part = seq.to_string();
                let label = Label::operation(chain, &part);
                let json = self.open_value(label, Cow::Borrowed(&*stored)).map(Some);
                // One that cannot be read is sealed already.
                let Some(json) = sealing::listed(json)? else { continue };
                let entry: ChainEntry = decode::parse("operation", &json)?;
                tenants.extend(entry.tenant());
                if !is_sealed(&stored) {
                    let next = self.seal(label, Cow::Borrowed(&*stored))?;
                    let is_done = self.replace_entry(tenant, seq, &stored, &next).await?;
                    sealed += u64::from(is_done);
                }
            }
        }
    }
}
