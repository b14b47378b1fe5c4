//! The commands that move conversations.

use clap::Args;

#[derive(Clone, Debug, Args)]
pub struct ExportCommand {
    /// The conversation
    #[arg(value_name = "CONV", required_unless_present = "all",
        conflicts_with_all = ["all", "store"])]
    pub conversation: Option<String>,
    /// All agents and conversations instead
    #[arg(long)]
    pub all: bool,
    /// Reads this store (embedded:DIR or a redis URL) instead of asking a node; one of a directory only
    /// while no node has it open
    #[arg(long, value_name = "STORE", requires = "all")]
    pub store: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub struct ImportCommand {
    /// Keeps the ids and the open work; otherwise each conversation becomes a copy with another id
    #[arg(long, conflicts_with = "store")]
    pub keep_id: bool,
    /// Writes into this store (embedded:DIR or a redis URL) instead of asking a node; ids and open work
    /// are kept, and what is there stays as it is
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
    /// What the store must promise before anything is written: fsync (the default), os, or replicas=N
    /// (Redis only), as for a node
    #[arg(long, value_name = "DURABILITY", requires = "store")]
    pub durability: Option<String>,
}
