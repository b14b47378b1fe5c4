//! The command line and the environment (contract §9).

use std::net::SocketAddr;
use std::num::NonZeroU8;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use abide_actors::exec::{CONFINE_SUBCOMMAND, LAUNCH_SUBCOMMAND, Sandbox};
use abide_registry::placement::Policy;
use abide_registry::store::redis::{RedisUrl, RedisUrlError};
use clap::builder::BoolishValueParser;
use clap::{Parser, Subcommand, ValueEnum};

use crate::http::cors::Origin;

/// Durable conversations between people, models and tools.
#[derive(Debug, Parser)]
#[command(name = "abide", version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub serve: Config,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serves conversations; the same as no command.
    Serve(Box<Config>),
    /// Prints the OpenAPI document of the public API.
    Openapi,
    /// What a node starts for each command that an agent runs.
    #[command(name = LAUNCH_SUBCOMMAND, hide = true)]
    LaunchCommand,
    /// What that starts in turn, and what becomes the command.
    #[command(name = CONFINE_SUBCOMMAND, hide = true)]
    ConfineCommand,
}

/// How a node runs.
#[derive(Clone, Debug, clap::Args)]
pub struct Config {
    /// memory, embedded:DIR, redis://…, rediss://…, redis+cluster://…, or redis+sentinel://…/NAME
    #[arg(long, env = "ABIDE_STORE", default_value = "embedded:.abide")]
    pub store: StoreUrl,
    /// Public API; port 0 is any free one
    #[arg(long, env = "ABIDE_LISTEN", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Other origins whose pages may use the public API, such as https://example.com; * for any
    #[arg(long, env = "ABIDE_ALLOW_ORIGIN", value_name = "URL", value_delimiter = ',')]
    pub allow_origin: Vec<Origin>,
    /// Operators' API
    #[arg(long, env = "ABIDE_ADMIN_LISTEN", default_value = "127.0.0.1:9090")]
    pub admin_listen: SocketAddr,
    /// Node to node; used with a Redis store only
    #[arg(long, env = "ABIDE_CLUSTER_LISTEN", default_value = "127.0.0.1:7070")]
    pub cluster_listen: SocketAddr,
    /// What other nodes dial; the listen address if not given
    #[arg(long)]
    pub cluster_advertise: Option<String>,
    /// Which node gets a conversation that nobody holds: local, rendezvous, or least-loaded
    #[arg(long, env = "ABIDE_PLACEMENT", default_value = "local")]
    pub placement: Policy,
    /// The node's name; a restart is a new incarnation of it
    #[arg(long, env = "ABIDE_NODE")]
    pub node: Option<String>,
    /// A directory of agents' definitions; one wins over what HTTP defined or deleted since only
    /// when its file was changed
    #[arg(long, env = "ABIDE_AGENTS")]
    pub agents: Option<PathBuf>,
    /// How long a silent node is still believed alive
    #[arg(long, env = "ABIDE_LEASE", default_value = "5s", value_parser = some_time)]
    pub lease: Duration,
    /// How long an actor with nothing to do stays in memory
    #[arg(long, default_value = "30s", value_parser = some_time)]
    pub passivate_after: Duration,
    /// How long SIGTERM waits for running work
    #[arg(long, default_value = "25s", value_parser = duration)]
    pub drain_timeout: Duration,
    /// Workspaces of conversations, .abide/workspaces if not given; on a cluster, shared storage
    #[arg(long, env = "ABIDE_WORKSPACES")]
    pub workspaces: Option<PathBuf>,
    /// Whether commands run in a sandbox: auto (as far as the kernel has one) or off
    #[arg(long, env = "ABIDE_SANDBOX", default_value = "auto")]
    pub sandbox: SandboxChoice,
    /// What a 2xx promises: fsync, os, or replicas=N (Redis only)
    #[arg(long, default_value = "fsync")]
    pub durability: Durability,
    /// text on a terminal, else json
    #[arg(long)]
    pub log_format: Option<LogFormat>,
    /// Where traces go to, by OTLP over HTTP (protobuf), such as http://127.0.0.1:4318
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", hide_env_values = true, value_name = "URL")]
    pub otlp: Option<String>,
    /// Shows what people, models and tools said on spans, and in errors of the log
    #[arg(long, env = "ABIDE_TELEMETRY_CONTENT", value_parser = BoolishValueParser::new())]
    pub telemetry_content: bool,
}

/// Where journals are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    Memory,
    Embedded(PathBuf),
    Redis(RedisUrl),
}

impl FromStr for StoreUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            _ if text == "memory" => Ok(Self::Memory),
            Some(("embedded", dir)) if !dir.is_empty() => Ok(Self::Embedded(dir.into())),
            Some((scheme, _)) if scheme.starts_with("redis") => {
                text.parse().map(Self::Redis).map_err(|error: RedisUrlError| error.to_string())
            }
            _ => Err("must be memory, embedded:DIR or a redis URL".to_owned()),
        }
    }
}

/// What a 2xx to a mutating call promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It survives the machine.
    Fsync,
    /// It survives the process.
    Os,
    /// So many replicas have it.
    Replicas(NonZeroU8),
}

impl FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "fsync" => Ok(Self::Fsync),
            "os" => Ok(Self::Os),
            text => {
                let count = text.strip_prefix("replicas=").and_then(|count| count.parse().ok());
                count.map(Self::Replicas).ok_or("must be fsync, os or replicas=N".to_owned())
            }
        }
    }
}

/// Whether commands run in a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SandboxChoice {
    Auto,
    Off,
}

impl From<SandboxChoice> for Sandbox {
    fn from(choice: SandboxChoice) -> Self {
        match choice {
            SandboxChoice::Auto => Self::Auto,
            SandboxChoice::Off => Self::Off,
        }
    }
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

fn duration(text: &str) -> Result<Duration, String> {
    let span: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
    Duration::try_from(span).map_err(|_| wrong())
}

fn some_time(text: &str) -> Result<Duration, String> {
    let duration = duration(text)?;
    if duration.is_zero() { Err("must be more than nothing".to_owned()) } else { Ok(duration) }
}

fn wrong() -> String {
    "must be a duration such as 300s, 5m or 250ms".to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn origins(flags: &[&str]) -> Result<Vec<Origin>, clap::Error> {
        let arguments = ["abide"].iter().chain(flags);
        Cli::try_parse_from(arguments).map(|cli| cli.serve.allow_origin)
    }

    #[test]
    fn origins_are_given_one_by_one_or_in_a_list() {
        let (a, b): (Origin, Origin) = ("http://a".parse().unwrap(), "https://b".parse().unwrap());
        let both = Some(vec![a, b]);
        assert_eq!(origins(&[]).ok(), Some(vec![]));
        assert_eq!(origins(&["--allow-origin", "http://a,https://b"]).ok(), both);
        let each = ["--allow-origin", "http://a", "--allow-origin", "https://b"];
        assert_eq!(origins(&each).ok(), both);
        assert_eq!(origins(&["--allow-origin", "*"]).ok(), Some(vec![Origin::Any]));
        assert!(origins(&["--allow-origin", "http://a,b"]).is_err());
        assert!(origins(&["--allow-origin", ""]).is_err());
    }
}
