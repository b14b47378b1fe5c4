//! OpenAI's API: `reference/openai.md`.

mod answers;
pub(super) mod chat_completions;
pub(super) mod conversations;
mod input;
mod list;
pub(super) mod models;
pub(super) mod responses;
pub(super) mod retrieval;
mod segment;
mod sending;
