//! The commands that erase people.

use clap::{Args, Subcommand};

#[derive(Clone, Debug, Subcommand)]
pub enum ErasuresCommand {
    /// Begins to erase a person; prints the id of the erasure
    Start(StartErasureCommand),
    /// Lists the erasures: those that run, and then those that are done
    #[command(alias = "list")]
    Ls,
    /// Prints an erasure: how far it has come, or its report
    Show(ErasureId),
}

#[derive(Clone, Debug, Args)]
pub struct StartErasureCommand {
    /// The person, as the owner of conversations
    #[arg(value_name = "OWNER")]
    pub owner: String,
    /// Waits until it is done, and prints the report
    #[arg(long)]
    pub wait: bool,
}

#[derive(Clone, Debug, Args)]
pub struct ErasureId {
    /// The erasure's id
    #[arg(value_name = "ERASURE")]
    pub id: String,
}
