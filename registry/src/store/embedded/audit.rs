//! The audit in the file: entries are found by conversation and removed when they expire.

use std::borrow::Cow;

use abide_actors::audit::{AuditEntry, AuditLog, MAX_ENTRIES};
use abide_actors::journal::StoreError;
use abide_conversation::{ConversationId, Scoped, Timestamp};
use async_trait::async_trait;
use redb::{Error, ReadableTable, Table, WriteTransaction};

use super::super::sealing::Label;
use super::Embedded;
use super::encryption::{Snapshot, failed};
use super::tables::{self, Nanos, nanos};
use super::write::Write;

/// Entries that one commit removes: more than the one that it can add, and some megabytes at most.
const MAX_REMOVED_ENTRIES: usize = 8;
/// The expiry of an entry that must not be found any more.
const HIDDEN_EXPIRY: Nanos = Nanos::MIN;

/// An entry as bytes.
pub(super) struct EncodedEntry {
    pub(super) id: Scoped<ConversationId>,
    key: String,
    at: Timestamp,
    expires_at: Timestamp,
    json: Vec<u8>,
}

#[async_trait]
impl AuditLog for Embedded {
    async fn put_entry(
        &self,
        id: &Scoped<ConversationId>,
        entry: &AuditEntry,
        expires_at: Timestamp,
    ) -> Result<(), StoreError> {
        let id = id.clone();
        let key = entry.key();
        let label = Label { kind: "audit", owner: id.as_str(), part: &key };
        let json = self.seal_json(label, entry)?;
        let entry = EncodedEntry { id, key, at: entry.at, expires_at, json };
        self.write(Write::Audit(entry)).await.map(|_| ())
    }

    async fn entries(
        &self,
        id: &Scoped<ConversationId>,
        before: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        let (id, before) = (id.clone(), before.map(str::to_owned));
        self.read(move |from| entries(from, id.as_str(), before.as_deref(), limit, now)).await
    }
}

fn entries(
    from: &Snapshot<'_>,
    id: &str,
    before: Option<&str>,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<AuditEntry>, Error> {
    let (kept, entries) = (from.open_table(tables::AUDITED)?, from.open_table(tables::AUDIT)?);
    let mut found = Vec::new();
    for (key, expires_at) in keys_of(&kept, id)?.into_iter().rev() {
        let wanted = nanos(now) < expires_at && before.is_none_or(|before| key.as_str() < before);
        if !wanted {
            continue;
        }
        if found.len() == limit {
            break;
        }
        if let Some(json) = entries.get((id, key.as_str()))? {
            let label = Label { kind: "audit", owner: id, part: &key };
            let json = match from.sealer {
                None => Cow::Borrowed(json.value()),
                Some(sealer) => sealer.open(label, json.value().into()).map_err(failed)?,
            };
            found.push(tables::parse("audit entry", &json)?);
        }
    }
    Ok(found)
}

/// The keys of a conversation's entries and when each expires: no more than the maximum of entries.
fn keys_of(
    kept: &impl ReadableTable<(&'static str, &'static str), Nanos>,
    id: &str,
) -> Result<Vec<(String, Nanos)>, Error> {
    let mut keys = Vec::new();
    for row in kept.range((id, "")..)? {
        let (key, expires_at) = row?;
        let (conversation, key) = key.value();
        if conversation != id {
            break;
        }
        keys.push((key.to_owned(), expires_at.value()));
    }
    Ok(keys)
}

/// The tables of one write transaction.
pub(super) struct Audit<'t> {
    /// Conversation, key → entry.
    entries: Table<'t, (&'static str, &'static str), &'static [u8]>,
    /// Conversation, key → expiry. An entry that is not here is not found.
    kept: Table<'t, (&'static str, &'static str), Nanos>,
    /// Expiry, conversation, key.
    expiries: Table<'t, (Nanos, &'static str, &'static str), ()>,
}

impl<'t> Audit<'t> {
    pub(super) fn open(transaction: &'t WriteTransaction) -> Result<Self, Error> {
        Ok(Self {
            entries: transaction.open_table(tables::AUDIT)?,
            kept: transaction.open_table(tables::AUDITED)?,
            expiries: transaction.open_table(tables::AUDIT_EXPIRIES)?,
        })
    }

    /// Keeps an entry of an existing conversation; the oldest entries beyond the maximum go.
    pub(super) fn keep(&mut self, entry: &EncodedEntry) -> Result<(), Error> {
        let id = entry.id.as_str();
        let key = &entry.key[..];
        let expires_at = nanos(entry.expires_at);
        self.entries.insert((id, key), entry.json.as_slice())?;
        self.kept.insert((id, key), expires_at)?;
        self.expiries.insert((expires_at, id, key), ())?;
        let keys = keys_of(&self.kept, id)?;
        let surplus = keys.len().saturating_sub(MAX_ENTRIES);
        for (key, expires_at) in &keys[..surplus] {
            self.hide(id, key, *expires_at)?;
        }
        self.sweep(nanos(entry.at)).map(|_| ())
    }

    /// Hides all entries of a conversation, which are then removed little by little.
    pub(super) fn forget(&mut self, id: &str) -> Result<(), Error> {
        for (key, expires_at) in keys_of(&self.kept, id)? {
            self.hide(id, &key, expires_at)?;
        }
        Ok(())
    }

    fn hide(&mut self, id: &str, key: &str, expires_at: Nanos) -> Result<(), Error> {
        self.kept.remove((id, key))?;
        self.expiries.remove((expires_at, id, key))?;
        self.expiries.insert((HIDDEN_EXPIRY, id, key), ())?;
        Ok(())
    }

    /// Removes some of the entries that have expired by `now`. Returns whether there were any.
    pub(super) fn sweep(&mut self, now: Nanos) -> Result<bool, Error> {
        for removed in 0..MAX_REMOVED_ENTRIES {
            let first = self.expiries.first()?.map(|first| {
                let (expires_at, id, key) = first.0.value();
                (expires_at, id.to_owned(), key.to_owned())
            });
            let Some((expires_at, id, key)) = first.filter(|(at, ..)| *at <= now) else {
                return Ok(removed > 0);
            };
            self.expiries.remove((expires_at, id.as_str(), key.as_str()))?;
            self.kept.remove((id.as_str(), key.as_str()))?;
            self.entries.remove((id.as_str(), key.as_str()))?;
        }
        Ok(true)
    }

    /// Removes some of the hidden entries. Returns whether there were any.
    pub(super) fn sweep_hidden(&mut self) -> Result<bool, Error> {
        self.sweep(HIDDEN_EXPIRY)
    }

    /// Whether there are hidden entries to remove.
    pub(super) fn has_hidden(&self) -> Result<bool, Error> {
        Ok(self.expiries.first()?.is_some_and(|first| first.0.value().0 == HIDDEN_EXPIRY))
    }
}
