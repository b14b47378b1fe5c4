//! The index of lists in the file.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::ops::Bound;

use abide_actors::journal::{Commit, ConversationSummary, Relisting, StoreError};
use abide_conversation::{ConversationId, Scoped, Tenant};
use async_trait::async_trait;
use redb::{
    Error, ReadOnlyTable, ReadTransaction, ReadableTable, Table, TableDefinition, TableError,
    WriteTransaction,
};
use serde::de::DeserializeOwned;

use super::super::listing::{
    Direction, Entry, IndexMember, ListQuery, ListedConversation, Plan, Position, merged,
};
use super::super::sealing::Sealer;
use super::super::{IndexJobs, ListError, Lists, Page, Rebuild, paging};
use super::encryption::Snapshot;
use super::tables::{self, Listed};
use super::write::Write;
use super::{Embedded, encode, read};

pub(super) const KIND: &str = "embedded";
/// Conversation → its entry.
const ENTRIES: TableDefinition<&str, &str> = TableDefinition::new("listed");
/// The members of the index.
pub(super) const MEMBERS: Listed<&str, ()> = Listed::new("list_members");

/// How far the index has been rebuilt, and which agents are to be indexed anew.
const REBUILDS: TableDefinition<&str, &[u8]> = TableDefinition::new("rebuilds");
const INDEX: &str = "lists";
const JOBS: &str = "index_jobs";

/// The index in one transaction. Its tables are opened once for all writes, and only if one needs them.
pub(super) struct ListTables<'t> {
    transaction: &'t WriteTransaction,
    entries: Option<Table<'t, &'static str, &'static str>>,
    members: BTreeMap<Tenant, Table<'t, &'static str, ()>>,
}

impl<'t> ListTables<'t> {
    pub(super) fn new(transaction: &'t WriteTransaction) -> Self {
        Self { transaction, entries: None, members: BTreeMap::new() }
    }

    /// Changes the entry of a conversation as the commit says, which has the whole one if it writes it;
    /// it is new if it has no journal yet.
    pub(super) fn relist(
        &mut self,
        id: &Scoped<ConversationId>,
        commit: &Commit,
        whole: Option<&Entry>,
        is_new: bool,
    ) -> Result<(), Error> {
        if whole.is_none() && !is_new && matches!(commit.relisting, Relisting::Unchanged) {
            return Ok(());
        }
        let (summary, before) = (&commit.summary, self.entry(id)?);
        let after = match (whole, &commit.relisting) {
            (Some(whole), _) => whole.clone(),
            (None, Relisting::Whole { indexed }) => Entry::new(summary, indexed, None),
            (None, Relisting::Touched | Relisting::Unchanged) if is_new => {
                Entry::new(summary, &[], None)
            }
            (None, Relisting::Touched | Relisting::Unchanged) => match &before {
                Some(entry) => entry.touched(summary),
                None => return Ok(()),
            },
        };
        self.change(id, before.as_ref(), Some(&after))
    }

    /// Replaces the entry of a conversation.
    pub(super) fn replace(
        &mut self,
        id: &Scoped<ConversationId>,
        after: Option<&Entry>,
    ) -> Result<(), Error> {
        let before = self.entry(id)?;
        self.change(id, before.as_ref(), after)
    }

    fn change(
        &mut self,
        id: &Scoped<ConversationId>,
        before: Option<&Entry>,
        after: Option<&Entry>,
    ) -> Result<(), Error> {
        let removed = before.into_iter().flat_map(|before| before.members_beside(after, id));
        let added = after.into_iter().flat_map(|after| after.members_beside(before, id));
        let (mut removed, mut added) = (removed.peekable(), added.peekable());
        if removed.peek().is_some() || added.peek().is_some() {
            let members = self.members_of(id.tenant())?;
            for member in removed {
                members.remove(member.concat().as_str())?;
            }
            for member in added {
                members.insert(member.concat().as_str(), ())?;
            }
        }
        match after {
            Some(after) => self.entries()?.insert(id.as_str(), after.as_str()).map(drop)?,
            None => self.entries()?.remove(id.as_str()).map(drop)?,
        }
        Ok(())
    }

