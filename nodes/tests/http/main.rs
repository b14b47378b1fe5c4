//! The public API from the outside: every call, every refusal, and what the document says of them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod access;
mod access_matrix;
mod agents;
mod api;
mod blobs;
mod bodies;
mod calls;
mod child_calls;
mod conversations;
mod credentials;
mod decisions;
mod document;
mod forks;
mod hostile;
mod issuer;
mod jwt;
mod messages;
mod module;
mod natives;
mod ownership;
mod pages;
mod refusals;
mod schema_bombs;
mod spec;
mod stream;
