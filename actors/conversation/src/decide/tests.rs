//! The stories of a conversation, told through `decide`, `evolve` and `wanted` alone.
#![allow(clippy::unwrap_used)]

mod asking;
mod call_ids;
mod cancelling;
mod cells;
mod chance;
mod children;
mod contexts;
mod costs;
mod deadlines;
mod dispatching;
mod failing;
mod forking;
mod hooked;
mod mixed;
mod queueing;
mod races;
mod referee;
mod remembered;
mod reviving;
mod shapes;
mod steps;
mod story;
mod structured;
mod truncation;
