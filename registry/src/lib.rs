//! Where conversations live and how to reach them.

pub mod agents;
pub mod alarms;
pub mod alone;
pub mod census;
pub mod cluster;
pub mod conversations;
pub mod host;
pub mod life;
pub mod live;
pub mod membership;
pub mod partition;
pub mod peers;
pub mod placement;
pub mod sight;
pub mod store;
pub mod takeover;
pub mod view;
pub mod wire;
