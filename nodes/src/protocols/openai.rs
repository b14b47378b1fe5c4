//! OpenAI's Responses and Chat Completions: `reference/openai.md`.

pub mod chat;
pub mod encoder;
pub mod history;
pub mod items;
pub mod response;
