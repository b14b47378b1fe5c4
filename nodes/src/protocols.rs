//! Protocols that existing clients speak. Their pure parts: the items of a turn, and their
//! encodings.

pub mod ai_sdk;
pub mod feed;
pub mod openai;