    fn members_of(&mut self, tenant: Tenant) -> Result<&mut Table<'t, &'static str, ()>, Error> {
        Ok(match self.members.entry(tenant) {
            Slot::Occupied(open) => open.into_mut(),
            Slot::Vacant(slot) => {
                let members = MEMBERS.open_to_write(self.transaction, slot.key())?;
                slot.insert(members)
            }
        })
    }

    fn entries(&mut self) -> Result<&mut Table<'t, &'static str, &'static str>, Error> {
        Ok(match &mut self.entries {
            Some(open) => open,
            none => none.insert(self.transaction.open_table(ENTRIES)?),
        })
    }

    fn entry(&mut self, id: &Scoped<ConversationId>) -> Result<Option<Entry>, Error> {
        let text = self.entries()?.get(id.as_str())?;
        Ok(text.and_then(|text| Entry::parse(text.value())))
    }
}

#[async_trait]
impl Lists for Embedded {
    async fn list(
        &self,
        tenant: &Tenant,
        query: &ListQuery,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<ListedConversation>, ListError> {
        let index_key = self.sealer().and_then(Sealer::index_key);
        let Some(plan) = Plan::new(KIND, tenant, query, cursor, index_key)? else {
            return Ok(paging::empty());
        };
        let (tenant, query) = (tenant.clone(), query.clone());
        Ok(self.read(move |from| page(from, &tenant, &query, plan, limit)).await?)
    }

    async fn relist(
        &self,
        id: &Scoped<ConversationId>,
        summary: &ConversationSummary,
        indexed: &[String],
    ) -> Result<bool, StoreError> {
        // What a list could not show of it must not be overwritten by that.
        if let Err(StoreError::Unreadable(_)) = self.read_row(|from| read::record(from, id)) {
            return Ok(true);
        }
        let index_key = self.sealer().and_then(Sealer::new_index_key);
        let entry = Entry::new(summary, indexed, index_key);
        let mut summary = Box::new(summary.clone());
        let sealed = self.sealed_listing(id, &mut summary)?;
        let relist = ListWrite::Relist { id: id.clone(), summary, sealed, entry };
        self.write(Write::List(Box::new(relist))).await
    }

    async fn rebuild(&self) -> Result<Option<Rebuild>, StoreError> {
        self.read_row(|from| progress(from, INDEX))
    }

    async fn replace_rebuild(
        &self,
        present: Option<&Rebuild>,
        next: &Rebuild,
    ) -> Result<bool, StoreError> {
        let present = present.map(encode::json).transpose()?.unwrap_or_default();
        let replace = ListWrite::ReplaceProgress { of: INDEX, present, next: encode::json(next)? };
        self.write(Write::List(Box::new(replace))).await
    }

    async fn index_jobs(&self) -> Result<IndexJobs, StoreError> {
        self.read_row(|from| progress(from, JOBS)).map(Option::unwrap_or_default)
    }

    async fn replace_index_jobs(
        &self,
        present: &IndexJobs,
        next: &IndexJobs,
    ) -> Result<bool, StoreError> {
        let present = match present.version {
            0 => Vec::new(),
            _ => encode::json(present)?,
        };
        let replace = ListWrite::ReplaceProgress { of: JOBS, present, next: encode::json(next)? };
        self.write(Write::List(Box::new(replace))).await
    }
}

/// A write to the index of lists that is no commit of a conversation.
pub(super) enum ListWrite {
    Relist {
        id: Scoped<ConversationId>,
        summary: Box<ConversationSummary>,
        /// What the summary says of the content, if that is sealed.
        sealed: Option<String>,
        entry: Entry,
    },
    ReplaceProgress {
        of: &'static str,
        present: Vec<u8>,
        next: Vec<u8>,
    },
}

/// Replaces a progress, if it is still what is stored.
pub(super) fn replace_progress(
    to: &WriteTransaction,
    of: &str,
    present: &[u8],
    next: &[u8],
) -> Result<bool, Error> {
    let mut rebuilds = to.open_table(REBUILDS)?;
    let stored = rebuilds.get(of)?.map(|json| json.value().to_vec()).unwrap_or_default();
    let is_present = stored == present;
    if is_present {
        rebuilds.insert(of, next)?;
    }
    Ok(is_present)
}

/// Whether all names of blobs are known.
pub(super) fn has_blob_names(from: &WriteTransaction) -> Result<bool, Error> {
    let rebuilds = from.open_table(REBUILDS)?;
    let json = rebuilds.get(INDEX)?;
    let rebuild = json.map(|json| tables::parse::<Rebuild>("rebuild", json.value())).transpose()?;
    Ok(rebuild.is_some_and(|rebuild| rebuild.has_blob_names))
}

fn progress<T: DeserializeOwned>(from: &ReadTransaction, of: &str) -> Result<Option<T>, Error> {
    let rebuilds = match from.open_table(REBUILDS) {
        Ok(rebuilds) => rebuilds,
        // No rebuild has begun.
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let json = rebuilds.get(of)?;
    json.map(|json| tables::parse(of, json.value())).transpose()
}

fn page(
    from: &Snapshot<'_>,
    tenant: &Tenant,
    query: &ListQuery,
    mut plan: Plan,
    limit: usize,
) -> Result<Page<ListedConversation>, Error> {
    let Some(members) = MEMBERS.open(from, tenant)? else { return Ok(paging::empty()) };
    let rows = suffixes(&members, &mut plan)?.filter_map(|suffix| match suffix {
        Err(error) => Some(Err(error)),
        Ok(suffix) => {
            let listed = listed(from, &suffix).transpose()?;
            Some(listed.map(|listed| (plan.position(&suffix), listed)))
        }
    });
    paging::page::<Position, _, _>(rows, limit, |listed| query.admits(&listed.summary))
}

/// The suffixes of the members that a page reads, in their order: those of the property that has the
/// fewest.
pub(super) fn suffixes(
    members: &ReadOnlyTable<&'static str, ()>,
    plan: &mut Plan,
) -> Result<impl Iterator<Item = Result<String, Error>> + use<>, Error> {
    plan.choose_by_count(|plan, prefix, most| {
        let Some((first, last)) = plan.bounds(prefix, None) else { return Ok(0) };
        let bounds = (Bound::Excluded(first.as_str()), Bound::Excluded(last.as_str()));
        Ok::<_, Error>(members.range::<&str>(bounds)?.take(most).count())
    })?;
    let mut ranges = Vec::new();
    for prefix in plan.prefixes() {
        let Some((first, last)) = plan.bounds(prefix, None) else { continue };
        let bounds = (Bound::Excluded(first.as_str()), Bound::Excluded(last.as_str()));
        let mut rows = members.range::<&str>(bounds)?;
        let direction = plan.direction();
        ranges.push(std::iter::from_fn(move || {
            let row = match direction {
                Direction::Ascending => rows.next()?,
                Direction::Descending => rows.next_back()?,
            };
            let suffix = row.map(|row| IndexMember::parse(row.0.value()).map(|place| place.suffix));
            // A member that cannot be read is none of this listing.
            Some(suffix.map(Option::unwrap_or_default).map_err(Error::from))
        }));
    }
    Ok(merged(ranges, plan.direction()))
}

fn listed(from: &Snapshot<'_>, suffix: &str) -> Result<Option<ListedConversation>, Error> {
    let Some(IndexMember { id, .. }) = IndexMember::from_suffix(suffix) else { return Ok(None) };
    let Some(record) = read::sealed_record(from, &id)? else { return Ok(None) };
    let pending = read::open_keys(from, &id)?.len();
    let summary = record.listed(from.sealer, &id)?;
    Ok(Some(ListedConversation { id, summary, pending }))
}
