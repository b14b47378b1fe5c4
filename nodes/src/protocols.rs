//! Protocols that existing clients speak. Their pure parts: the items of a turn, and their
//! encodings.

pub mod a2a;
pub mod ag_ui;
pub mod ai_sdk;
pub mod answers;
pub mod feed;
pub mod mcp;
pub mod openai;
pub mod task_id;
