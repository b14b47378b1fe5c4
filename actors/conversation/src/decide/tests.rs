//! Tests of a conversation through `decide`, `evolve` and `wanted` alone.
#![allow(clippy::unwrap_used)]

mod call_ids;
mod cancel;
mod children;
mod context;
mod dispatch;
mod elicitation;
mod executor_matrix;
mod fail_call;
mod fork;
mod hooks;
mod journal_checker;
mod json_shapes;
mod mixed_calls;
mod operate;
mod races;
mod random_driver;
mod remembered;
mod revive;
mod scenario;
mod send;
mod steps;
mod structured;
mod truncation;
mod update;
mod usage;
mod voters;
mod votes;
mod wake;
