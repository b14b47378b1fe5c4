//! The commands that are about this program, its credentials and its surroundings.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::Shell;

use crate::call_address::CallAddress;

#[derive(Clone, Debug, Subcommand)]
pub enum TokensCommand {
    /// Prints a new conversation token
    Mint(MintCommand),
}

#[derive(Clone, Debug, Args)]
pub struct MintCommand {
    /// The conversation that the token is for
    #[arg(long, value_name = "CONV", required_unless_present_any = ["prefix", "call"])]
    pub conversation: Option<String>,
    /// The token is for all conversations whose ids begin so
    #[arg(long, conflicts_with_all = ["conversation", "call"])]
    pub prefix: Option<String>,
    /// The token answers this call only, CONVERSATION/CALL/SUSPENSION; may be repeated
    #[arg(long, value_name = "CALL", conflicts_with = "conversation")]
    pub call: Vec<CallAddress>,
    /// What the token permits: read, say, create, cancel, answer, approve
    #[arg(long, value_name = "RIGHTS", value_delimiter = ',', value_parser = RIGHTS)]
    pub can: Vec<String>,
    /// How long it is valid; at most 1h
    #[arg(long = "for", value_name = "DURATION")]
    pub ttl: Option<String>,
    /// Who acts with it; the caller if not given
    #[arg(long)]
    pub subject: Option<String>,
    /// With the right to create: the only agent
    #[arg(long)]
    pub agent: Option<String>,
}

/// The rights of a token, as people say them.
const RIGHTS: [&str; 6] = ["read", "say", "create", "cancel", "answer", "approve"];

#[derive(Clone, Debug, Args)]
pub struct LoginCommand {
    /// The name of the context
    #[arg(default_value = "default", value_name = "NAME")]
    pub name: String,
}

#[derive(Clone, Debug, Subcommand)]
pub enum ContextCommand {
    /// Lists the contexts, without their credentials
    Ls,
    /// Makes a context the current one
    Use(ContextName),
    /// Makes or changes a context with what --url, --admin-url and --token say
    Set(ContextName),
    /// Deletes a context with its credential
    Rm(ContextName),
}

#[derive(Clone, Debug, Args)]
pub struct ContextName {
    /// The context
    #[arg(value_name = "NAME")]
    pub name: String,
}

#[derive(Clone, Debug, Args)]
pub struct CompletionCommand {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

#[derive(Clone, Debug, Args)]
pub struct ManCommand {
    /// Writes a page for each command into this directory
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub struct DevCommand {
    /// A directory of agent definitions, which is watched
    #[arg(long, value_name = "DIR")]
    pub agents: Option<PathBuf>,
    /// Where the node keeps its journals
    #[arg(long, value_name = "DIR", default_value = ".abide")]
    pub store: PathBuf,
    /// The public API; port 0 takes any free one
    #[arg(long, default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// The operators' API; port 0 takes any free one
    #[arg(long, default_value = "127.0.0.1:9090")]
    pub admin_listen: SocketAddr,
    /// Does not open the console in a browser
    #[arg(long)]
    pub no_open: bool,
}
