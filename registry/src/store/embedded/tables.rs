//! The tables of the file, and how keys and values are written in them.

use std::collections::BTreeSet;
use std::marker::PhantomData;

use abide_actors::identity::Epoch;
use abide_actors::journal::ConversationSummary;
use abide_conversation::{AgentName, CallId, ConversationId, Scoped, Tenant, Timestamp};
use redb::{
    Database, Error, Key, ReadOnlyTable, ReadTransaction, ReadableTable, Table, TableDefinition,
    TableError, TableHandle, Value, WriteTransaction,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub(super) use super::super::commit_rules::STATE_FORMAT;
use super::super::paging::InboxKey;
use super::super::sealing;
use super::{blob_names, blobs, encryption, notices, staging};

type Json = &'static [u8];
type Text = &'static str;
/// A timestamp as nanoseconds since 1970, so that keys sort by time.
pub(super) type Nanos = i128;

/// The format of the file; another version of the program may use another number.
pub(super) const FORMAT: u64 = 1;

pub(super) const META: TableDefinition<Text, u64> = TableDefinition::new("meta");
/// Conversation, seq → event.
pub(super) const JOURNAL: TableDefinition<(Text, u64), Json> = TableDefinition::new("journal");
/// Deleted conversations whose events have not all been removed yet.
pub(super) const UNSWEPT: TableDefinition<Text, ()> = TableDefinition::new("doomed");
/// Conversation → [`Record`].
pub(super) const HEADS: Listed<Text, Json> = Listed::new("heads");
/// Conversation → format and folded state.
pub(super) const STATES: TableDefinition<Text, (u32, Json)> = TableDefinition::new("states");
/// Deadline, conversation, call, suspension → inbox entry.
pub(super) const INBOX: Listed<(Nanos, Text, Text, u32), Json> = Listed::new("inbox");
/// Conversation, call, suspension → deadline, to find a conversation's entries in the inbox.
pub(super) const OPEN: TableDefinition<(Text, Text, u32), Nanos> = TableDefinition::new("open");
/// Due time, conversation.
pub(super) const ALARMS: TableDefinition<(Nanos, Text), ()> = TableDefinition::new("alarms");
pub(super) const ACTIVE: TableDefinition<Text, ()> = TableDefinition::new("active");
/// Scope, key → response.
pub(super) const RESPONSES: TableDefinition<(Text, Text), Json> = TableDefinition::new("answers");
/// Expiry, scope, key of a response.
pub(super) const EXPIRIES: TableDefinition<(Nanos, Text, Text), ()> =
    TableDefinition::new("expiries");
/// Agent → its newest revision.
pub(super) const AGENTS: Listed<Text, Text> = Listed::new("agents");
/// Revision → definition.
pub(super) const REVISIONS: TableDefinition<Text, Json> = TableDefinition::new("revisions");
/// Agent, decision → remembered decision.
pub(super) const DECISIONS: TableDefinition<(Text, Text), Json> = TableDefinition::new("decisions");
/// API key → what is stored of it.
pub(super) const API_KEYS: TableDefinition<Text, Json> = TableDefinition::new("api_keys");
/// API key → when it was last used.
pub(super) const API_KEYS_USED: TableDefinition<Text, Nanos> =
    TableDefinition::new("api_keys_used");
/// Blob → its bytes.
pub(super) const BLOBS: TableDefinition<Text, &[u8]> = TableDefinition::new("blobs");
/// Blob → its media type and size.
pub(super) const BLOB_TYPES: TableDefinition<Text, (Text, u64)> =
    TableDefinition::new("blob_types");
/// Conversation, key → an entry of the audit.
pub(super) const AUDIT: TableDefinition<(Text, Text), Json> = TableDefinition::new("audit");
/// Conversation, key → when the entry expires.
pub(super) const AUDITED: TableDefinition<(Text, Text), Nanos> = TableDefinition::new("audited");
/// Expiry, conversation, key of an entry.
pub(super) const AUDIT_EXPIRIES: TableDefinition<(Nanos, Text, Text), ()> =
    TableDefinition::new("audit_expiries");

/// Tenant, or nothing for the cluster, and seq → an entry of the operators' audit.
pub(super) const OPERATIONS: TableDefinition<(Text, u64), Json> =
    TableDefinition::new("operations");

/// Queue, tool, since, conversation, call → the attempt that waits.
pub(super) const QUEUES: Listed<(Text, Text, Nanos, Text, Text), u32> = Listed::new("queues");
/// Conversation → its calls that wait in queues.
pub(super) const QUEUED: TableDefinition<Text, Json> = TableDefinition::new("queued");
/// Day, tenant, partition, row of usage → its numbers.
pub(super) const USAGE: TableDefinition<(Text, Text, u16, Text), Text> =
    TableDefinition::new("usage");
/// Tenant → how many bytes its blobs have.
pub(super) const BLOB_BYTES: TableDefinition<Text, u64> = TableDefinition::new("blob_bytes");

/// Conversation → how many processes ended while it was at work.
pub(super) const DEATHS: TableDefinition<Text, u32> = TableDefinition::new("deaths");

/// Webhook → what is stored of it.
pub(super) const WEBHOOKS: TableDefinition<Text, Json> = TableDefinition::new("webhooks");
/// Webhook, conversation, seq → a notice that is owed.
pub(super) const OWED: TableDefinition<(Text, Text, u64), Json> = TableDefinition::new("owed");
/// Webhook, conversation → the head of the queue: its seq, attempts and times.
pub(super) const OWED_HEADS: TableDefinition<(Text, Text), Json> =
    TableDefinition::new("owed_heads");
/// Webhook, due time of a head, conversation.
pub(super) const OWED_DUE: TableDefinition<(Text, Nanos, Text), ()> =
    TableDefinition::new("owed_due");
/// Webhook, since when a head is owed, conversation.
pub(super) const OWED_SINCE: TableDefinition<(Text, Nanos, Text), ()> =
    TableDefinition::new("owed_since");
/// Webhook → how many notices are owed to it.
pub(super) const OWED_COUNTS: TableDefinition<Text, u64> = TableDefinition::new("owed_counts");
/// Webhook, partition, time of death, conversation, seq → a dead notice.
pub(super) const DEAD_NOTICES: TableDefinition<(Text, u16, Nanos, Text, u64), Json> =
    TableDefinition::new("dead_notices");

/// The row of [`META`] that counts the changes of webhooks.
pub(super) const WEBHOOKS_ROW: &str = "webhooks";
/// The row of [`META`] that counts the changes of API keys.
pub(super) const API_KEYS_ROW: &str = "api_keys";
/// The row of [`META`] with the number of blobs whose bytes are counted.
pub(super) const BLOBS_ROW: &str = "blobs";

/// A table that is listed, and so one for each tenant: that of `acme` is `acme/heads`, that of the
/// tenant `default` just `heads`. Its keys are as those of the tables of all tenants.
pub(super) struct Listed<K: Key + 'static, V: Value + 'static> {
    name: &'static str,
    types: PhantomData<(K, V)>,
}

impl<K: Key + 'static, V: Value + 'static> Listed<K, V> {
    pub(super) const fn new(name: &'static str) -> Self {
        Self { name, types: PhantomData }
    }

    fn name(&self, tenant: &Tenant) -> String {
        Scoped::new(tenant, &AgentName::new(self.name)).to_string()
    }

    /// Opens the table of a tenant; `None` if nothing of the tenant was ever in it.
    pub(super) fn open(
        &self,
        from: &ReadTransaction,
        tenant: &Tenant,
    ) -> Result<Option<ReadOnlyTable<K, V>>, Error> {
        match from.open_table(TableDefinition::new(&self.name(tenant))) {
            Ok(table) => Ok(Some(table)),
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens the table of a tenant, and creates it if necessary.
    pub(super) fn open_to_write<'t>(
        &self,
        to: &'t WriteTransaction,
        tenant: &Tenant,
    ) -> Result<Table<'t, K, V>, Error> {
        Ok(to.open_table(TableDefinition::new(&self.name(tenant)))?)
    }
}

/// The tenants that have, or had, conversations.
pub(super) fn tenants(from: &ReadTransaction) -> Result<BTreeSet<Tenant>, Error> {
    let tables = from.list_tables()?.filter_map(|table| {
        let name = Scoped::<AgentName>::parse(table.name()).ok()?;
        (name.local().as_str() == HEADS.name).then(|| name.tenant())
    });
    Ok(tables.collect())
}

/// The tenants that have, or had, a table of their own, a definition, a webhook or an API key.
pub(super) fn all_tenants(from: &ReadTransaction) -> Result<BTreeSet<Tenant>, Error> {
    let tables = from.list_tables()?.filter_map(|table| {
        Scoped::<AgentName>::parse(table.name()).ok().map(|name| name.tenant())
    });
    let mut tenants: BTreeSet<Tenant> = tables.collect();
    for keys in [REVISIONS, WEBHOOKS, API_KEYS] {
        let table = match from.open_table(keys) {
            Ok(table) => table,
            // A store of an earlier version that had no room for the table.
            Err(TableError::TableDoesNotExist(_)) => continue,
            Err(error) => return Err(error.into()),
        };
        for row in table.range::<&str>(..)? {
            let name = Scoped::<AgentName>::parse(row?.0.value());
            tenants.extend(name.map(|name| name.tenant()));
        }
    }
    Ok(tenants)
}

/// The row of [`META`] that is 1 while a process has the store open, and 0 after it closed it.
const OPEN_ROW: &str = "open";

/// What is stored about a conversation in addition to its journal.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    /// The epoch of the claim that appended last.
    pub(super) epoch: Epoch,
    #[serde(rename = "head")]
    pub(super) summary: ConversationSummary,
    /// The wrapped data key, if the conversation has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    /// What the summary says of the content, if that is sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sealed: Option<String>,
}

