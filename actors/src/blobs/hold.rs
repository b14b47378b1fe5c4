//! Who keeps a blob that no journal names yet, and until when.

use abide_conversation::{ConversationId, ScheduleName, Timestamp};
use jiff::SignedDuration;
use sha2::{Digest, Sha256};

/// For how long a blob stays that nothing names, counted from its last upload: a person who has
/// chosen a picture in the evening can still send it the next morning.
pub const UNNAMED_BLOB_TTL: SignedDuration = SignedDuration::from_hours(24);
/// The bytes of the hash that stands for an uploader.
const UPLOADER_BYTES: usize = 16;

/// Who keeps a blob that no journal names yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlobHolder {
    /// A conversation that is about to name it.
    Conversation(ConversationId),
    /// A schedule whose messages name it.
    Schedule(ScheduleName),
    /// Whoever has uploaded it, as a hash: an erasure finds the uploads of a subject, and the store
    /// shows nobody's name.
    Uploader(String),
}

impl BlobHolder {
    /// The subject, or anybody who has no name, as an uploader.
    pub fn uploader(subject: &str) -> Self {
        let hash = Sha256::digest(subject);
        let digits = hash.iter().take(UPLOADER_BYTES).map(|byte| format!("{byte:02x}"));
        Self::Uploader(digits.collect())
    }

    /// The holder as text, unlike that of any other. Stores keep it, so it must never change.
    pub fn text(&self) -> String {
        match self {
            Self::Conversation(id) => format!("c:{id}"),
            Self::Schedule(name) => format!("s:{name}"),
            Self::Uploader(hash) => format!("u:{hash}"),
        }
    }

    /// The holder that a text stands for.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once(':')?;
        match kind {
            "c" => Some(Self::Conversation(ConversationId::new(name))),
            "s" => Some(Self::Schedule(ScheduleName::new(name))),
            "u" => Some(Self::Uploader(name.to_owned())),
            _ => None,
        }
    }
}

/// A blob that somebody keeps for a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobHold {
    pub holder: BlobHolder,
    pub until: Timestamp,
}

impl BlobHold {
    /// A hold that begins now.
    pub fn new(holder: BlobHolder, now: Timestamp) -> Self {
        let until = now.checked_add(UNNAMED_BLOB_TTL).unwrap_or(Timestamp::MAX);
        Self { holder, until }
    }

    /// When the hold began.
    pub fn began_at(&self) -> Timestamp {
        self.until.checked_sub(UNNAMED_BLOB_TTL).unwrap_or(Timestamp::MIN)
    }
}
