//! Erasures: what one person has is deleted, and where others' things name that person, an alias
//! takes their place (`guide/erasing.md`).

mod blobs;
mod eraser;
mod listing;
mod other_journals;
mod own_conversations;
mod tenant_things;

pub use eraser::Eraser;
pub use listing::{find_running, list};
