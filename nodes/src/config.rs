//! The command line and the environment: `reference/flags.md`.

mod admin_address;
mod allowed_host;
mod origin;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU8;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use abide_actors::exec::Sandbox;
use abide_actors::identity::NodeName;
use abide_conversation::is_segment;
use abide_registry::placement::Policy;
use abide_registry::store::redis::{RedisUrl, RedisUrlError};
use abide_registry::store::{AuditLevel, Compression};
use clap::builder::BoolishValueParser;
use clap::{Parser, Subcommand, ValueEnum};

pub use crate::access::document::AgentsOverHttp;
pub use crate::keys_command::{Generate, KeysCommand};
use crate::public_url::PublicUrl;
pub use admin_address::AdminAddress;
pub use allowed_host::AllowedHost;
pub use origin::Origin;

/// A free port of the loopback interface.
const ANY_LOOPBACK_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

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
    /// Serves conversations; the default.
    Serve(Box<Config>),
    /// Prints the OpenAPI document of the public API.
    Openapi,
    /// Makes API keys.
    #[command(subcommand)]
    Keys(KeysCommand),
    #[command(flatten)]
    Client(Box<abide_cli::Client>),
}

/// How a node runs: the flags of `abide serve`. A program that embeds a node begins with
/// [`Config::new`].
#[derive(Clone, Debug, clap::Args)]
pub struct Config {
    /// memory, embedded:DIR, redis://…, rediss://…, redis+cluster://…, or redis+sentinel://…/NAME
    #[arg(long, env = "ABIDE_STORE", hide_env_values = true, default_value = "embedded:.abide")]
    pub store: StoreUrl,
    /// The authorities (PEM) that a rediss:// store's certificate is verified by, instead of the machine's
    #[arg(long, env = "ABIDE_STORE_CA", value_name = "FILE")]
    pub store_ca: Option<PathBuf>,
    /// The certificate (PEM) that the node shows to a rediss:// store
    #[arg(long, env = "ABIDE_STORE_CERT", value_name = "FILE", requires = "store_key")]
    pub store_cert: Option<PathBuf>,
    /// The key (PEM) of --store-cert
    #[arg(long, env = "ABIDE_STORE_KEY", value_name = "FILE", requires = "store_cert")]
    pub store_key: Option<PathBuf>,
    /// The keys by which the store is encrypted, one a line as ID:BASE64; the first one encrypts
    #[arg(long, env = "ABIDE_ENCRYPT_KEY_FILE", value_name = "FILE")]
    pub encrypt_key_file: Option<PathBuf>,
    /// How the values of conversations are compressed in Redis: none or zstd. A node reads both; one of an
    /// earlier version does not
    #[arg(long, env = "ABIDE_STORE_COMPRESSION", value_name = "HOW", default_value = "none")]
    pub store_compression: StoreCompression,
    /// Public API; port 0 takes any free one
    #[arg(long, env = "ABIDE_LISTEN", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Other origins whose pages may use the public API, such as https://example.com; * allows any
    #[arg(long, env = "ABIDE_ALLOW_ORIGIN", value_name = "URL", value_delimiter = ',')]
    pub allow_origin: Vec<Origin>,
    /// Names by which clients may address the node, such as abide.example.com or *.example.com; * allows
    /// any. Addresses and localhost need no mention
    #[arg(long, env = "ABIDE_ALLOW_HOST", value_name = "NAME", value_delimiter = ',')]
    pub allow_host: Vec<AllowedHost>,
    /// Where others reach the public API, such as https://abide.example.com: for callbacks of tools, and
    /// for the links in notices. Callbacks use the listen address if not given, unless that is any address
    #[arg(long, env = "ABIDE_PUBLIC_URL", value_name = "URL")]
    pub public_url: Option<PublicUrl>,
    /// The file that says who may use the node. Required unless every address is loopback
    #[arg(long, env = "ABIDE_AUTH", value_name = "FILE")]
    pub auth: Option<PathBuf>,
    /// Which definitions of agents are accepted over HTTP, unless the --auth file says otherwise for a
    /// tenant: off, data (without bash, commands of MCP servers and a workspace root), or all; data if not
    /// given with --auth, else all
    #[arg(long, env = "ABIDE_AGENTS_OVER_HTTP", value_name = "WHICH")]
    pub agents_over_http: Option<AgentsOverHttp>,
    /// What the operators' audit has of each request: metadata, or request (with the beginning of its body)
    #[arg(long, env = "ABIDE_AUDIT_LEVEL", value_name = "LEVEL", default_value = "metadata")]
    pub audit_level: AuditLevel,
    /// Operators' API; IP:PORT or unix:PATH, which needs --auth
    #[arg(long, env = "ABIDE_ADMIN_LISTEN", default_value = "127.0.0.1:9090")]
    pub admin_listen: AdminAddress,
    /// Node to node; used with a Redis store only
    #[arg(long, env = "ABIDE_CLUSTER_LISTEN", default_value = "127.0.0.1:7070")]
    pub cluster_listen: SocketAddr,
    /// The address that other nodes dial; the cluster listen address if not given
    #[arg(long)]
    pub cluster_advertise: Option<String>,
    /// Which node gets a conversation that no node holds: local, rendezvous, or least-loaded
    #[arg(long, env = "ABIDE_PLACEMENT", default_value = "local")]
    pub placement: Policy,
    /// The node's name; a restart is a new incarnation of it
    #[arg(long, env = "ABIDE_NODE")]
    pub node: Option<String>,
    /// A directory of agent definitions. A start defines the agents whose files are new or have
    /// changed; the others stay as HTTP left them
    #[arg(long, env = "ABIDE_AGENTS")]
    pub agents: Option<PathBuf>,
    /// How long a node may be silent before the others declare it dead
    #[arg(long, env = "ABIDE_LEASE", default_value = "5s", value_parser = positive_duration)]
    pub lease: Duration,
    /// How long an actor with nothing to do stays in memory
    #[arg(long, default_value = "30s", value_parser = positive_duration)]
    pub passivate_after: Duration,
    /// How long SIGTERM waits for running work
    #[arg(long, default_value = "25s", value_parser = duration)]
    pub drain_timeout: Duration,
    /// Workspaces of conversations, .abide/workspaces if not given; on a cluster, shared storage
    #[arg(long, env = "ABIDE_WORKSPACES")]
    pub workspaces: Option<PathBuf>,
    /// Directories at or below which agents may have a workspace, besides --workspaces; several with
    /// commas
    #[arg(long, env = "ABIDE_WORKSPACE_ROOTS", value_name = "DIR", value_delimiter = ',')]
    pub workspace_roots: Vec<PathBuf>,
    /// Whether commands run in a sandbox: auto (as far as the kernel has one) or off
    #[arg(long, env = "ABIDE_SANDBOX", default_value = "auto")]
    pub sandbox: SandboxChoice,
    /// What a 2xx guarantees: fsync, os, or replicas=N (Redis only)
    #[arg(long, default_value = "fsync")]
    pub durability: Durability,
    /// text or json; text on a terminal and json elsewhere if not given
    #[arg(long)]
    pub log_format: Option<LogFormat>,
    /// Where traces are exported, by OTLP over HTTP (protobuf), such as http://127.0.0.1:4318
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", hide_env_values = true, value_name = "URL")]
    pub otlp: Option<String>,
    /// Shows the content of conversations on spans, and in errors of the log
    #[arg(long, env = "ABIDE_TELEMETRY_CONTENT", value_parser = BoolishValueParser::new())]
    pub telemetry_content: bool,
}

