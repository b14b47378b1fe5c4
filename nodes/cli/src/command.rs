//! The commands, as they are typed.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::call_address::CallAddress;
use crate::command::erasures::ErasuresCommand;
use crate::command::listing::FoundBy;
use crate::command::operators::{
    ActorsCommand, AlarmsCommand, AuditCommand, FailCommand, MoveCommand, NodesCommand,
    ReasonCommand, ReleaseCommand,
};
use crate::command::resolving::{AnswerCommand, ApproveCommand, DenyCommand};
use crate::command::revisions::{
    DiffAgentCommand, GetAgentCommand, RollbackAgentCommand, RolloutAgentCommand,
};
use crate::command::setup::{
    CompletionCommand, ContextCommand, DevCommand, LoginCommand, ManCommand, TokensCommand,
};
use crate::command::steering::{QueueCommand, RegenerateCommand, RewindCommand};
use crate::command::time::{ExpireCommand, ExtendCommand, ScheduledCommand, SchedulesCommand};
use crate::command::transfer::{ExportCommand, ImportCommand};
use crate::command::webhooks::WebhooksCommand;
use crate::time::duration;

pub(crate) mod erasures;
pub(crate) mod listing;
pub(crate) mod operators;
pub(crate) mod resolving;
pub(crate) mod revisions;
pub(crate) mod setup;
pub(crate) mod steering;
pub(crate) mod time;
pub(crate) mod transfer;
pub(crate) mod webhooks;

/// The commands that ask nodes over HTTP.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// Creates a conversation
    New(NewCommand),
    /// Talks with an agent; asks for approvals and answers on the way
    Chat(ChatCommand),
    /// Sends one message, waits for the turn's end, and prints the answer
    Say(SayCommand),
    /// Lists the calls that wait for somebody, the earliest deadline first
    Inbox(InboxCommand),
    /// Approves a call
    Approve(ApproveCommand),
    /// Denies a call
    Deny(DenyCommand),
    /// Answers a question or a client's call
    Answer(AnswerCommand),
    /// Lets a call wait longer
    Extend(ExtendCommand),
    /// Follows a conversation live, one line for each event
    Tail(TailCommand),
    /// Explains what a conversation waits for, and what helps (operators)
    Why(ConversationCommand),
    /// Prints a conversation's journal
    Journal(JournalCommand),
    /// Prints a conversation's messages
    Messages(MessagesCommand),
    /// Shows a conversation
    Show(ConversationCommand),
    /// Lists conversations
    Ls(LsCommand),
    /// Ends the running turn
    Cancel(ConversationCommand),
    /// Lists the turns of a conversation that wait, and withdraws one
    #[command(subcommand)]
    Queue(QueueCommand),
    /// Begins the last turn of a conversation anew
    Regenerate(RegenerateCommand),
    /// Goes on from an earlier event: what came after it counts no longer
    Rewind(RewindCommand),
    /// Makes a conversation with the beginning of another
    Fork(ForkCommand),
    /// Sets when a conversation is deleted, or that it is not
    Expire(ExpireCommand),
    /// Deletes a conversation
    Rm(ConversationCommand),
    /// Writes a conversation, or all of them, to standard output as lines of JSON
    Export(ExportCommand),
    /// Reads what an export wrote from standard input
    Import(ImportCommand),
    /// Lists, reads, checks, defines and deletes agents and their revisions
    #[command(subcommand)]
    Agents(AgentsCommand),
    /// Lists and withdraws the messages of a conversation that come later
    #[command(subcommand)]
    Scheduled(ScheduledCommand),
    /// Lists, puts, triggers, pauses and deletes schedules
    #[command(subcommand)]
    Schedules(SchedulesCommand),
    /// Lists, puts, tests and deletes webhooks, and what they are owed
    #[command(subcommand)]
    Webhooks(WebhooksCommand),
    /// Erases people: deletes what they have, and takes their names out of what is others'
    #[command(subcommand)]
    Erasures(ErasuresCommand),
    /// Lists the queues: what waits for workers, and which were seen (operators)
    Queues,
    /// Lists the nodes (operators)
    Nodes(NodesCommand),
    /// Drains a node (operators)
    Drain(NodeCommand),
    /// Lists the live conversations (operators)
    Actors(ActorsCommand),
    /// Moves a conversation to another node (operators)
    Move(MoveCommand),
    /// Has the holder of a conversation give it up (operators)
    Release(ReleaseCommand),
    /// Crashes a conversation's actor, which is revived at once (operators)
    Kill(ReasonCommand),
    /// Tries now what waits for a later attempt, and lifts a quarantine (operators)
    Retry(ReasonCommand),
    /// Ends an open call with an error (operators)
    Fail(FailCommand),
    /// Lists the next alarms (operators)
    Alarms(AlarmsCommand),
    /// Prints what models were sent, and what came back (auditors)
    Audit(AuditCommand),
    /// Makes conversation tokens
    #[command(subcommand)]
    Tokens(TokensCommand),
    /// Stores where the nodes are, and a credential, as a context
    Login(LoginCommand),
    /// Shows who the nodes say that the caller is
    Whoami,
    /// Lists, chooses and changes contexts
    #[command(subcommand)]
    Context(ContextCommand),
    /// Starts a node to develop with, and applies the agents of a directory as they change
    Dev(DevCommand),
    /// Prints the completion script of a shell
    Completion(CompletionCommand),
    /// Prints the manual page, or writes all of them into a directory
    Man(ManCommand),
}

