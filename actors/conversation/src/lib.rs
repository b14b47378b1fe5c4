//! One conversation as a pure value: what may happen next, what has happened, what must run now.
//!
//! Three functions, without clock, chance or I/O: [`decide`] says what a command comes to,
//! [`evolve`] folds an event into the state, [`wanted`] names the activities that must be running.

pub mod activity;
pub mod child;
pub mod command;
pub mod context;
pub mod cost;
pub mod decide;
pub mod event;
mod evolve;
pub mod fork;
pub mod ids;
pub mod input;
pub mod message;
pub mod permission;
mod read;
pub mod remembered;
pub mod state;
pub mod used_ids;
mod wanted;

pub use activity::Activity;
pub use command::{Action, Command};
pub use decide::{Decision, Rejection, decide, decided};
pub use event::Event;
pub use evolve::{evolve, replay};
pub use ids::*;
pub use read::{from_json, present};
pub use state::State;
pub use wanted::wanted;

/// A moment, in UTC.
pub type Timestamp = jiff::Timestamp;