impl Config {
    /// The defaults of the flags, with this store. Their environment variables are ignored, and each
    /// listener takes a free port of the loopback interface. Change the fields as you need.
    pub fn new(store: StoreUrl) -> Self {
        Self {
            store,
            store_ca: None,
            store_cert: None,
            store_key: None,
            encrypt_key_file: None,
            store_compression: StoreCompression::None,
            listen: ANY_LOOPBACK_PORT,
            allow_origin: Vec::new(),
            allow_host: Vec::new(),
            public_url: None,
            auth: None,
            agents_over_http: None,
            audit_level: AuditLevel::Metadata,
            admin_listen: AdminAddress::Tcp(ANY_LOOPBACK_PORT),
            cluster_listen: ANY_LOOPBACK_PORT,
            cluster_advertise: None,
            placement: Policy::Local,
            node: None,
            agents: None,
            lease: Duration::from_secs(5),
            passivate_after: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(25),
            workspaces: None,
            workspace_roots: Vec::new(),
            sandbox: SandboxChoice::Auto,
            durability: Durability::Fsync,
            log_format: None,
            otlp: None,
            telemetry_content: false,
        }
    }

    /// Refuses addresses that others than this machine may reach, unless callers are authenticated.
    pub(crate) fn check_addresses(&self) -> Result<(), String> {
        if self.auth.is_some() {
            return Ok(());
        }
        let is_shared = matches!(self.store, StoreUrl::Redis(_));
        let cluster = Some(("--cluster-listen", self.cluster_listen)).filter(|_| is_shared);
        // A command of a tool can connect to a socket in the file system, if not to a port of the node.
        let AdminAddress::Tcp(admin) = self.admin_listen else {
            return Err("--auth: is required with --admin-listen unix:PATH".to_owned());
        };
        let apis = [("--listen", self.listen), ("--admin-listen", admin)];
        let mut addresses = apis.into_iter().chain(cluster);
        match addresses.find(|(_, address)| !address.ip().is_loopback()) {
            Some((flag, address)) => Err(format!(
                "--auth: is required unless every address is loopback, and {flag} is {address}"
            )),
            None => Ok(()),
        }
    }

    /// The name of the node; the host's name if none is given.
    pub(crate) fn node_name(&self) -> NodeName {
        NodeName::new(self.node.clone().unwrap_or_else(host_name))
    }

    /// Refuses a name that operators could not give in the path of a request.
    pub(crate) fn check_node_name(&self) -> Result<(), String> {
        let rule = "--node: must be 1 to 128 of A-Z a-z 0-9 _ . : -, and neither . nor ..";
        if is_segment(self.node_name().as_str()) { Ok(()) } else { Err(rule.to_owned()) }
    }
}

