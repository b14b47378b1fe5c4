//! The ten built-in tools, one file each.

mod bash;
#[allow(dead_code)]
mod edit;
#[allow(dead_code)]
mod glob;
#[allow(dead_code)]
mod grep;
mod plan_mode;
#[allow(dead_code)]
mod read;
mod spawn_agent;
mod todo_write;
mod web_fetch;
#[allow(dead_code)]
mod write;
