//! The keys of one server, and the effects of the command or script that runs.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::Words;
use super::sorted_set::SortedSet;

/// The value of a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    Text(Vec<u8>),
    List(VecDeque<Vec<u8>>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    Unsorted(BTreeSet<Vec<u8>>),
    Sorted(SortedSet),
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    data: Data,
    /// In milliseconds of the server's clock.
    expires_at: Option<i64>,
}

/// What a key of another type than the command's is refused with.
pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

#[derive(Debug, Default)]
pub struct Keyspace {
    entries: HashMap<Vec<u8>, Entry>,
    /// The server's clock when the present command or script began, in milliseconds.
    pub now_ms: i64,
    /// The commands that changed something, in the form in which they are replicated.
    pub effects: Vec<Words>,
}

impl Keyspace {
    /// Keys that a replica or a restarted server has after these effects.
    pub fn rebuilt<'a>(effects: impl Iterator<Item = &'a Words>) -> Self {
        // Nothing expires while it is read.
        let mut keyspace = Self { now_ms: i64::MIN, ..Self::default() };
        for words in effects {
            keyspace.execute(words).unwrap();
        }
        keyspace.effects.clear();
        keyspace
    }

    /// Records an effect.
    pub fn changed(&mut self, words: &[Vec<u8>]) {
        self.effects.push(words.to_vec());
    }

    /// Removes the key if it has expired, and returns whether it is there.
    pub fn exists(&mut self, key: &[u8]) -> bool {
        let Some(entry) = self.entries.get(key) else { return false };
        let expired = entry.expires_at.is_some_and(|at| at <= self.now_ms);
        if expired {
            self.entries.remove(key);
        }
        !expired
    }

    pub fn remove(&mut self, key: &[u8]) -> bool {
        self.exists(key) && self.entries.remove(key).is_some()
    }

    /// Sets a key, which never expires then.
    pub fn set(&mut self, key: &[u8], data: Data, expires_at: Option<i64>) {
        self.entries.insert(key.to_vec(), Entry { data, expires_at });
    }

    /// When a key expires; `None` if it is not there.
    pub fn expiry(&mut self, key: &[u8]) -> Option<&mut Option<i64>> {
        if self.exists(key) {
            self.entries.get_mut(key).map(|entry| &mut entry.expires_at)
        } else {
            None
        }
    }

    pub fn get(&mut self, key: &[u8]) -> Option<&Data> {
        if self.exists(key) { self.entries.get(key).map(|entry| &entry.data) } else { None }
    }

    /// The data of a key, which is created if it is not there.
    pub fn get_or_create(&mut self, key: &[u8], new: fn() -> Data) -> &mut Data {
        self.exists(key);
        let entry = self.entries.entry(key.to_vec());
        &mut entry.or_insert_with(|| Entry { data: new(), expires_at: None }).data
    }

    /// The data of a key that exists.
    pub fn get_mut(&mut self, key: &[u8]) -> Option<&mut Data> {
        if self.exists(key) { self.entries.get_mut(key).map(|entry| &mut entry.data) } else { None }
    }

    /// Removes a key whose last element was removed.
    pub fn remove_if_empty(&mut self, key: &[u8]) {
        let is_empty = self.entries.get(key).is_some_and(|entry| match &entry.data {
            Data::Text(_) => false,
            Data::List(list) => list.is_empty(),
            Data::Hash(hash) => hash.is_empty(),
            Data::Unsorted(set) => set.is_empty(),
            Data::Sorted(set) => set.is_empty(),
        });
        if is_empty {
            self.entries.remove(key);
        }
    }
}
