//! Where conversations live and how to reach them: routing, placement, membership, the stores.

pub mod actor_view;
pub mod added_keys;
pub mod agent_catalog;
pub mod alarms;
pub mod blob_sweeper;
pub mod cluster_client;
pub mod cluster_view;
pub mod erasure;
pub mod erasures;
pub mod host;
pub mod index_rebuilder;
pub mod live;
pub mod member;
pub mod membership;
pub mod notices;
pub mod partition;
pub mod peers;
pub mod permits;
pub mod placement;
pub mod protocol;
pub mod queue_calls;
pub mod queues;
pub mod retention;
mod revisions;
pub mod router;
pub mod rpc_server;
pub mod runtime;
pub mod schedule_changes;
pub mod schedules;
pub mod seed_record;
mod shared_reads;
pub mod standalone;
pub mod store;
pub mod suspension_metrics;
pub mod takeover;
pub mod ticks;
pub mod transfer;

/// How far the clocks of two nodes are apart at most.
pub(crate) const CLOCK_SKEW: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);
