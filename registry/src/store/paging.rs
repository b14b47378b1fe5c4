//! Pages and their cursors, the same in every store that lists in key order.

use abide_conversation::{CallId, ConversationId, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{ListError, Page};

/// What the inbox is ordered by: deadline, conversation, call, number of the suspension.
pub(super) type InboxKey = (Timestamp, ConversationId, CallId, u32);

/// Rows that one page looks at before it is cut short: a rare filter over a large table must not
/// hold a thread for longer than some tens of milliseconds.
const SCAN: usize = 10_000;

/// A page of the rows that are asked for; `rows` begins after the page before it.
pub(super) fn page<K: Serialize, T, E>(
    rows: impl Iterator<Item = Result<(K, T), E>>,
    limit: usize,
    admits: impl Fn(&T) -> bool,
) -> Result<Page<T>, E> {
    let mut items = Vec::new();
    let mut last = None;
    for (scanned, row) in rows.enumerate() {
        if items.len() >= limit.max(1) || scanned >= SCAN {
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

/// The key that a cursor stands for; `None` without a cursor.
pub(super) fn decode<K: DeserializeOwned>(cursor: Option<&str>) -> Result<Option<K>, ListError> {
    let Some(cursor) = cursor else { return Ok(None) };
    let digits = cursor.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    });
    let bytes = digits.collect::<Option<Vec<u8>>>().ok_or(ListError::Cursor)?;
    serde_json::from_slice(&bytes).map(Some).map_err(|_| ListError::Cursor)
}

pub(super) fn encode(key: &impl Serialize) -> String {
    let json = serde_json::json!(key).to_string();
    json.bytes().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_finds_nothing_ends_early_and_goes_on_from_there() {
        let rows = |from: usize| (from..SCAN + 2).map(|row| Ok::<_, ListError>((row, row)));
        let wanted = |row: &usize| *row > SCAN;
        let first = page(rows(0), 5, wanted);
        let cursor = first.as_ref().ok().and_then(|page| page.cursor.as_deref());
        let last = decode::<usize>(cursor);
        assert_eq!(last, Ok(Some(SCAN - 1)));
        let rest = page(rows(SCAN), 5, wanted);
        assert_eq!(rest, Ok(Page { items: vec![SCAN + 1], cursor: None }));
    }
}
