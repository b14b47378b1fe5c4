//! What every store decides and names in the same way.

use abide_actors::journal::Commit;
use abide_conversation::AgentName;

/// The shape of a cached state and what it means. Raise it whenever either changes, for nodes of two
/// builds read each other's caches: one that does not know a field would drop it.
pub const STATE_FORMAT: u32 = 1;

/// The scope under which a store keeps the responses to requests about an agent.
pub fn agent_scope(name: &AgentName) -> String {
    format!("agents/{name}")
}

/// Whether the commit belongs right after `last`, the journal's last `seq`; `None` is no journal.
pub(super) fn follows(commit: &Commit, last: Option<u64>) -> bool {
    let known = last.unwrap_or(0);
    let consecutive = (known + 1..).zip(commit.events.iter()).all(|(seq, event)| event.seq == seq);
    let counted = commit.head.last_seq == known + commit.events.len() as u64;
    consecutive && counted && commit.head.last_seq > 0
}
