//! Who keeps a blob that no journal names yet, and until when.

use abide_conversation::{ConversationId, ScheduleName, Timestamp};
use data_encoding::HEXLOWER;
use jiff::SignedDuration;
use sha2::{Digest, Sha256};

/// For how long a blob stays that nothing names, counted from its last upload: a person who has
/// chosen a picture in the evening can still send it the next morning.
pub const UNNAMED_BLOB_TTL: SignedDuration = SignedDuration::from_hours(24);
/// How many of its holds a blob has one by one, besides those of schedules, which a quota bounds: one
/// more is of [everybody else](BlobHolder::Others). So what a blob costs does not grow with who
/// uploads it, and nobody's upload ends early.
pub const MAX_BLOB_HOLDS: usize = 16;
/// How much later than a message a clock may say that its upload was.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(60);
/// The bytes of the hash that stands for an uploader.
const UPLOADER_BYTES: usize = 16;

/// Who keeps a blob that no journal names yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlobHolder {
    /// A conversation that is about to name it.
    Conversation(ConversationId),
    /// A schedule whose messages name it, as it was put once; `None` if an earlier version put it.
    Schedule { name: ScheduleName, put: Option<String> },
    /// Whoever has uploaded it, as a hash: an erasure finds the uploads of a subject, and the store
    /// shows nobody's name.
    Uploader(String),
    /// All those who were one too many. No name ends their hold, because nobody knows whose it is: it
    /// runs out.
    Others,
}

impl BlobHolder {
    /// The subject, or anybody who has no name, as an uploader.
    pub fn uploader(subject: &str) -> Self {
        let hash = Sha256::digest(subject);
        Self::Uploader(HEXLOWER.encode(&hash[..UPLOADER_BYTES]))
    }

    /// The holder as text, unlike that of any other. Stores keep it, so it must never change.
    pub fn text(&self) -> String {
        match self {
            Self::Conversation(id) => format!("c:{id}"),
            Self::Schedule { name, put: None } => format!("s:{name}"),
            Self::Schedule { name, put: Some(put) } => format!("s:{name}:{put}"),
            Self::Uploader(hash) => format!("u:{hash}"),
            Self::Others => "others:".to_owned(),
        }
    }

    /// The holder that a text stands for.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once(':')?;
        match kind {
            "c" => Some(Self::Conversation(ConversationId::new(name))),
            "s" => {
                // No name of a schedule has a colon.
                let (name, put) = match name.split_once(':') {
                    Some((name, put)) => (name, Some(put.to_owned())),
                    None => (name, None),
                };
                Some(Self::Schedule { name: ScheduleName::new(name), put })
            }
            "u" => Some(Self::Uploader(name.to_owned())),
            "others" => Some(Self::Others),
            _ => None,
        }
    }
}

/// A blob that somebody keeps for a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

    /// The last hold that a message of this subject and time may use up.
    pub fn used_up_by(sender: &str, at: Timestamp) -> Self {
        let last = at.checked_add(CLOCK_TOLERANCE).unwrap_or(Timestamp::MAX);
        Self::new(BlobHolder::uploader(sender), last)
    }

    /// Whether the other hold ends with this one: it is of the same holder, and not later.
    pub fn ends(&self, other: &Self) -> bool {
        self.holder == other.holder && other.until <= self.until
    }

    /// When the hold began.
    pub fn began_at(&self) -> Timestamp {
        self.until.checked_sub(UNNAMED_BLOB_TTL).unwrap_or(Timestamp::MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_read_from_its_text() {
        let schedule = |put: Option<&str>| BlobHolder::Schedule {
            name: ScheduleName::new("daily"),
            put: put.map(str::to_owned),
        };
        let hash = "aa".repeat(UPLOADER_BYTES);
        for (holder, text) in [
            (BlobHolder::Conversation(ConversationId::new("c:1")), "c:c:1"),
            (schedule(None), "s:daily"),
            (schedule(Some("put_1")), "s:daily:put_1"),
            (BlobHolder::Uploader(hash.clone()), &*format!("u:{hash}")),
            (BlobHolder::Others, "others:"),
        ] {
            assert_eq!(holder.text(), text);
            assert_eq!(BlobHolder::parse(text), Some(holder));
        }
        assert_eq!(BlobHolder::uploader("ada").text().len(), 2 + 2 * UPLOADER_BYTES);
        for text in ["", "u", "x:y"] {
            assert_eq!(BlobHolder::parse(text), None);
        }
    }
}
