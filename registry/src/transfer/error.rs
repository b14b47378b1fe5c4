//! Why an import was refused.

use abide_actors::journal::StoreError;
use abide_conversation::{IllegalEvent, Rejection, Revision};

use super::line::EXPORT_FORMAT;

/// Why an import was refused.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("is no JSON that an export has: {0}")]
    NotALine(String),
    #[error("has format {0}; this version reads up to {EXPORT_FORMAT}")]
    NewerFormat(u64),
    #[error("{0}")]
    Misplaced(&'static str),
    #[error("is an event of type {0:?}, which this version does not know")]
    UnknownEvent(String),
    #[error("cannot have happened: {0}")]
    Illegal(#[from] IllegalEvent),
    #[error("cannot be copied: {0}")]
    Rejected(#[from] Rejection),
    #[error("is a blob whose bytes have another hash than its id")]
    OtherHash,
    #[error("is longer than {0} bytes")]
    TooLong(usize),
    #[error("begins a turn whose id an earlier turn has")]
    TurnTwice,
    #[error("goes on from an event that no turn had ended with")]
    WithinTurn,
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
