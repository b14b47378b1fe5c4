//! Conversations as lines of JSON, which another place can read: written from a store, and read into
//! one.

mod claim;
mod error;
mod export;
mod import;
mod line;
mod store;

pub use error::ImportError;
pub use export::{ExportError, Exported, export, export_store};
pub use import::{Import, NeededDefinition, Taken};
pub use line::MAX_LINE_BYTES;
pub use store::{ImportCounts, StoreImport};
