//! The commands about messages that come later: scheduled ones, schedules, and deadlines.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::{CallArgument, ConversationCommand};
use crate::time::duration;

#[derive(Clone, Debug, Subcommand)]
pub enum ScheduledCommand {
    /// Lists the messages of a conversation that wait for their time
    Ls(ConversationCommand),
    /// Withdraws one
    Rm(ScheduledMessage),
}

#[derive(Clone, Debug, Args)]
pub struct ScheduledMessage {
    /// The conversation
    #[arg(value_name = "CONV")]
    pub conversation: String,
    /// The id that `say --in` and the list print
    #[arg(value_name = "SCHEDULED")]
    pub scheduled: String,
}

#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct ExpiryArguments {
    /// When it is deleted, such as 2030-01-01T09:00:00Z
    #[arg(long, value_name = "TIME")]
    pub at: Option<String>,
    /// How long after now it is deleted, such as 30d
    #[arg(long = "in", value_name = "DURATION", value_parser = duration)]
    pub after: Option<Duration>,
    /// It is deleted at no time of its own
    #[arg(long)]
    pub never: bool,
}

#[derive(Clone, Debug, Args)]
pub struct ExpireCommand {
    /// The conversation
    #[arg(value_name = "CONV")]
    pub conversation: String,
    #[command(flatten)]
    pub end: ExpiryArguments,
}

#[derive(Clone, Debug, Subcommand)]
pub enum SchedulesCommand {
    /// Lists the schedules
    Ls,
    /// Prints a schedule, with its next tick and what became of the last one
    Show(ScheduleName),
    /// Puts a schedule, also in place of the one before
    Put(Box<PutScheduleCommand>),
    /// Sends its message now
    Trigger(ScheduleName),
    /// Pauses it
    Pause(ScheduleName),
    /// Resumes it with the first tick after now
    Resume(ScheduleName),
    /// Deletes it; the conversations of its ticks stay
    Rm(ScheduleName),
}

#[derive(Clone, Debug, Args)]
pub struct ScheduleName {
    /// The schedule's name
    #[arg(value_name = "SCHEDULE")]
    pub name: String,
}

#[derive(Clone, Debug, Args)]
pub struct PutScheduleCommand {
    /// The schedule's name
    #[arg(value_name = "SCHEDULE")]
    pub name: String,
    /// The message; - reads standard input
    #[arg(value_name = "TEXT")]
    pub text: String,
    /// The agent
    #[arg(long)]
    pub agent: String,
    /// Five fields, or a nickname such as @daily
    #[arg(long, required_unless_present = "every", conflicts_with = "every")]
    pub cron: Option<String>,
    /// The interval, at least 1s
    #[arg(long, value_name = "DURATION")]
    pub every: Option<String>,
    /// The time zone that the cron is read in, such as Europe/Berlin
    #[arg(long, value_name = "ZONE", requires = "cron")]
    pub timezone: Option<String>,
    /// The conversation that gets every message; without it each tick makes one
    #[arg(long, value_name = "CONV")]
    pub conversation: Option<String>,
    /// What becomes of the ticks of an outage
    #[arg(long, value_parser = ["last", "all", "skip"])]
    pub missed: Option<String>,
    /// No tick comes before this time
    #[arg(long, value_name = "TIME")]
    pub start: Option<String>,
    /// No tick comes after this time
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// It has no ticks until it is resumed
    #[arg(long)]
    pub paused: bool,
}

#[derive(Clone, Debug, Args)]
pub struct ExtendCommand {
    #[command(flatten)]
    pub call: CallArgument,
    /// How much longer it may wait
    #[arg(long = "for", value_name = "DURATION", default_value = "1h", conflicts_with = "until")]
    pub duration: String,
    /// Until when it may wait
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
}
