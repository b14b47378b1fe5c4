//! Seals what was written before there was a key file, and belongs to no conversation: definitions of
//! agents, webhooks, and the operators' audit.

use std::borrow::{Borrow, Cow};
use std::ops::Bound;

use abide_actors::journal::StoreError;
use abide_conversation::Revision;
use redb::{Error, Key, ReadableTable, Table, TableDefinition, TableError};

use super::super::sealing::{Label, is_sealed};
use super::encryption::{KeyWrite, Snapshot};
use super::write::{OpenTables, Write};
use super::{Embedded, tables};

/// How many rows a step looks at.
const ROWS_AT_ONCE: usize = 256;

/// Names a row that may be plain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RowKey {
    Revision(String),
    Webhook(String),
    /// The chain and the `seq`.
    Operation(String, u64),
}

/// A row that replaces a plain one.
pub(super) struct SealedRow {
    key: RowKey,
    plain: Vec<u8>,
    sealed: Vec<u8>,
}

/// The rows of a step, each as it is stored.
type Rows = Vec<(RowKey, Vec<u8>)>;

impl Embedded {
    /// Seals all of it. Returns how many rows were plain. Their pages are overwritten then.
    pub(super) async fn seal_plain(&self) -> Result<u64, StoreError> {
        let mut count = 0;
        let first = [
            RowKey::Revision(String::new()),
            RowKey::Webhook(String::new()),
            RowKey::Operation(String::new(), 0),
        ];
        for first in first {
            let mut after = Some(first);
            while let Some(last) = after.take() {
                let rows = self.read(move |from| rows_after(from, &last)).await?;
                after = rows.last().map(|(key, _)| key.clone());
                let plain = rows.into_iter().filter(|(_, stored)| !is_sealed(stored));
                let sealed = plain.map(|(key, plain)| self.sealed_row(key, plain));
                let sealed = sealed.collect::<Result<Vec<_>, _>>()?;
                if !sealed.is_empty() {
                    count += sealed.len() as u64;
                    self.write(Write::Keys(KeyWrite::Seal(sealed))).await?;
                }
            }
        }
        if count > 0 {
            self.overwrite_free_pages().await?;
        }
        Ok(count)
    }

    fn sealed_row(&self, key: RowKey, plain: Vec<u8>) -> Result<SealedRow, StoreError> {
        let Some(sealer) = self.sealer() else {
            return Ok(SealedRow { key, sealed: plain.clone(), plain });
        };
        let seal = |label| sealer.seal(label, plain.as_slice().into()).map(Cow::into_owned);
        let sealed = match &key {
            RowKey::Revision(revision) => {
                let id = tables::id::<Revision>(revision);
                let id = id.map_err(|error| StoreError::Unavailable(error.to_string()))?;
                seal(Label::definition(&id))
            }
            RowKey::Webhook(webhook) => seal(Label::webhook(webhook)),
            RowKey::Operation(chain, seq) => seal(Label::operation(chain, &seq.to_string())),
        };
        Ok(SealedRow { sealed: sealed?, key, plain })
    }
}

/// The next rows of the table of this key.
fn rows_after(from: &Snapshot<'_>, after: &RowKey) -> Result<Rows, Error> {
    match after {
        RowKey::Revision(after) => texts(from, tables::REVISIONS, after, RowKey::Revision),
        RowKey::Webhook(after) => texts(from, tables::WEBHOOKS, after, RowKey::Webhook),
        RowKey::Operation(chain, seq) => {
            let table = match from.open_table(tables::OPERATIONS) {
                Ok(table) => table,
                Err(TableError::TableDoesNotExist(_)) => return Ok(Rows::new()),
                Err(error) => return Err(error.into()),
            };
            let later = (Bound::Excluded((chain.as_str(), *seq)), Bound::Unbounded);
            let rows = table.range::<(&str, u64)>(later)?.take(ROWS_AT_ONCE).map(|row| {
                let (key, stored) = row?;
                let (chain, seq) = key.value();
                Ok((RowKey::Operation(chain.to_owned(), seq), stored.value().to_vec()))
            });
            rows.collect()
        }
    }
}

type Texts = TableDefinition<'static, &'static str, &'static [u8]>;

fn texts(
    from: &Snapshot<'_>,
    table: Texts,
    after: &str,
    key_of: fn(String) -> RowKey,
) -> Result<Rows, Error> {
    let table = match from.open_table(table) {
        Ok(table) => table,
        // A store of an earlier version that had no room for the table.
        Err(TableError::TableDoesNotExist(_)) => return Ok(Rows::new()),
        Err(error) => return Err(error.into()),
    };
    let later = (Bound::Excluded(after), Bound::Unbounded);
    let rows = table.range::<&str>(later)?.take(ROWS_AT_ONCE).map(|row| {
        let (key, stored) = row?;
        Ok((key_of(key.value().to_owned()), stored.value().to_vec()))
    });
    rows.collect()
}

/// Replaces those of the rows that are still as they were read.
pub(super) fn replace(to: &mut OpenTables<'_>, rows: &[SealedRow]) -> Result<(), Error> {
    let mut webhooks = to.transaction.open_table(tables::WEBHOOKS)?;
    let mut operations = to.transaction.open_table(tables::OPERATIONS)?;
    for SealedRow { key, plain, sealed } in rows {
        match key {
            RowKey::Revision(key) => replace_row(&mut to.revisions, key.as_str(), plain, sealed)?,
            RowKey::Webhook(key) => replace_row(&mut webhooks, key.as_str(), plain, sealed)?,
            RowKey::Operation(chain, seq) => {
                replace_row(&mut operations, (chain.as_str(), *seq), plain, sealed)?;
            }
        }
    }
    Ok(())
}

fn replace_row<'k, K: Key + 'static>(
    table: &mut Table<'_, K, &'static [u8]>,
    key: impl Borrow<K::SelfType<'k>> + Copy,
    plain: &[u8],
    sealed: &[u8],
) -> Result<(), Error> {
    let is_same = table.get(key)?.is_some_and(|stored| stored.value() == plain);
    if is_same {
        table.insert(key, sealed)?;
    }
    Ok(())
}
