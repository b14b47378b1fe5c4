//! An erasure as it is stored: the job while it runs, and then its report.

use abide_conversation::erase::SubjectAlias;
use abide_conversation::{BlobId, ConversationId, ErasureId, Scoped, Tenant, Timestamp};
use data_encoding::HEXLOWER;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// For how many days the report of an erasure is kept.
pub const REPORT_DAYS: i64 = 90;
/// How many ids of conversations a report names; it counts all.
const MAX_NAMED_CONVERSATIONS: usize = 10_000;
/// What the name of a running erasure begins with; all ids of erasures sort before it.
pub(super) const RUNNING_PREFIX: &str = "run_";
/// What the alias of a subject begins with.
const ALIAS_PREFIX: &str = "erased:";
/// The bytes of the hash in an alias.
const ALIAS_BYTES: usize = 8;

/// An erasure. While it runs it is stored under a name that follows from its subject, so that a
/// subject has one at a time; its report is stored under its id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Erasure {
    pub id: ErasureId,
    /// Raised by every change.
    pub version: u64,
    /// What takes the place of the subject: `erased:HASH`.
    pub alias: String,
    pub started_at: Timestamp,
    pub state: ErasureState,
    #[serde(default)]
    pub report: Report,
}

/// Whether an erasure runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErasureState {
    Running(Running),
    Done { ended_at: Timestamp },
}

/// How far an erasure has come. Nothing but this names the subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Running {
    pub subject: String,
    pub step: ErasureStep,
    /// Where the step goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// The subject's conversations that are being deleted. They are noted before, so that the report
    /// has them even if the node dies before it has counted them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deleting: Vec<ConversationId>,
    /// The blobs that are about to go. They are noted before, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noted: Option<NotedBlobs>,
    /// Whether the present pass of the step has changed something.
    #[serde(default)]
    pub has_changed: bool,
    /// What failed in the present pass of the step, which then is repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Whether what was created since the erasure began has been gone through.
    #[serde(default)]
    pub newer_rewritten: bool,
    /// How often the subject's conversations have been gone through.
    #[serde(default)]
    pub passes: u32,
}

/// The blobs that may go next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotedBlobs {
    /// How many of the conversations that are being deleted name them: the first ones.
    pub conversations: usize,
    pub blobs: Vec<BlobId>,
}

/// The steps of an erasure, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErasureStep {
    /// What makes conversations in the subject's name: API keys and schedules.
    Sources,
    /// The subject's conversations.
    Conversations,
    /// The conversations of others.
    Others,
    /// Remembered decisions, webhooks and usage.
    Things,
    /// The operators' audit of the tenant, and then that of the cluster.
    Operations,
    /// Looks for conversations that the subject has made meanwhile.
    Last,
    /// What deletions have left on the disk. The subject is not known any more.
    Disk,
}

/// What an erasure did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub deleted: Deleted,
    pub rewritten: Rewritten,
    /// The deleted conversations without the children, up to ten thousand.
    #[serde(default)]
    pub conversation_ids: Vec<String>,
    /// How many conversations of the subject were there when the erasure ended.
    #[serde(default)]
    pub made_since: u64,
}

/// How many things were deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deleted {
    /// Conversations, without those that others had begun as their children.
    pub conversations: u64,
    pub schedules: u64,
    pub api_keys: u64,
    pub decisions: u64,
    /// Blobs that only these conversations named, and those that the subject uploaded and nothing named.
    #[serde(default)]
    pub blobs: u64,
}

/// In how many things the alias stands now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rewritten {
    /// Conversations of others.
    pub conversations: u64,
    /// Events in their journals.
    pub events: u64,
    pub decisions: u64,
    pub webhooks: u64,
    /// Entries of the operators' audit.
    pub operations: u64,
}

