//! The API keys in the file.

use std::collections::BTreeMap;

use abide_conversation::{Tenant, Timestamp};
use redb::{Error, ReadTransaction, ReadableTable, TableError, WriteTransaction};

use super::super::{KeyChange, KeyList, ScopedKeyId, StoredKey};
use super::tables;

/// Returns whether the key was there before.
pub(super) fn change(
    transaction: &WriteTransaction,
    change: &KeyChange,
    json: Option<&[u8]>,
) -> Result<bool, Error> {
    let mut keys = transaction.open_table(tables::API_KEYS)?;
    let id = change.id();
    let was_there = keys.get(id.as_str())?.is_some();
    match (change, json) {
        (KeyChange::Update(_), _) if !was_there => return Ok(false),
        (KeyChange::Add(_) | KeyChange::Update(_), Some(json)) => {
            keys.insert(id.as_str(), json)?;
        }
        (KeyChange::Add(_) | KeyChange::Update(_), None) => return Ok(was_there),
        (KeyChange::Remove(_), _) => {
            keys.remove(id.as_str())?;
            transaction.open_table(tables::API_KEYS_USED)?.remove(id.as_str())?;
        }
    }
    let mut meta = transaction.open_table(tables::META)?;
    let version = meta.get(tables::API_KEYS_ROW)?.map_or(0, |version| version.value());
    meta.insert(tables::API_KEYS_ROW, version.saturating_add(1))?;
    Ok(was_there)
}

pub(super) fn mark_used(
    transaction: &WriteTransaction,
    used: &[(ScopedKeyId, Timestamp)],
) -> Result<(), Error> {
    let keys = transaction.open_table(tables::API_KEYS)?;
    let mut table = transaction.open_table(tables::API_KEYS_USED)?;
    for (id, at) in used {
        let at = tables::nanos(*at);
        let last = table.get(id.as_str())?.map(|last| last.value());
        if last.is_none_or(|last| last < at) && keys.get(id.as_str())?.is_some() {
            table.insert(id.as_str(), at)?;
        }
    }
    Ok(())
}

/// `None` if the keys are still as of the version that is known.
pub(super) fn list(from: &ReadTransaction, known: Option<u64>) -> Result<Option<KeyList>, Error> {
    let version = from.open_table(tables::META)?.get(tables::API_KEYS_ROW)?;
    let version = version.map_or(0, |version| version.value());
    if known == Some(version) {
        return Ok(None);
    }
    let keys = match from.open_table(tables::API_KEYS) {
        Ok(keys) => keys,
        // A store of an earlier version that had no room for the table.
        Err(TableError::TableDoesNotExist(_)) => {
            return Ok(Some(KeyList { version, keys: vec![] }));
        }
        Err(error) => return Err(error.into()),
    };
    let keys = keys.iter()?.map(|row| tables::parse::<StoredKey>("api key", row?.1.value()));
    Ok(Some(KeyList { version, keys: keys.collect::<Result<_, _>>()? }))
}

pub(super) fn used(
    from: &ReadTransaction,
    tenant: &Tenant,
) -> Result<BTreeMap<String, Timestamp>, Error> {
    let used = match from.open_table(tables::API_KEYS_USED) {
        Ok(used) => used,
        Err(TableError::TableDoesNotExist(_)) => return Ok(BTreeMap::new()),
        Err(error) => return Err(error.into()),
    };
    let row = |row: Result<_, redb::StorageError>| {
        let (id, at): (redb::AccessGuard<'_, &str>, redb::AccessGuard<'_, tables::Nanos>) = row?;
        let id = ScopedKeyId::parse(id.value());
        let id = id.map_err(|error| Error::Corrupted(format!("api key: {error}")))?;
        Ok((id, tables::timestamp(at.value())?))
    };
    let rows = used.iter()?.map(row).collect::<Result<Vec<_>, Error>>()?;
    let own = rows.into_iter().filter(|(id, _)| id.is_of(tenant));
    Ok(own.map(|(id, at)| (id.local(), at)).collect())
}
