//! The AI SDK's UI message stream, which `useChat` speaks.

mod decode;
pub mod encoder;
pub mod page;
mod response;
pub(crate) mod routes;
mod transcript;
