//! The commands of operators and auditors.

use clap::Args;

use super::{CallArgument, Limit};

#[derive(Clone, Debug, Args)]
pub struct NodesCommand {
    /// Prints them again every two seconds
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Clone, Debug, Args)]
pub struct ActorsCommand {
    /// Prints them again every two seconds
    #[arg(short, long)]
    pub watch: bool,
    /// Only those of this node
    #[arg(long)]
    pub node: Option<String>,
    /// Only those in this state
    #[arg(long)]
    pub state: Option<String>,
    #[command(flatten)]
    pub limit: Limit,
}

#[derive(Clone, Debug, Args)]
pub struct AlarmsCommand {
    #[command(flatten)]
    pub limit: Limit,
}

#[derive(Clone, Debug, Args)]
pub struct AuditCommand {
    /// The conversation
    #[arg(value_name = "CONV")]
    pub conversation: String,
    #[command(flatten)]
    pub limit: Limit,
}

#[derive(Clone, Debug, Args)]
pub struct ReasonCommand {
    /// The conversation
    #[arg(value_name = "CONV")]
    pub conversation: String,
    /// Why, for people
    #[arg(long)]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub struct MoveCommand {
    #[command(flatten)]
    pub release: ReleaseCommand,
    /// The node that gets it; the placement chooses if none is given
    #[arg(long)]
    pub node: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub struct ReleaseCommand {
    #[command(flatten)]
    pub reason: ReasonCommand,
    /// Interrupts calls that must not run twice
    #[arg(long)]
    pub force: bool,
}

#[derive(Clone, Debug, Args)]
pub struct FailCommand {
    #[command(flatten)]
    pub call: CallArgument,
    /// What the model reads
    #[arg(long, value_name = "TEXT")]
    pub error: Option<String>,
    /// Why, for people
    #[arg(long)]
    pub reason: Option<String>,
}
