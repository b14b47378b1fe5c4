//! The ten built-in tools, one file each.

#[allow(dead_code)]
pub(crate) mod bash;
mod edit;
mod glob;
mod grep;
mod plan_mode;
mod read;
mod spawn_agent;
mod todo_write;
mod web_fetch;
mod write;