#[derive(Clone, Debug, Args)]
pub struct NewCommand {
    /// The id; one is made if none is given
    #[arg(value_name = "CONV")]
    pub conversation: Option<String>,
    /// The agent
    #[arg(long)]
    pub agent: String,
    /// Metadata: a text, by which `ls` finds the conversation where the agent indexes the key; KEY:=JSON is
    /// any JSON
    #[arg(long, value_name = "KEY=TEXT", value_parser = metadata)]
    pub metadata: Vec<(String, Value)>,
    /// When it is deleted, such as 2030-01-01T09:00:00Z
    #[arg(long, value_name = "TIME", conflicts_with = "expires_in")]
    pub expires_at: Option<String>,
    /// How long after now it is deleted, such as 30d
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub expires_in: Option<Duration>,
}

#[derive(Clone, Debug, Args)]
pub struct ChatCommand {
    /// The conversation; one is made if none is given
    #[arg(value_name = "CONV")]
    pub conversation: Option<String>,
    /// The agent of a new conversation
    #[arg(long)]
    pub agent: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub struct SayCommand {
    /// The conversation
    #[arg(value_name = "CONV")]
    pub conversation: String,
    /// What to say; - reads standard input
    #[arg(value_name = "TEXT")]
    pub text: String,
    /// Creates the conversation with this agent, if it is new
    #[arg(long)]
    pub agent: Option<String>,
    /// What to do if a turn runs
    #[arg(long, value_parser = ["reject", "queue", "interrupt", "steer"])]
    pub if_busy: Option<String>,
    /// How long to wait for the answer; 0s: not at all
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "60s")]
    pub wait: Duration,
    /// A file with the JSON Schema of the answer
    #[arg(long, value_name = "FILE")]
    pub schema: Option<PathBuf>,
    /// When the message is delivered: after this duration, without waiting for an answer
    #[arg(long = "in", value_name = "DURATION", conflicts_with = "deliver_at")]
    pub deliver_in: Option<String>,
    /// When the message is delivered: at this time, such as 2026-12-24T18:00:00Z
    #[arg(long = "at", value_name = "TIME")]
    pub deliver_at: Option<String>,
    /// The message's id: a message that is sent again with its id is the same
    #[arg(long, value_name = "ID")]
    pub message_id: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub struct InboxCommand {
    /// Follows: prints what begins to wait, and what waits no longer
    #[arg(short, long)]
    pub watch: bool,
    /// Only this kind
    #[arg(long, value_parser = ["approval", "elicitation", "client_exec", "in_doubt"])]
    pub kind: Option<String>,
    /// Only calls of this agent
    #[arg(long)]
    pub agent: Option<String>,
    /// Only calls of this tool
    #[arg(long)]
    pub tool: Option<String>,
    /// Only calls of this conversation and its children
    #[arg(long, value_name = "CONV")]
    pub conversation: Option<String>,
    /// Only what the caller may answer
    #[arg(long)]
    pub mine: bool,
    #[command(flatten)]
    pub limit: Limit,
}

#[derive(Clone, Debug, Args)]
pub struct TailCommand {
    /// The conversation
    #[arg(value_name = "CONV")]
    pub conversation: String,
    /// Begins after the event of this number; 0: with the first one
    #[arg(long, value_name = "SEQ")]
    pub after: Option<u64>,
    /// Shows texts while they are written
    #[arg(long)]
    pub deltas: bool,
}

