//! The public API from outside: every operation, every refusal, each checked against the OpenAPI
//! document.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod agents;
mod api;
mod blobs;
mod browser_pages;
mod calls;
mod conversations;
mod forks;
mod hostile_bytes;
mod js_module;
mod messages;
mod native_lifecycle;
mod openapi_document;
mod rejected_requests;
mod remembered_decisions;
mod spec;
mod stream;
