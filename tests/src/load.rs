//! Load on a real node over HTTP. Each worker begins its next conversation when its last one is done:
//! a closed loop, which measures what a node carries. With `--rate` it begins when its time has come:
//! an open loop, which measures how long people wait at a load that the node carries.
//!
//! A conversation is message → step → a gated call → resolution → tool → step → done. The model is
//! scripted, without delay; the tool is the demo's native `demo_send_email`, which returns at once,
//! so that the node itself is measured. The load program learns from the conversation's event
//! stream that a call is suspended and that a turn has ended: one stream per turn is less load than
//! polling, and it is what a browser client does.

mod agent;
mod bare_node;
mod client;
mod comparison;
mod deployment;
mod event_stream;
mod floor;
mod found;
mod full_store;
mod idle_conversations;
mod imported_journal;
mod journals;
mod long_conversations;
mod long_journal;
mod model_server;
mod node;
mod node_group;
mod open_streams;
mod owed_notices;
mod parallel_tools;
mod redis;
mod report;
mod scale;
mod streaming_models;
mod traced_turns;
mod turns;
mod waiting_calls;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Parser, ValueEnum};

use self::client::Client;
use self::node::Node;
use self::node_group::NodeGroup;
use self::report::Report;
use self::turns::Turns;

/// Puts a node under load and prints the measurements as a table.
#[derive(Clone, Debug, Parser)]
#[command(name = "load")]
pub struct Load {
    /// How many conversations
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..))]
    conversations: u32,
    /// How many concurrent conversations
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    concurrency: u32,
    /// How many conversations begin each second, whether or not earlier ones are done, as long as no
    /// more than the concurrent ones are running; if not given, each begins when another is done
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: Option<u32>,
    /// How many turns each conversation has, one after another on one event stream
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    turns: u32,
    /// How many nodes, over a Redis that is started for them; each worker resolves at another node
    /// than it sends messages to
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=30),
        conflicts_with = "url")]
    nodes: Option<u32>,
    /// The public address of a running node, such as 127.0.0.1:8080; if not given, a node is
    /// started
    #[arg(long, requires = "admin", conflicts_with_all = ["binary", "park"])]
    url: Option<Address>,
    /// The operators' address of that node
    #[arg(long, requires = "url")]
    admin: Option<Address>,
    /// The durability of a 2xx; for a running node, the one that it was started with
    #[arg(long, value_enum, default_value_t = Durability::Fsync)]
    durability: Durability,
    /// Parks N conversations in front of their approval, instead of finishing them
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    park: Option<u32>,
    /// Parks N conversations in one Redis and none in another, and compares the turns of both,
    /// their idle processor time, and their recovery after a SIGKILL
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), requires = "nodes",
        conflicts_with_all = ["url", "park"])]
    parked: Option<u32>,
    /// Fills a store with N conversations and another with a thousand, and compares what lists,
    /// sweeps, rebuilds and erasures take; with --nodes 1, over a Redis
    #[arg(long, value_parser = clap::value_parser!(u32).range(1_000..=10_000_000),
        conflicts_with_all = ["url", "park", "parked"])]
    found: Option<u32>,
    /// Compares turns without and with exported traces
    #[arg(long, requires = "nodes", conflicts_with_all = ["url", "park", "parked"])]
    traced: bool,
    /// Compares turns without and with encryption at rest
    #[arg(long, requires = "nodes", conflicts_with_all = ["url", "park", "parked", "traced"])]
    encrypt: bool,
    /// Compares turns without and with compression of what is stored
    #[arg(long, requires = "nodes",
        conflicts_with_all = ["url", "park", "parked", "traced", "encrypt"])]
    compress: bool,
    /// Compares turns with those of another build of the program; without --nodes, over embedded
    /// stores
    #[arg(long, conflicts_with_all = ["url", "park", "parked", "traced", "encrypt", "compress"])]
    against: Option<PathBuf>,
    /// Compares turns with those of a bare node, which decides nothing; without --nodes,
    /// over embedded stores
    #[arg(long,
        conflicts_with_all = ["url", "park", "parked", "traced", "encrypt", "compress", "against"])]
    bare: bool,
    /// Measures clusters of 1, 3, 10 and 30 nodes, one after the other
    #[arg(long, conflicts_with_all = ["url", "park", "nodes"])]
    scale: bool,
    /// Writes the journals of turns to a Redis as N nodes write them, without nodes
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64),
        conflicts_with_all = ["url", "park", "nodes"])]
    journals: Option<u32>,
    /// Writes them to this Redis instead of one that is started, such as
    /// redis+cluster://127.0.0.1:7000
    #[arg(long, requires = "journals")]
    redis: Option<String>,
    /// Serves as that bare node over this store
    #[arg(long, hide = true)]
    serve_bare: Option<String>,
    /// How many rounds a comparison has
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Lets turns call N HTTP tools at once, and compares them with turns that call the slowest
    /// alone
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=100),
        conflicts_with_all = ["url", "park", "nodes"])]
    tools: Option<u32>,
    /// Opens N event streams, and measures their memory and how much they delay commits
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=5_000),
        conflicts_with_all = ["url", "park", "nodes"])]
    streams: Option<u32>,
    /// Measures the cost of a step in conversations of 10, 1,000 and 100,000 events
    #[arg(long, conflicts_with_all = ["url", "park", "nodes"])]
    long: bool,
    /// Loads a conversation with a journal of N MB while others are sent messages; with --nodes,
    /// over a Redis
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4_000),
        conflicts_with_all = ["url", "park", "long"])]
    long_journal: Option<u32>,
    /// Imports a conversation with a journal of N MB while others are sent messages, and one that is
    /// too large; with --nodes 1, over a Redis
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000),
        conflicts_with_all = ["url", "park", "long"])]
    import: Option<u32>,
    /// Lets N models stream at once, a hundred tokens per second each
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=5_000),
        conflicts_with_all = ["url", "park", "nodes"])]
    speakers: Option<u32>,
    /// Lets N conversations owe a notice to a receiver that hangs, and then take them; with --nodes,
    /// over a Redis
    #[arg(long, value_parser = clap::value_parser!(u32).range(10..=1_000_000),
        conflicts_with_all = ["url", "park"])]
    notices: Option<u32>,
    /// Lets N calls wait in a queue, over a Redis, and compares leases of it with those of a short one
    #[arg(long, value_parser = clap::value_parser!(u32).range(1_000..=1_000_000),
        conflicts_with_all = ["url", "park"])]
    queued: Option<u32>,
    /// The directory of the store; the system's temporary directory if not given
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The node's program; a release build of this source if not given
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// The durability that a 2xx promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    Fsync,
    Os,
}

