//! Protocols that existing clients speak. Each decodes a request into commands for a conversation, and
//! encodes the items of a turn: `reference/protocols.md`.

pub mod feed;
mod turn_stream;
pub mod ui;
