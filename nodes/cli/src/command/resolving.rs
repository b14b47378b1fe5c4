//! The commands that answer calls.

use clap::Args;

use super::CallArgument;

#[derive(Clone, Debug, Args)]
pub struct ApproveCommand {
    #[command(flatten)]
    pub call: CallArgument,
    /// Why
    #[arg(long)]
    pub reason: Option<String>,
    /// The arguments to run the tool with instead: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON")]
    pub args: Option<String>,
    #[command(flatten)]
    pub remember: Remember,
}

#[derive(Clone, Debug, Args)]
pub struct DenyCommand {
    #[command(flatten)]
    pub call: CallArgument,
    /// Why; the model reads it
    #[arg(long)]
    pub reason: Option<String>,
    #[command(flatten)]
    pub remember: Remember,
}

/// Whether the decision holds for later calls.
#[derive(Clone, Debug, Args)]
pub struct Remember {
    /// The decision holds for this long
    #[arg(long, value_name = "DURATION")]
    pub remember: Option<String>,
    /// For which calls it holds: with the same arguments, or all of the tool
    #[arg(long = "match", value_parser = ["exact", "tool"], requires = "remember")]
    pub matching: Option<String>,
    /// Where it holds: in this conversation, or in all of the agent
    #[arg(long, value_parser = ["conversation", "agent"], requires = "remember")]
    pub scope: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub struct AnswerCommand {
    #[command(flatten)]
    pub call: CallArgument,
    /// JSON, @FILE, or - for standard input; without it, a form asks for the answer. Where a text is asked
    /// for, it may stand without quotes
    #[arg(value_name = "JSON", conflicts_with = "error")]
    pub value: Option<String>,
    /// Makes the call's result this error, or declines
    #[arg(long, value_name = "TEXT")]
    pub error: Option<String>,
    /// A call that is in doubt runs again
    #[arg(long, conflicts_with_all = ["value", "error"])]
    pub retry: bool,
}
