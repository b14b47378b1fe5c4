//! Where conversations live and how to reach them: routing, placement, membership, the stores.

pub mod actor_view;
pub mod agent_catalog;
pub mod alarms;
pub mod cluster_client;
pub mod cluster_view;
pub mod host;
pub mod live;
pub mod member;
pub mod membership;
pub mod partition;
pub mod peers;
pub mod placement;
pub mod protocol;
pub mod router;
pub mod runtime;
pub mod seed_record;
pub mod standalone;
pub mod store;
pub mod suspension_metrics;
pub mod takeover;