#[derive(Clone, Debug, Args)]
pub struct ConversationCommand {
    /// The conversation
    #[arg(value_name = "CONV")]
    pub conversation: String,
}

#[derive(Clone, Debug, Args)]
pub struct JournalCommand {
    /// The conversation
    #[arg(value_name = "CONV")]
    pub conversation: String,
    /// Begins after the event of this number
    #[arg(long, value_name = "SEQ", default_value = "0")]
    pub after: u64,
    #[command(flatten)]
    pub limit: Limit,
}

#[derive(Clone, Debug, Args)]
pub struct MessagesCommand {
    /// The conversation
    #[arg(value_name = "CONV")]
    pub conversation: String,
    #[command(flatten)]
    pub limit: Limit,
}

#[derive(Clone, Debug, Args)]
pub struct LsCommand {
    /// Only conversations of this agent
    #[arg(long)]
    pub agent: Option<String>,
    /// Only conversations in this state
    #[arg(long, value_parser = ["idle", "preparing", "streaming", "executing_tools", "awaiting_input"])]
    pub state: Option<String>,
    #[command(flatten)]
    pub found: FoundBy,
    #[command(flatten)]
    pub limit: Limit,
}

#[derive(Clone, Debug, Args)]
pub struct ForkCommand {
    /// The conversation whose beginning is copied
    #[arg(value_name = "CONV")]
    pub conversation: String,
    /// The number of the last event that is copied; all of them if not given
    #[arg(long, value_name = "SEQ")]
    pub at: Option<u64>,
    /// The id of the fork; one is made if none is given
    #[arg(long)]
    pub id: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub struct NodeCommand {
    /// The node's name
    #[arg(value_name = "NODE")]
    pub node: String,
}

#[derive(Clone, Debug, Subcommand)]
pub enum AgentsCommand {
    /// Lists the agents
    Ls,
    /// Prints an agent's definition
    Get(GetAgentCommand),
    /// Lists an agent's revisions, the one that was put last at the top
    Revisions(AgentCommand),
    /// Shows what differs between two revisions
    Diff(DiffAgentCommand),
    /// Makes an earlier revision the newest one again
    Rollback(RollbackAgentCommand),
    /// Lets a share of an agent's conversations run on another revision than the newest one; shows
    /// the rollout if no revision is given
    Rollout(RolloutAgentCommand),
    /// Defines the agents of a directory that are new or differ
    Apply(ApplyCommand),
    /// Checks the definitions of a directory without a node
    Validate(FilesCommand),
    /// Deletes an agent
    Rm(AgentCommand),
}

#[derive(Clone, Debug, Args)]
pub struct AgentCommand {
    /// The agent's name
    #[arg(value_name = "AGENT")]
    pub agent: String,
}

#[derive(Clone, Debug, Args)]
pub struct FilesCommand {
    /// A directory of definitions, or one of them
    #[arg(short, long = "file", value_name = "DIR")]
    pub files: PathBuf,
}

#[derive(Clone, Debug, Args)]
pub struct ApplyCommand {
    #[command(flatten)]
    pub files: FilesCommand,
    /// Deletes the agents that are not in the directory
    #[arg(long)]
    pub prune: bool,
    /// Shows what would be done
    #[arg(long)]
    pub dry_run: bool,
}

/// How much of a list is printed.
#[derive(Clone, Copy, Debug, Args)]
pub struct Limit {
    /// The most rows
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
}

/// What is answered, and how it is remembered.
#[derive(Clone, Debug, Args)]
pub struct CallArgument {
    /// The call, as the inbox prints it: CONVERSATION/CALL, or CONVERSATION/CALL/SUSPENSION
    #[arg(value_name = "CONV/CALL")]
    pub call: CallAddress,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("must be KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// A member of metadata. A text stays one if it looks like a number, so that it is found as it was typed.
fn metadata(text: &str) -> Result<(String, Value), String> {
    let (key, value) = text.split_once('=').ok_or("must be KEY=TEXT or KEY:=JSON")?;
    let Some(key) = key.strip_suffix(':') else {
        return Ok((key.to_owned(), Value::String(value.to_owned())));
    };
    let value = serde_json::from_str(value).map_err(|error| format!("{key}: is no JSON: {error}"));
    Ok((key.to_owned(), value?))
}
