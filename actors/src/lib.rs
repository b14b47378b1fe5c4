//! What runs inside one conversation: the actor, its activities, the model and the tools.
//!
//! The rules are in [`abide_conversation`]; here they meet the clock, the network and a store.

pub mod agent;
pub mod clock;
pub mod journal;
pub mod live;
pub mod model;
pub mod tools;
