//! Whom the door refuses: counted each time, told once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How often those that nobody knows may fill a line of the log, for each cause: they may be many.
const STRANGERS_EVERY: Duration = Duration::from_secs(10);
/// Who was told of is remembered up to here, then all is forgotten: only those who have the secret
/// are remembered, and they are few unless something is very wrong.
const REMEMBERED: usize = 1_024;

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cause {
    /// It speaks another version.
    Wire,
    /// It is not the node or process that was dialled.
    Other,
    /// It is this process.
    Ourselves,
    /// It doesn't have the key.
    Secret,
    /// It doesn't speak the protocol.
    Garbage,
    /// It did not finish the handshake in time.
    Silent,
    /// Too many others are not through with theirs.
    Crowded,
}

impl Cause {
    fn name(self) -> &'static str {
        match self {
            Self::Wire => "wire",
            Self::Other => "other",
            Self::Ourselves => "ourselves",
            Self::Secret => "secret",
            Self::Garbage => "garbage",
            Self::Silent => "silent",
            Self::Crowded => "crowded",
        }
    }
}

/// Remembers what was told.
#[derive(Default)]
pub(super) struct Refusals(Mutex<HashMap<(Cause, Option<String>), Instant>>);

impl Refusals {
    /// Of a known peer one line is written for each cause until it is forgiven; of all strangers one
    /// in ten seconds.
    pub(super) fn refuse(&self, cause: Cause, who: Option<&str>, why: impl Display) {
        let name = cause.name();
        metrics::counter!("abide_peers_refused_total", "cause" => name).increment(1);
        if self.is_news(cause, who) {
            let peer = who.unwrap_or("unknown");
            tracing::warn!(peer, cause = name, %why, "a connection between nodes is refused");
        }
    }

    /// The next time that it is refused is news again.
    pub(super) fn forgive(&self, peer: &str) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|(_, who), _| who.as_deref() != Some(peer));
    }

    fn is_news(&self, cause: Cause, who: Option<&str>) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() > REMEMBERED {
            told.clear();
        }
        match told.entry((cause, who.map(str::to_owned))) {
            Entry::Occupied(last) if who.is_some() || last.get().elapsed() < STRANGERS_EVERY => {
                false
            }
            Entry::Occupied(mut last) => {
                last.insert(Instant::now());
                true
            }
            Entry::Vacant(never) => {
                never.insert(Instant::now());
                true
            }
        }
    }
}