/// Why a measurement is not valid.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LoadError(String);

/// Puts a node under load. Returns the table of measurements.
pub async fn run(load: Load) -> Result<String, LoadError> {
    let dir = match &load.dir {
        Some(dir) => tempfile::tempdir_in(dir),
        None => tempfile::tempdir(),
    };
    let dir = dir.map_err(|error| load_error("a temporary directory", error))?;
    if let (Some(park), Some(_)) = (load.park, load.nodes) {
        return Ok(idle_conversations::over_redis::run(&load, park, dir.path()).await?.to_string());
    }
    if let Some(parked) = load.parked {
        return Ok(full_store::run(&load, parked, dir.path()).await?.to_string());
    }
    if let Some(found) = load.found {
        return Ok(found::run(&load, found, dir.path()).await?.to_string());
    }
    if load.encrypt {
        let plain = Load { encrypt: false, ..load.clone() };
        let sides = [("plain", &plain), ("encrypted", &load)];
        return Ok(comparison::settings(sides, dir.path()).await?.to_string());
    }
    if load.compress {
        let plain = Load { compress: false, ..load.clone() };
        let sides = [("plain", &plain), ("compressed", &load)];
        return Ok(comparison::settings(sides, dir.path()).await?.to_string());
    }
    if load.traced {
        return Ok(traced_turns::run(&load, dir.path()).await?.to_string());
    }
    if let Some(against) = &load.against {
        return Ok(comparison::builds(&load, against, dir.path()).await?.to_string());
    }
    if load.bare {
        return Ok(bare_node::run(&load, dir.path()).await?.to_string());
    }
    if load.scale {
        return Ok(scale::run(&load, dir.path()).await?.to_string());
    }
    if let Some(drivers) = load.journals {
        return Ok(journals::run(&load, drivers, dir.path()).await?.to_string());
    }
    if let Some(redis) = &load.serve_bare {
        return bare_node::serve(&load, redis).await.map(|()| String::new());
    }
    if let Some(park) = load.park {
        return Ok(idle_conversations::run(&load, park, dir.path()).await?.to_string());
    }
    if let Some(tools) = load.tools {
        return Ok(parallel_tools::run(&load, tools, dir.path()).await?.to_string());
    }
    if let Some(count) = load.streams {
        return Ok(open_streams::run(&load, count, dir.path()).await?.to_string());
    }
    if let Some(count) = load.notices {
        return Ok(owed_notices::run(&load, count, dir.path()).await?.to_string());
    }
    if let Some(count) = load.queued {
        return Ok(waiting_calls::run(&load, count, dir.path()).await?.to_string());
    }
    if load.long {
        return Ok(long_conversations::run(&load, dir.path()).await?.to_string());
    }
    if let Some(megabytes) = load.long_journal {
        return Ok(long_journal::run(&load, megabytes, dir.path()).await?.to_string());
    }
    if let Some(megabytes) = load.import {
        return Ok(imported_journal::run(&load, megabytes, dir.path()).await?.to_string());
    }
    if let Some(count) = load.speakers {
        return Ok(streaming_models::run(&load, count, dir.path()).await?.to_string());
    }
    Ok(plain_turns(&load, dir.path()).await?.to_string())
}

