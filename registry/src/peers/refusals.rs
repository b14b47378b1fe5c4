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
pub(super) enum RejectionCause {
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

impl RejectionCause {
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

    fn words(self) -> &'static str {
        match self {
            Self::Wire => "it speaks another wire version",
            Self::Other => "another process is at its address",
            Self::Ourselves => "it is this process",
            Self::Secret => "it has another cluster secret",
            Self::Garbage => "it does not speak the protocol",
            Self::Silent => "its handshake takes too long",
            Self::Crowded => "too many handshakes are unfinished",
        }
    }
}

/// Remembers what was told.
#[derive(Default)]
pub(super) struct RejectionLog(Mutex<HashMap<(RejectionCause, Option<String>), Instant>>);

impl RejectionLog {
    /// Of a known peer one line is written for each cause until it is forgiven; of all strangers
    /// one in ten seconds.
    pub(super) fn refuse(&self, cause: RejectionCause, who: Option<&str>, detail: impl Display) {
        let (name, why) = (cause.name(), cause.words());
        metrics::counter!("abide_peers_refused_total", "cause" => name).increment(1);
        if self.is_news(cause, who) {
            let peer = who.unwrap_or("unknown");
            tracing::warn!(peer, cause = name, %detail, "a node is refused: {why}");
        }
    }

    /// The next time that it is refused is news again.
    pub(super) fn forgive(&self, peer: &str) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|(_, who), _| who.as_deref() != Some(peer));
    }

    fn is_news(&self, cause: RejectionCause, who: Option<&str>) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_peer_is_told_of_once_until_it_is_forgiven_and_strangers_now_and_then() {
        let refusals = RejectionLog::default();
        for (cause, who) in [(RejectionCause::Wire, Some("b")), (RejectionCause::Secret, Some("b"))]
        {
            assert!(refusals.is_news(cause, who));
            tokio::time::advance(STRANGERS_EVERY * 2).await;
            assert!(!refusals.is_news(cause, who));
        }
        refusals.forgive("b");
        assert!(refusals.is_news(RejectionCause::Wire, Some("b")));

        assert!(refusals.is_news(RejectionCause::Garbage, None));
        assert!(!refusals.is_news(RejectionCause::Garbage, None));
        assert!(refusals.is_news(RejectionCause::Silent, None));
        tokio::time::advance(STRANGERS_EVERY).await;
        assert!(refusals.is_news(RejectionCause::Garbage, None));
    }
}
