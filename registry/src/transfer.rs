//! Conversations as lines of JSON, which another place can read: written from a store, and read into
//! one.

mod export;
mod import;
mod line;
mod store;

pub use export::{ExportError, export, export_store};
pub use import::{Import, ImportError, NeededDefinition, Taken};
pub use line::MAX_LINE_BYTES;
pub use store::{ImportCounts, StoreImport};
