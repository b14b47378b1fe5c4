//! The options that every command has.

use clap::{Args, ValueEnum};

use crate::time::TimeStyle;

/// Where the nodes are, who asks them, and how answers are shown.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Global options")]
pub struct Options {
    /// Addresses of the public API, such as http://127.0.0.1:8080; with several, separated by commas, the
    /// next one is tried when a node is away
    #[arg(long, global = true, env = "ABIDE_URL", value_name = "URL", value_delimiter = ',')]
    pub url: Vec<String>,
    /// Addresses of the operators' API, such as http://127.0.0.1:9090
    #[arg(long, global = true, env = "ABIDE_ADMIN_URL", value_name = "URL", value_delimiter = ',')]
    pub admin_url: Vec<String>,
    /// The credential; in ABIDE_TOKEN, no list of processes shows it
    #[arg(long, global = true, env = "ABIDE_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub token: Option<String>,
    /// The context of `abide login` and `abide context` to use instead of the current one
    #[arg(long, global = true, env = "ABIDE_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,
    /// How answers are printed
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT", default_value = "table")]
    pub output: Output,
    /// How times are printed in tables
    #[arg(long, global = true, value_enum, value_name = "STYLE", default_value = "human")]
    pub time: TimeStyle,
    /// Prints nothing but what was asked for
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Answers yes to questions about what cannot be undone
    #[arg(short, long, global = true)]
    pub yes: bool,
    /// Prints each request on standard error, without the credential
    #[arg(short, long, global = true)]
    pub verbose: bool,
}

/// The format of what is printed on standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Columns and lines for people
    Table,
    /// The answer as one JSON document
    Json,
    /// One line of JSON for each item of a list
    Jsonl,
}