/// The store of the journals.
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

/// What a 2xx to a mutating call guarantees about the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The change survives a crash of the machine.
    Fsync,
    /// The change survives a crash of the process.
    Os,
    /// `N` replicas have the change.
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

/// How a store compresses what it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StoreCompression {
    None,
    Zstd,
}

impl From<StoreCompression> for Compression {
    fn from(choice: StoreCompression) -> Self {
        match choice {
            StoreCompression::None => Self::None,
            StoreCompression::Zstd => Self::Zstd,
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

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if is_segment(name) { name.to_owned() } else { "node".to_owned() }
}

fn duration(text: &str) -> Result<Duration, String> {
    let span: jiff::SignedDuration = text.parse().map_err(|_| not_a_duration())?;
    Duration::try_from(span).map_err(|_| not_a_duration())
}

fn positive_duration(text: &str) -> Result<Duration, String> {
    let duration = duration(text)?;
    if duration.is_zero() { Err("must be more than zero".to_owned()) } else { Ok(duration) }
}

fn not_a_duration() -> String {
    "must be a duration such as 300s, 5m or 250ms".to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::builder::Resettable;
    use clap::{CommandFactory, FromArgMatches};

    use super::*;

    fn origins(flags: &[&str]) -> Result<Vec<Origin>, clap::Error> {
        let arguments = ["abide"].iter().chain(flags);
        Cli::try_parse_from(arguments).map(|cli| cli.serve.allow_origin)
    }

    #[test]
    fn origins_are_given_one_by_one_or_in_a_list() {
        let both = Some(vec!["http://a".parse().unwrap(), "https://b".parse().unwrap()]);
        assert_eq!(origins(&[]).ok(), Some(vec![]));
        assert_eq!(origins(&["--allow-origin", "http://a,https://b"]).ok(), both);
        let each = ["--allow-origin", "http://a", "--allow-origin", "https://b"];
        assert_eq!(origins(&each).ok(), both);
        assert_eq!(origins(&["--allow-origin", "*"]).ok(), Some(vec![Origin::Any]));
        assert!(origins(&["--allow-origin", "http://a,b"]).is_err());
        assert!(origins(&["--allow-origin", ""]).is_err());
    }

    #[test]
    fn without_a_file_every_address_is_loopback() {
        let mut config = Config::new(StoreUrl::Memory);
        assert_eq!(config.check_addresses(), Ok(()));
        config.admin_listen = "[::1]:0".parse().unwrap();
        config.cluster_listen = "0.0.0.0:7070".parse().unwrap();
        assert_eq!(config.check_addresses(), Ok(()), "without a cluster there is no such address");
        let is_refused = |config: &Config, flag: &str| {
            config.check_addresses().is_err_and(|why| why.contains(&format!("and {flag} is ")))
        };
        config.store = "redis://127.0.0.1:1".parse().unwrap();
        assert!(is_refused(&config, "--cluster-listen"));
        config.admin_listen = "192.168.0.7:9090".parse().unwrap();
        assert!(is_refused(&config, "--admin-listen"));
        config.listen = "0.0.0.0:8080".parse().unwrap();
        assert!(is_refused(&config, "--listen"));
        config.auth = Some("auth.yaml".into());
        assert_eq!(config.check_addresses(), Ok(()));
        let unix = Config {
            admin_listen: "unix:/run/abide/admin.sock".parse().unwrap(),
            ..Config::new(StoreUrl::Memory)
        };
        assert!(unix.check_addresses().is_err_and(|why| why.starts_with("--auth: ")));
        let config = Config { auth: Some("auth.yaml".into()), ..unix };
        assert_eq!(config.check_addresses(), Ok(()));
    }

    #[test]
    fn a_node_has_a_name_that_a_path_can_have() {
        let check = |name: &str| {
            let node = Some(name.to_owned());
            Config { node, ..Config::new(StoreUrl::Memory) }.check_node_name()
        };
        for wrong in ["", " ", "a b/c", "a/b", ".", "..", "ä", &"n".repeat(129)] {
            assert!(check(wrong).is_err_and(|why| why.starts_with("--node: ")), "{wrong}");
        }
        for name in ["n1", "abide-0.zone_a:7", "...", &"n".repeat(128)] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        assert_eq!(Config::new(StoreUrl::Memory).check_node_name(), Ok(()));
    }

    #[test]
    fn a_config_in_code_has_the_defaults_of_the_flags() {
        let ports = ["listen", "admin-listen", "cluster-listen"];
        let flags = ports.map(|name| format!("--{name}=127.0.0.1:0"));
        let arguments = ["abide", "--store=memory"].map(str::to_owned).into_iter().chain(flags);
        // Without environment variables: those of the person who runs the tests are not defaults.
        let command = Cli::command().mut_args(|argument| argument.env(Resettable::Reset));
        let matches = command.get_matches_from(arguments);
        let parsed = Cli::from_arg_matches(&matches).unwrap().serve;
        assert_eq!(format!("{:?}", Config::new(StoreUrl::Memory)), format!("{parsed:?}"));
    }
}
