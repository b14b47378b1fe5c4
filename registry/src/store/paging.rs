//! Pages and cursors of stores that list in key order.

use abide_actors::journal::InboxEntry;
use abide_conversation::{CallId, ConversationId, Scoped, Tenant, Timestamp};
use data_encoding::HEXLOWER;
use futures::{Stream, stream};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{ListError, Page};

/// The order of the inbox: deadline, conversation, call, number of the suspension.
pub type InboxKey = (Timestamp, Scoped<ConversationId>, CallId, u32);

/// How many rows one page scans before it ends early: a filter that admits few rows of a large
/// table must not occupy a thread for more than some tens of milliseconds.
const MAX_SCANNED_ROWS: usize = 10_000;

/// A page of the rows that the filter admits; `rows` begins after the page before.
pub(super) fn page<K: Serialize, T, E>(
    rows: impl Iterator<Item = Result<(K, T), E>>,
    limit: usize,
    admits: impl Fn(&T) -> bool,
) -> Result<Page<T>, E> {
    let mut items = Vec::new();
    let mut last = None;
    for (scanned, row) in rows.enumerate() {
        if items.len() >= limit.max(1) || scanned >= MAX_SCANNED_ROWS {
            return Ok(Page { items, cursor: last.as_ref().map(encode) });
        }
        let (key, item) = row?;
        if admits(&item) {
            items.push(item);
        }
        last = Some(key);
    }
    Ok(Page { items, cursor: None })
}

/// The pages of a listing one after the other, as long as somebody asks for them. `read` reads the page
/// of a cursor, and the first one of none.
pub fn pages<T, E, R>(read: impl Fn(Option<String>) -> R) -> impl Stream<Item = Result<Vec<T>, E>>
where
    R: Future<Output = Result<Page<T>, E>>,
{
    // The cursor of the next page; nothing after the last one.
    stream::try_unfold(Some(None), move |next| {
        let page = next.map(&read);
        async move {
            let Some(page) = page else { return Ok(None) };
            let Page { items, cursor } = page.await?;
            Ok(Some((items, cursor.map(Some))))
        }
    })
}

/// The cursor of a listing of a tenant's conversations that begins after this id, which need not exist.
pub fn cursor_after(tenant: &Tenant, id: &ConversationId) -> String {
    encode(&Scoped::new(tenant, id))
}

/// The key by which an inbox of this tenant is sorted.
pub fn inbox_key(tenant: &Tenant, entry: &InboxEntry) -> InboxKey {
    let InboxEntry { conversation_id, pending, .. } = entry;
    let id = Scoped::new(tenant, conversation_id);
    (pending.expires_at, id, pending.call_id.clone(), pending.suspension)
}

/// The cursor of an inbox that begins after this entry, which need not be there any more.
pub fn inbox_cursor(tenant: &Tenant, entry: &InboxEntry) -> String {
    encode(&inbox_key(tenant, entry))
}

/// The page of a listing without rows.
pub(super) fn empty<T>() -> Page<T> {
    Page { items: Vec::new(), cursor: None }
}

/// The key that a cursor stands for; `None` without a cursor.
pub(crate) fn decode<K: DeserializeOwned>(cursor: Option<&str>) -> Result<Option<K>, ListError> {
    let Some(cursor) = cursor else { return Ok(None) };
    let bytes = HEXLOWER.decode(cursor.as_bytes()).map_err(|_| ListError::Cursor)?;
    serde_json::from_slice(&bytes).map(Some).map_err(|_| ListError::Cursor)
}

/// The key that a cursor of this tenant's listing stands for.
pub(super) fn decode_of<K: DeserializeOwned + ListingKey>(
    tenant: &Tenant,
    cursor: Option<&str>,
) -> Result<Option<K>, ListError> {
    let key: Option<K> = decode(cursor)?;
    match key {
        Some(key) if !key.conversation().is_of(tenant) => Err(ListError::Cursor),
        key => Ok(key),
    }
}

/// The key of a row in the listing of one tenant.
pub(super) trait ListingKey {
    fn conversation(&self) -> &Scoped<ConversationId>;
}

impl ListingKey for Scoped<ConversationId> {
    fn conversation(&self) -> &Scoped<ConversationId> {
        self
    }
}

impl ListingKey for InboxKey {
    fn conversation(&self) -> &Scoped<ConversationId> {
        &self.1
    }
}

pub(crate) fn encode(key: &impl Serialize) -> String {
    HEXLOWER.encode(serde_json::json!(key).to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;

    use super::*;

    #[tokio::test]
    async fn pages_are_read_to_the_last_one_and_each_once() {
        let read = |cursor: Option<String>| async move {
            let first: usize = cursor.map_or(Ok(0), |cursor| cursor.parse()).unwrap_or_default();
            let next = (first < 4).then(|| (first + 2).to_string());
            Ok::<_, ListError>(Page { items: vec![first, first + 1], cursor: next })
        };
        let all: Result<Vec<_>, _> = pages(read).try_collect().await;
        assert_eq!(all, Ok(vec![vec![0, 1], vec![2, 3], vec![4, 5]]));
        let failed = pages(|_| async { Err::<Page<usize>, _>(ListError::Cursor) });
        let all: Result<Vec<_>, _> = failed.try_collect().await;
        assert_eq!(all, Err(ListError::Cursor));
    }

    #[test]
    fn a_page_that_finds_nothing_ends_early_and_goes_on_from_there() {
        let rows =
            |from: usize| (from..MAX_SCANNED_ROWS + 2).map(|row| Ok::<_, ListError>((row, row)));
        let wanted = |row: &usize| *row > MAX_SCANNED_ROWS;
        let first = page(rows(0), 5, wanted);
        let cursor = first.as_ref().ok().and_then(|page| page.cursor.as_deref());
        let last = decode::<usize>(cursor);
        assert_eq!(last, Ok(Some(MAX_SCANNED_ROWS - 1)));
        let rest = page(rows(MAX_SCANNED_ROWS), 5, wanted);
        assert_eq!(rest, Ok(Page { items: vec![MAX_SCANNED_ROWS + 1], cursor: None }));
    }
}
