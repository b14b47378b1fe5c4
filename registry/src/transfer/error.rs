//! Why an import was refused.

use abide_actors::journal::StoreError;
use abide_conversation::limits::LimitError;
use abide_conversation::{IllegalEvent, Rejection, Revision};

use super::line::EXPORT_FORMAT;

/// Why an import was refused.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("is no JSON that an export has: {0}")]
    NotALine(String),
    #[error("format: format {0} is none of those that this version reads, 1 to {EXPORT_FORMAT}")]
    OtherFormat(u64),
    #[error("{0}: is of a newer format: it is a member that this version would not write")]
    UnknownMember(String),
    #[error("{0}")]
    Misplaced(&'static str),
    /// The lines may have been cut off between two conversations.
    #[error("is the last one, but the end of the store is missing, and so may be conversations")]
    StoreEndMissing,
    /// The lines say so themselves; what they have is imported.
    #[error("missing: {count} conversations could not be read where the file was written: {ids}")]
    Missing { count: u64, ids: String },
    #[error("type: is of a newer format: {0:?} is an event that this version does not know")]
    UnknownEvent(String),
    #[error("{member}: cannot have happened: {0}", member = .0.member())]
    Illegal(#[from] IllegalEvent),
    /// A value that no request may give.
    #[error(transparent)]
    OverLimit(#[from] LimitError),
    #[error("cannot be copied: {0}")]
    Rejected(#[from] Rejection),
    #[error("is a blob whose bytes have another hash than its id")]
    OtherHash,
    #[error("is longer than {0} bytes")]
    TooLong(usize),
    #[error("an open turn runs on revision {0}, whose definition is neither here nor in the lines")]
    MissingRevision(Revision),
    #[error("the conversation already exists")]
    Exists,
    /// The conversation is there by an earlier request with the same key.
    #[error("the conversation was imported before")]
    Repeated,
    #[error("the conversation was taken up while it was written")]
    TakenUp,
    #[error(transparent)]
    Store(StoreError),
}
