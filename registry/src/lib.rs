//! Where conversations live and how to reach them.

pub mod agents;
pub mod alarms;
pub mod conversations;
pub mod host;
pub mod live;
pub mod membership;
pub mod partition;
pub mod peers;
pub mod store;
