//! The ten built-in tools, one file each.

mod bash;
mod edit;
mod glob;
mod grep;
mod plan_mode;
mod read;
mod spawn_agent;
mod todo_write;
#[allow(dead_code)]
mod web_fetch;
mod write;
