//! The shell: actors, supervisor and door over a store in memory, a scripted model and paused time.
#![allow(clippy::unwrap_used, unreachable_pub)]

mod calls;
mod deaths;
mod door;
mod flaky;
mod pages;
mod repeats;
mod revival;
mod rig;
mod town;
mod turns;
