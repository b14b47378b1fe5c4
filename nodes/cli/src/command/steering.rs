//! The commands about turns: those that wait, and those that are taken back.

use clap::{Args, Subcommand};

use super::ConversationCommand;

#[derive(Clone, Debug, Subcommand)]
pub enum QueueCommand {
    /// Lists the turns that wait, the next one first
    Ls(ConversationCommand),
    /// Withdraws one: it never starts
    Rm(QueuedTurn),
}

#[derive(Clone, Debug, Args)]
pub struct QueuedTurn {
    /// The conversation
    #[arg(value_name = "CONV")]
    pub conversation: String,
    /// The turn, as the list prints it
    #[arg(value_name = "TURN")]
    pub turn: String,
}

#[derive(Clone, Debug, Args)]
pub struct RegenerateCommand {
    /// The conversation
    #[arg(value_name = "CONV")]
    pub conversation: String,
    /// Another turn than the last one; the turns after it count no longer, either
    #[arg(long, value_name = "TURN")]
    pub turn: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub struct RewindCommand {
    /// The conversation
    #[arg(value_name = "CONV")]
    pub conversation: String,
    /// The number of the last event that still counts: before a turn, or at its end
    #[arg(long = "to", value_name = "SEQ")]
    pub to_seq: u64,
}
