//! The shell: actors, supervisor and door over a store in memory, a scripted model and paused time.
#![allow(clippy::unwrap_used, unreachable_pub)]

mod asking;
mod calls;
mod child_deaths;
mod children;
mod deaths;
mod decisions;
mod door;
mod drains;
mod family;
mod flaky;
mod gate;
mod hooks;
mod listeners;
mod middleware;
mod operators;
mod pages;
mod plan;
mod repeats;
mod revival;
mod rig;
mod soundness;
mod storm;
mod time;
mod town;
mod turns;
