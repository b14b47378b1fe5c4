//! Rejected connections: each is counted, and each cause is logged once per peer.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use abide_actors::identity::NodeName;
use tokio::time::Instant;

/// The interval between log lines about unknown peers, for each cause: there may be many of them.
const STRANGER_LOG_INTERVAL: Duration = Duration::from_secs(10);
/// How many peers are remembered; past that all are forgotten. Only peers that have the secret are
/// remembered, and they are few unless something is very wrong.
const MAX_REMEMBERED: usize = 1_024;

/// Why a connection is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RejectionCause {
    /// The peer speaks another version.
    ProtocolVersion,
    /// The peer is not the node or process that was dialled.
    Other,
    /// The peer is this process.
    Ourselves,
    /// The peer does not have the key.
    Secret,
    /// The peer does not speak the protocol.
    Garbage,
    /// The peer did not finish the handshake in time.
    Silent,
    /// Too many later handshakes are unfinished.
    Crowded,
}

impl RejectionCause {
    fn name(self) -> &'static str {
        match self {
            Self::ProtocolVersion => "wire",
            Self::Other => "other",
            Self::Ourselves => "ourselves",
            Self::Secret => "secret",
            Self::Garbage => "garbage",
            Self::Silent => "silent",
            Self::Crowded => "crowded",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::ProtocolVersion => "it speaks another version of the protocol",
            Self::Other => "another process is at its address",
            Self::Ourselves => "it is this process",
            Self::Secret => "it has another cluster secret",
            Self::Garbage => "it does not speak the protocol",
            Self::Silent => "its handshake takes too long",
            Self::Crowded => "too many handshakes are unfinished",
        }
    }
}

/// Remembers what was logged.
#[derive(Default)]
pub(super) struct RejectionLog(Mutex<HashMap<(RejectionCause, Option<NodeName>), Instant>>);

impl RejectionLog {
    /// Counts a rejection. For a known peer it logs one line for each cause until the peer is
    /// forgiven, for all unknown peers together one line in ten seconds.
    pub(super) fn reject(
        &self,
        cause: RejectionCause,
        peer: Option<&NodeName>,
        detail: impl Display,
    ) {
        let (name, description) = (cause.name(), cause.description());
        metrics::counter!("abide_peers_refused_total", "cause" => name).increment(1);
        if self.is_news(cause, peer) {
            let peer = peer.map_or("unknown", NodeName::as_str);
            tracing::warn!(peer, cause = name, %detail, "peer rejected: {description}");
        }
    }

    /// The next rejection of this peer is logged again.
    pub(super) fn forgive(&self, peer: &NodeName) {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        logged.retain(|(_, logged_peer), _| logged_peer.as_ref() != Some(peer));
    }

    fn is_news(&self, cause: RejectionCause, peer: Option<&NodeName>) -> bool {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() > MAX_REMEMBERED {
            logged.clear();
        }
        match logged.entry((cause, peer.cloned())) {
            Entry::Occupied(last)
                if peer.is_some() || last.get().elapsed() < STRANGER_LOG_INTERVAL =>
            {
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
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_cause_has_a_name_and_a_description_of_its_own() {
        let causes = [
            RejectionCause::ProtocolVersion,
            RejectionCause::Other,
            RejectionCause::Ourselves,
            RejectionCause::Secret,
            RejectionCause::Garbage,
            RejectionCause::Silent,
            RejectionCause::Crowded,
        ];
        let names = ["wire", "other", "ourselves", "secret", "garbage", "silent", "crowded"];
        assert_eq!(causes.map(RejectionCause::name), names);
        let descriptions: HashSet<_> = causes.map(RejectionCause::description).into();
        assert_eq!(descriptions.len(), causes.len());
    }

    #[tokio::test(start_paused = true)]
    async fn past_its_bound_the_log_forgets_all_peers() {
        let rejections = RejectionLog::default();
        let is_news = |n: usize| {
            rejections.is_news(RejectionCause::Secret, Some(&NodeName::new(format!("peer-{n}"))))
        };
        for peer in 0..MAX_REMEMBERED {
            assert!(is_news(peer));
        }
        assert!(!is_news(0));
        assert!(is_news(MAX_REMEMBERED));
        assert!(is_news(0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_is_logged_once_until_it_is_forgiven_and_strangers_now_and_then() {
        let rejections = RejectionLog::default();
        let b = NodeName::new("b");
        for (cause, peer) in
            [(RejectionCause::ProtocolVersion, Some(&b)), (RejectionCause::Secret, Some(&b))]
        {
            assert!(rejections.is_news(cause, peer));
            tokio::time::advance(STRANGER_LOG_INTERVAL * 2).await;
            assert!(!rejections.is_news(cause, peer));
        }
        rejections.forgive(&b);
        assert!(rejections.is_news(RejectionCause::ProtocolVersion, Some(&b)));

        assert!(rejections.is_news(RejectionCause::Garbage, None));
        assert!(!rejections.is_news(RejectionCause::Garbage, None));
        assert!(rejections.is_news(RejectionCause::Silent, None));
        tokio::time::advance(STRANGER_LOG_INTERVAL).await;
        assert!(rejections.is_news(RejectionCause::Garbage, None));
    }
}
