//! The program `abide`: configuration, composition, HTTP, and how it starts and stops.

pub mod admin;
pub mod clock;
pub mod config;
pub mod demo;
pub mod http;
pub mod node;
mod seed_agents;
mod server;
pub mod telemetry;
