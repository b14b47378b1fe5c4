//! What runs inside one conversation: the actor, its activities, the model and the tools.
//!
//! The rules are in [`abide_conversation`]; here they meet the clock, the network and a store.

pub mod activity;
pub mod agent;
pub mod agents;
pub mod assigns;
pub mod audit;
pub mod backoff;
pub mod blobs;
pub mod clock;
pub mod context;
pub mod conversation;
pub mod conversation_client;
pub mod definition;
pub mod diagnosis;
pub mod environment;
pub mod exec;
pub mod expressions;
pub mod hooks;
pub mod journal;
pub(crate) mod limits;
pub mod live;
pub mod metric;
pub mod model;
pub mod node_lease;
pub mod request;
mod signed_post;
pub mod snapshot;
pub mod streaming;
pub mod tools;
pub mod trace;
pub mod web_fetch;
pub mod workspace;
