//! A2A 1.0 over JSON-RPC: `reference/a2a.md`.

pub mod card;
pub mod decode;
pub mod encoder;
pub mod parts;
pub mod proto_json;
pub mod rpc;
pub mod task;