/// Measures plain turns: on one node, on several over a Redis, or on one that is already running.
async fn plain_turns(load: &Load, dir: &Path) -> Result<Report, LoadError> {
    const NAME: &str = "load";
    if load.nodes.is_some() {
        let group = NodeGroup::start(load, dir, "30s", None).await?;
        let turns = Turns::run(load, &group.nodes, Some(&group.redis), NAME).await?;
        let redis = group.stop().await?;
        let floor = floor::measure(load, &turns, redis.store(load.durability).await?).await?;
        return Ok(Report::of_turns(load, &turns, floor));
    }
    let node = match (&load.url, &load.admin) {
        (Some(public), Some(admin)) => Node::running(public.0, admin.0),
        _ => Node::start(load, &dir.join("store"), "30s").await?,
    };
    let turns = Turns::run(load, std::slice::from_ref(&node), None, NAME).await?;
    node.stop().await?;
    let floor = floor::measure_embedded(load, &turns, &dir.join("floor")).await?;
    Ok(Report::of_turns(load, &turns, floor))
}

/// An address, which may be written as a URL.
#[derive(Clone, Copy, Debug)]
struct Address(SocketAddr);

impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bare = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
        let at = bare.replace("localhost", "127.0.0.1").parse();
        at.map(Self).map_err(|_| "must be an address such as http://127.0.0.1:8080".to_owned())
    }
}

impl std::fmt::Display for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Fsync => "fsync",
            Self::Os => "os",
        })
    }
}

fn load_error(what: &str, why: impl std::fmt::Display) -> LoadError {
    LoadError(format!("{what}: {why}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::Load;

    fn parses(line: &str) -> bool {
        Load::try_parse_from(line.split_whitespace()).is_ok()
    }

    #[test]
    fn arguments_that_make_no_sense_are_refused() {
        assert!(parses("load --conversations 10 --concurrency 2 --durability os"));
        assert!(parses("load --rate 500 --concurrency 500 --nodes 1"));
        assert!(parses("load --park 10 --nodes 2") && parses("load --parked 10 --nodes 1"));
        assert!(parses("load --found 1000") && parses("load --found 1000000 --nodes 1"));
        assert!(parses("load --bare --nodes 1 --rounds 9") && parses("load --bare"));
        assert!(parses("load --against abide --nodes 1") && parses("load --against abide"));
        assert!(parses("load --journals 4 --concurrency 256"));
        assert!(parses("load --long-journal 1000 --nodes 1"));
        assert!(parses("load --import 1000") && !parses("load --import 2000"));
        assert!(parses("load --url http://127.0.0.1:8080/ --admin localhost:9090"));
        for line in [
            "load --conversations 0",
            "load --concurrency 0",
            "load --turns 0",
            "load --rate 0",
            "load --durability replicas=2",
            "load --park 0",
            "load --streams 0",
            "load --notices 0",
            "load --queued 10",
            "load --scale --nodes 3",
            "load --long-journal 0",
            "load --redis redis://127.0.0.1:6379",
            "load --journals 0",
            "load --journals 2 --nodes 1",
            "load --streams 10 --park 5",
            "load --parked 5",
            "load --found 10",
            "load --found 1000 --park 5",
            "load --traced",
            "load --against abide --bare",
            "load --bare --traced --nodes 1",
            "load --rounds 0",
            "load --park 5 --parked 5 --nodes 1",
            "load --url nonsense --admin 127.0.0.1:9090",
            "load --url 127.0.0.1:8080",
            "load --url 127.0.0.1:8080 --admin 127.0.0.1:9090 --park 5",
        ] {
            assert!(!parses(line), "{line}");
        }
    }
}
