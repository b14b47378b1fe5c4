//! Whole nodes in one process: actors, supervisor and router over a memory store, a scripted model
//! and paused time.
#![allow(clippy::unwrap_used, unreachable_pub)]

mod audit;
mod budgets;
mod child_deaths;
mod children;
mod client_calls;
mod context_reduction;
mod drain;
mod elicitation;
mod flaky_store;
mod fork;
mod gate;
mod hooks;
mod idempotency;
mod listeners;
mod media;
mod middleware;
mod newer_events;
mod node_deaths;
mod node_lease;
mod operator_repairs;
mod operator_views;
mod phases;
mod remembered_decisions;
mod revival;
mod router;
mod storm;
mod sub_agents;
mod summaries;
mod test_clock;
mod test_cluster;
mod test_model;
mod test_node;
mod tool_calls;
mod turns;
