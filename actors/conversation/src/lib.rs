//! One conversation as a pure value: what may happen next, what has happened, what must run now.
//!
//! Three functions, without clock, chance or I/O: [`decide`] turns a command into events,
//! [`evolve`] folds an event into the state, [`wanted`] names the activities that must be running.

pub mod activity;
mod answer_schema;
pub mod approval;
pub mod branch;
mod call_args;
pub mod call_ids;
mod checked_fold;
pub mod command;
pub mod context;
pub mod decide;
pub mod elicitation;
pub mod erase;
pub mod event;
mod evolve;
mod extent;
pub mod fork;
pub mod identity;
pub mod ids;
mod json;
pub mod key_value;
pub mod limits;
pub mod message;
pub mod numbers;
pub mod parent;
pub mod permission;
pub mod remembered_decision;
mod scoped;
pub mod state;
mod timestamp;
pub mod usage;
mod wanted;

pub use activity::Activity;
pub use answer_schema::AnswerSchema;
pub use call_args::CallArgs;
pub use checked_fold::{CheckedFold, IllegalEvent, checked_fold};
pub use command::{Action, Command};
pub use decide::{Rejection, Transition, check_resolution, decide, decide_and_fold};
pub use event::Event;
pub use evolve::{evolve, replay};
pub use identity::{Tenant, TenantError};
pub use ids::*;
pub use json::{from_json, keep_null};
pub use numbers::{Attempt, Seq, Step};
pub use scoped::{Scoped, ScopedError};
pub use state::State;
pub use timestamp::Timestamp;
pub use wanted::wanted;
