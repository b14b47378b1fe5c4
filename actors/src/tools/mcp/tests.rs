//! MCP clients against real servers of either protocol version, and against a hostile one.

#![allow(clippy::unwrap_used)]

mod calls;
mod hostile;
mod listings;
mod outages;
mod rig;
