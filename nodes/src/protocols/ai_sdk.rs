//! The AI SDK's UI message stream, which `useChat` speaks: `reference/ui-stream.md`.

pub mod encoder;
pub mod page;
pub mod transcript;
