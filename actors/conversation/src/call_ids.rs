//! Makes every call's id unique for ever within its conversation, in bounded memory.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::ids::CallId;
use crate::state::Turn;

/// How many ids are remembered one by one. 2,000 hashes of 4 bytes keep the state small.
const REMEMBERED: usize = 2_000;
/// The longest id that is taken over from a provider.
const LONGEST: usize = 128;

/// Hashes of the ids that the conversation has used.
///
/// Once full it stays as it is, and every later id gets its turn's ordinal appended, so that it can
/// meet neither a remembered one nor one of another turn. Two ids of one hash cost one needless
/// renaming.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UsedIds(Vec<u32>);

impl UsedIds {
    /// Remembers an id, as long as there is room.
    pub fn insert(&mut self, id: &CallId) {
        let hash = fnv1a(id.as_str());
        if let (false, Err(at)) = (self.is_full(), self.0.binary_search(&hash)) {
            self.0.insert(at, hash);
        }
    }

    /// The ids under which the calls of one message of `turn` are known, given what its provider
    /// called them.
    ///
    /// A used id gets `~2`, `~3` … appended. What cannot stand in an HTTP header or in a segment of
    /// a URL becomes something that can.
    pub fn unique<'a>(&self, given: impl IntoIterator<Item = &'a str>, turn: &Turn) -> Vec<CallId> {
        let mut used = self.clone();
        let mut late: HashSet<CallId> = turn.late_ids.iter().cloned().collect();
        let mut next: HashMap<String, u64> = HashMap::new();
        let name = |given: &'a str| {
            let base = used.base(given, turn);
            let from = next.entry(base.clone()).or_insert(1);
            let mut id = numbered(&base, *from);
            while late.contains(&id) || used.remembers(&id) {
                *from = from.saturating_add(1);
                id = numbered(&base, *from);
            }
            late.insert(id.clone());
            used.insert(&id);
            id
        };
        given.into_iter().map(name).collect()
    }

    fn remembers(&self, id: &CallId) -> bool {
        self.0.binary_search(&fnv1a(id.as_str())).is_ok()
    }

    fn base(&self, given: &str, turn: &Turn) -> String {
        match self.is_full() {
            true => format!("{}~t{}", legal(given), turn.ordinal),
            false => legal(given),
        }
    }

    /// Whether no further id is remembered here.
    pub fn is_full(&self) -> bool {
        self.0.len() >= REMEMBERED
    }
}

fn legal(given: &str) -> String {
    let fit = |c: char| if c.is_ascii_graphic() { c } else { '_' };
    let id: String = given.chars().take(LONGEST).map(fit).collect();
    match id.as_str() {
        "" | "." | ".." => "call".to_owned(),
        _ => id,
    }
}

fn numbered(base: &str, n: u64) -> CallId {
    CallId::new(if n == 1 { base.to_owned() } else { format!("{base}~{n}") })
}

/// FNV-1a, folded to 32 bits: the same on every machine and in every version.
fn fnv1a(text: &str) -> u32 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    (hash ^ (hash >> 32)) as u32
}