impl Erasure {
    /// An erasure that begins now. `salt` is for nothing else, and nobody keeps it.
    pub fn new(id: ErasureId, subject: String, salt: &[u8], now: Timestamp) -> Self {
        let alias = format!("{ALIAS_PREFIX}{}", digest(&[salt, subject.as_bytes()], ALIAS_BYTES));
        let running = Running {
            subject,
            step: ErasureStep::Sources,
            cursor: None,
            deleting: Vec::new(),
            noted: None,
            has_changed: false,
            newer_rewritten: false,
            problem: None,
            passes: 0,
        };
        let state = ErasureState::Running(running);
        Self { id, version: 1, alias, started_at: now, state, report: Report::default() }
    }

    /// The name under which a running erasure of the subject is stored.
    pub fn running_name(tenant: &Tenant, subject: &str) -> Scoped<ErasureId> {
        let name = format!("{RUNNING_PREFIX}{}", digest(&[subject.as_bytes()], 16));
        Scoped::new(tenant, &ErasureId::new(name))
    }

    /// How far it has come; `None` when it is done.
    pub fn running(&self) -> Option<&Running> {
        match &self.state {
            ErasureState::Running(running) => Some(running),
            ErasureState::Done { .. } => None,
        }
    }

    /// When it was done.
    pub fn ended_at(&self) -> Option<Timestamp> {
        match self.state {
            ErasureState::Running(_) => None,
            ErasureState::Done { ended_at } => Some(ended_at),
        }
    }

    /// When something is to be done about it: at once while it runs, and then when its report goes.
    pub fn due_at(&self) -> Timestamp {
        match self.state {
            ErasureState::Running(_) => self.started_at,
            ErasureState::Done { ended_at } => {
                let kept = SignedDuration::from_hours(24 * REPORT_DAYS);
                ended_at.checked_add(kept).unwrap_or(Timestamp::MAX)
            }
        }
    }

    /// The alias of the subject; `None` when nobody knows the subject any more.
    pub fn alias(&self) -> Option<SubjectAlias> {
        let subject = self.running()?.subject.clone();
        Some(SubjectAlias { subject, alias: self.alias.clone() })
    }

    /// Counts a deleted conversation. An id that has the subject is named with the alias.
    pub(super) fn note_deleted(&mut self, id: &ConversationId) {
        self.report.deleted.conversations += 1;
        let Some(alias) = self.alias() else { return };
        if self.report.conversation_ids.len() < MAX_NAMED_CONVERSATIONS {
            let id = id.as_str().replace(&alias.subject, &alias.alias);
            self.report.conversation_ids.push(id);
        }
    }
}

/// The first bytes of the SHA-256 of these parts, as hex digits.
fn digest(parts: &[&[u8]], bytes: usize) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let hash = hash.finalize();
    HEXLOWER.encode(hash.get(..bytes).unwrap_or(&hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn erasure(subject: &str, salt: &[u8]) -> Erasure {
        let id = ErasureId::new("er_1");
        Erasure::new(id, subject.to_owned(), salt, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn an_alias_cannot_be_found_from_the_subject_without_the_salt() {
        let [first, other, same] = [b"one", b"two", b"one"].map(|salt| erasure("ada", salt).alias);
        assert_ne!(first, other);
        assert_eq!(first, same);
        assert_eq!(first.len(), "erased:".len() + 16);
        assert_ne!(erasure("bob", b"one").alias, first);
    }

    #[test]
    fn a_report_names_no_subject() {
        let mut erasure = erasure("ada", b"one");
        erasure.note_deleted(&ConversationId::new("chat-of-ada"));
        erasure.state = ErasureState::Done { ended_at: Timestamp::UNIX_EPOCH };
        let text = serde_json::to_string(&erasure).unwrap_or_default();
        assert!(!text.contains("ada") && text.contains("chat-of-erased:"), "{text}");
    }

    #[test]
    fn an_empty_subject_is_in_no_id() {
        let mut erasure = erasure("x", b"one");
        erasure.note_deleted(&ConversationId::new("c"));
        assert_eq!(erasure.report.conversation_ids, ["c"]);
    }
}
