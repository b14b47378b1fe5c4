//! The Model Context Protocol, with agents as tools.

pub mod agent_turn;
pub mod question;
pub mod tools;
