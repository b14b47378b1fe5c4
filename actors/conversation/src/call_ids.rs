//! Makes every call's id unique for ever within its conversation, in bounded memory.
//!
//! The rule: `reference/semantics.md`.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::ids::CallId;

/// How many ids are remembered one by one. 2,000 hashes of 4 bytes keep the state small.
const MAX_HASHES: usize = 2_000;
/// A longer id of a provider is cut, so that it fits into HTTP headers and URLs.
const MAX_ID_CHARS: usize = 128;

/// Hashes of the ids that the conversation has used.
///
/// Once full, the set stays as it is. Every later id then gets its turn's ordinal appended, so that
/// it can collide neither with a remembered id nor with one of another turn. Two ids with the same
/// hash only cost a needless renaming.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UsedIds(Vec<u32>);

impl UsedIds {
    /// Remembers an id, if there is room.
    pub fn insert(&mut self, id: &CallId) {
        let hash = fnv1a(id.as_str());
        if let (false, Err(at)) = (self.is_full(), self.0.binary_search(&hash)) {
            self.0.insert(at, hash);
        }
    }

    /// Unique ids for the calls of one message, given the ids that the provider used.
    ///
    /// A used id gets `~2`, `~3` … appended. Characters that cannot stand in an HTTP header or in a
    /// segment of a URL are replaced.
    /// `ordinal` and `overflow_ids` are those of the open turn: its number, and its ids for which
    /// there was no room here.
    pub fn make_unique<'a>(
        &self,
        given: impl IntoIterator<Item = &'a str>,
        ordinal: u64,
        overflow_ids: &[CallId],
    ) -> Vec<CallId> {
        let mut used = self.clone();
        let mut unremembered: HashSet<CallId> = overflow_ids.iter().cloned().collect();
        let mut next: HashMap<String, u64> = HashMap::new();
        let name = |given: &'a str| {
            let base = used.base(given, ordinal);
            let from = next.entry(base.clone()).or_insert(1);
            let mut id = numbered(&base, *from);
            while unremembered.contains(&id) || used.remembers(&id) {
                *from = from.saturating_add(1);
                id = numbered(&base, *from);
            }
            unremembered.insert(id.clone());
            used.insert(&id);
            id
        };
        given.into_iter().map(name).collect()
    }

    fn remembers(&self, id: &CallId) -> bool {
        self.0.binary_search(&fnv1a(id.as_str())).is_ok()
    }

    fn base(&self, given: &str, ordinal: u64) -> String {
        let id = to_legal_id(given);
        if self.is_full() { format!("{id}~t{ordinal}") } else { id }
    }

    /// Whether there is no room for another id.
    pub fn is_full(&self) -> bool {
        self.0.len() >= MAX_HASHES
    }
}

fn to_legal_id(given: &str) -> String {
    let replace = |c: char| if c.is_ascii_graphic() { c } else { '_' };
    let id: String = given.chars().take(MAX_ID_CHARS).map(replace).collect();
    match id.as_str() {
        "" | "." | ".." => "call".to_owned(),
        _ => id,
    }
}

fn numbered(base: &str, n: u64) -> CallId {
    CallId::new(if n == 1 { base.to_owned() } else { format!("{base}~{n}") })
}

/// FNV-1a, folded to 32 bits: stored in states, so it must never change.
fn fnv1a(text: &str) -> u32 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    (hash ^ (hash >> 32)) as u32
}
