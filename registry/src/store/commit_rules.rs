//! Rules and names that all stores share.

use abide_actors::journal::Commit;
use abide_conversation::{AgentName, Seq};

/// The format of cached states. Raise it whenever their fields or their meaning change: nodes of
/// two builds read each other's caches, and one that does not know a field would drop it.
pub const STATE_FORMAT: u32 = 1;

/// The scope under which a store keeps the responses to requests about an agent.
pub fn agent_scope(name: &AgentName) -> String {
    format!("agents/{name}")
}

/// Whether a commit continues a journal whose last `seq` is `last`; `None` if there is no journal.
pub(super) fn follows(commit: &Commit, last: Option<Seq>) -> bool {
    let last = last.unwrap_or_default();
    let is_consecutive =
        (1..).zip(commit.events.iter()).all(|(n, event)| event.seq == last.saturating_add(n));
    let is_counted = commit.summary.last_seq == last.saturating_add(commit.events.len() as u64);
    is_consecutive && is_counted && commit.summary.last_seq > Seq::ZERO
}
