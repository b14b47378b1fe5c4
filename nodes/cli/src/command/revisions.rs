//! The commands about revisions of agents.

use clap::Args;

#[derive(Clone, Debug, Args)]
pub struct GetAgentCommand {
    /// The agent's name
    #[arg(value_name = "AGENT")]
    pub agent: String,
    /// This revision instead of the newest one
    #[arg(long)]
    pub revision: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub struct DiffAgentCommand {
    /// The agent's name
    #[arg(value_name = "AGENT")]
    pub agent: String,
    /// The revision before the changes
    #[arg(value_name = "REVISION")]
    pub from: String,
    /// The revision after the changes; the newest one if not given
    #[arg(value_name = "OTHER")]
    pub to: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub struct RollbackAgentCommand {
    /// The agent's name
    #[arg(value_name = "AGENT")]
    pub agent: String,
    /// The revision
    #[arg(value_name = "REVISION")]
    pub revision: String,
}

#[derive(Clone, Debug, Args)]
pub struct RolloutAgentCommand {
    /// The agent's name
    #[arg(value_name = "AGENT")]
    pub agent: String,
    /// The revision for the share
    #[arg(value_name = "REVISION", requires = "percent", conflicts_with = "end")]
    pub revision: Option<String>,
    /// The share of the conversations, from 0 to 100; a larger one has those of a smaller one
    #[arg(value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub percent: Option<u8>,
    /// End it: all new turns run on the newest revision
    #[arg(long)]
    pub end: bool,
}
