//! Against real servers of either protocol, and one that no library would let be so bad.

#![allow(clippy::unwrap_used)]

mod calls;
mod hostile;
mod listings;
mod outages;
mod rig;