/// Creates the tables, so that reading never meets a missing one.
pub(super) fn create(transaction: &WriteTransaction) -> Result<(), Error> {
    transaction.open_table(META)?.insert("format", FORMAT)?;
    transaction.open_table(JOURNAL)?;
    transaction.open_table(UNSWEPT)?;
    HEADS.open_to_write(transaction, &Tenant::default())?;
    transaction.open_table(STATES)?;
    INBOX.open_to_write(transaction, &Tenant::default())?;
    transaction.open_table(OPEN)?;
    transaction.open_table(ALARMS)?;
    transaction.open_table(ACTIVE)?;
    transaction.open_table(RESPONSES)?;
    transaction.open_table(EXPIRIES)?;
    AGENTS.open_to_write(transaction, &Tenant::default())?;
    transaction.open_table(REVISIONS)?;
    transaction.open_table(DECISIONS)?;
    transaction.open_table(BLOBS)?;
    transaction.open_table(BLOB_TYPES)?;
    transaction.open_table(AUDIT)?;
    transaction.open_table(AUDITED)?;
    transaction.open_table(AUDIT_EXPIRIES)?;
    Ok(())
}

/// Marks the store as open, or as closed. Returns the conversations that were at work when the last
/// process ended without closing the store.
pub(super) fn mark_open(
    database: &Database,
    is_open: bool,
) -> Result<BTreeSet<Scoped<ConversationId>>, Error> {
    let transaction = database.begin_write()?;
    let was_open = {
        let mut meta = transaction.open_table(META)?;
        let before = meta.insert(OPEN_ROW, u64::from(is_open))?;
        before.is_some_and(|before| before.value() == 1)
    };
    let mut interrupted = BTreeSet::new();
    if was_open && is_open {
        for row in transaction.open_table(ACTIVE)?.iter()? {
            interrupted.insert(id(row?.0.value())?);
        }
    }
    transaction.open_table(DEATHS)?;
    transaction.open_table(API_KEYS)?;
    transaction.open_table(API_KEYS_USED)?;
    transaction.open_table(OPERATIONS)?;
    transaction.open_table(USAGE)?;
    notices::create(&transaction)?;
    blob_names::create(&transaction)?;
    staging::clear(&transaction)?;
    blobs::count_again(&transaction)?;
    transaction.commit()?;
    Ok(interrupted)
}

/// The id that a row of the file contains.
pub(super) fn id<N>(text: &str) -> Result<Scoped<N>, Error> {
    Scoped::parse(text).map_err(|error| Error::Corrupted(format!("{text}: {error}")))
}

pub(super) fn nanos(at: Timestamp) -> Nanos {
    at.as_nanosecond()
}

pub(super) fn timestamp(nanos: Nanos) -> Result<Timestamp, Error> {
    Timestamp::from_nanosecond(nanos).map_err(|error| Error::Corrupted(format!("time: {error}")))
}

pub(super) fn inbox_key((at, id, call, suspension): &InboxKey) -> (Nanos, &str, &str, u32) {
    (nanos(*at), id.as_str(), call.as_str(), *suspension)
}

pub(super) fn inbox_key_from_row(key: (Nanos, &str, &str, u32)) -> Result<InboxKey, Error> {
    let (at, text, call, suspension) = key;
    Ok((timestamp(at)?, id(text)?, CallId::new(call), suspension))
}

/// Decodes a value that this program wrote; `what` names it in the error.
pub(super) fn parse<T: DeserializeOwned>(what: &str, json: &[u8]) -> Result<T, Error> {
    sealing::parse(what, json).map_err(encryption::failed)
}
