//! Everything that runs for one conversation: its actor, its activities, models and tools.
//!
//! The rules are in [`abide_conversation`]; this crate connects them to the clock, the network and
//! a store. A program implements the ports [`journal`], [`live`], [`clock`] and
//! [`conversation_client`], fills [`services`], and starts one [`conversation::Conversation`] for
//! each conversation that lives on the node.

pub mod access;
pub mod activity;
pub mod agent;
pub mod agents;
pub mod announcements;
pub mod assigns;
mod attempt_failure;
pub mod audit;
pub mod backoff;
pub mod blobs;
pub mod child_calls;
pub mod clock;
pub mod context;
pub mod conversation;
pub mod conversation_client;
pub mod credentials;
pub mod definition;
pub mod diagnosis;
pub mod environment;
pub mod exec;
pub mod expressions;
pub mod external;
pub mod hooks;
pub mod identity;
pub mod journal;
pub mod limit_waits;
pub(crate) mod limits;
pub mod live;
pub mod metric;
pub mod model;
mod named_blobs;
pub mod near_alarms;
pub mod node_lease;
pub mod notices;
pub mod outbound;
mod pending_commit;
pub mod permit_sync;
mod recent_events;
pub mod request;
pub mod services;
mod signed_post;
pub mod snapshot;
pub mod streaming;
pub mod tools;
pub mod trace;
pub mod usage_counts;
pub mod web_fetch;
pub mod webhooks;
pub mod workspace;
