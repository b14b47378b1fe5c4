//! Makes every call's id unique for ever within its conversation, in bounded memory.

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

    /// The id under which a call of `turn` is known, given what its provider called it.
    ///
    /// A used id gets `~2`, `~3` … appended. What cannot stand in an HTTP header becomes `_`.
    pub fn unique(&self, given: &str, turn: &Turn) -> CallId {
        let mut base = legal(given);
        if self.is_full() {
            base = format!("{base}~t{}", turn.ordinal);
        }
        let numbered = (2..).map(|n: u64| format!("{base}~{n}"));
        let mut names = std::iter::once(base.clone()).chain(numbered).map(CallId::new);
        names.find(|id| !self.taken(id, turn)).unwrap_or_else(|| CallId::new(base.clone()))
    }

    fn taken(&self, id: &CallId, turn: &Turn) -> bool {
        let of_turn = turn.late_ids.contains(id);
        of_turn || self.0.binary_search(&fnv1a(id.as_str())).is_ok()
    }

    /// Whether no further id is remembered here.
    pub fn is_full(&self) -> bool {
        self.0.len() >= REMEMBERED
    }
}

fn legal(given: &str) -> String {
    let fit = |c: char| if c.is_ascii_graphic() { c } else { '_' };
    let id: String = given.chars().take(LONGEST).map(fit).collect();
    if id.is_empty() { "call".to_owned() } else { id }
}

/// FNV-1a, folded to 32 bits: the same on every machine and in every version.
fn fnv1a(text: &str) -> u32 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    (hash ^ (hash >> 32)) as u32
}
