//! The node that a child process runs: a mesh whose host echoes calls, controlled by lines on its
//! input.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use abide_actors::identity::{Incarnation, NodeName};
use abide_actors::journal::Holder;
use abide_registry::host::{HostMsg, RemoteCall};
use abide_registry::member::ProcessId;
use abide_registry::membership::{LinkState, Member, MemberState};
use abide_registry::peers::{CallError, ClusterSecret, ClusterSecrets, Mesh, MeshConfig, Peers};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, RpcReplyPort};
use ractor_cluster::NodeServerMessage;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

/// The environment variable with the configuration of a child process.
pub const CONFIG_VARIABLE: &str = "ABIDE_TEST_NODE";
/// The prefix of the lines with a node's reports; other lines come from the test harness.
pub const REPORT_PREFIX: &str = "@ ";

#[derive(Clone, Serialize, Deserialize)]
pub struct Config {
    pub name: NodeName,
    pub process: ProcessId,
    pub listen: String,
    pub secret: Option<String>,
}

/// The name, process and address of another node.
pub type PeerAddress = (NodeName, ProcessId, String);

pub fn peer_address(name: &str, process: &str, address: &str) -> PeerAddress {
    (NodeName::new(name), ProcessId::new(process), address.to_owned())
}

#[derive(Serialize, Deserialize)]
pub enum Order {
    Members(Vec<PeerAddress>),
    Call {
        to: ProcessId,
        bytes: usize,
        first: u8,
        within_ms: u64,
    },
    Calls {
        to: ProcessId,
        count: usize,
        concurrency: usize,
        bytes: usize,
        first: u8,
        within_ms: u64,
    },
    KillServer,
    Metrics,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    Listens(String),
    Links(BTreeMap<String, String>),
    /// The length of the reply or the error, and the milliseconds that the call took.
    Called(Result<usize, String>, u64),
    /// The number of calls per outcome, and the milliseconds that all calls took.
    CalledAll(BTreeMap<String, usize>, u64),
    Metrics(String),
}

/// The first byte of a call that the host answers, and of one that it never answers.
pub const ECHO: u8 = 0;
pub const HOLD: u8 = 1;

struct Echo;

impl Actor for Echo {
    type Msg = HostMsg;
    type State = Vec<RpcReplyPort<Vec<u8>>>;
    type Arguments = ();

    async fn pre_start(
        &self,
        _: ActorRef<HostMsg>,
        (): (),
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(Vec::new())
    }

    async fn handle(
        &self,
        _: ActorRef<HostMsg>,
        message: HostMsg,
        held: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        if let HostMsg::Remote(RemoteCall { call, reply }) = message {
            metrics::counter!("test_calls_total").increment(1);
            match call.first() {
                Some(&HOLD) => held.push(reply),
                _ => drop(reply.send(call)),
            }
        }
        Ok(())
    }
}

fn report(reports: &Report) {
    use std::io::Write;
    let line = format!("{REPORT_PREFIX}{}\n", serde_json::to_string(reports).unwrap());
    std::io::stdout().write_all(line.as_bytes()).unwrap();
}

#[test]
fn this_binary_runs_a_node_when_it_has_a_configuration() {
    let Ok(config) = std::env::var(CONFIG_VARIABLE) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(run(serde_json::from_str(&config).unwrap()));
    std::process::exit(0);
}

/// Runs a node until its input ends, since then its test has ended.
async fn run(config: Config) {
    let filter = "info,abide_registry=debug,ractor_cluster=off,ractor=off";
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
    log.with_writer(std::io::stderr).init();
    let metrics = PrometheusBuilder::new().install_recorder().unwrap();
    let (host, _) = Actor::spawn(None, Echo, ()).await.unwrap();
    let listener = TcpListener::bind(&config.listen).await.unwrap();
    report(&Report::Listens(listener.local_addr().unwrap().to_string()));
    let (members, receiver) = watch::channel(Vec::new());
    let Config { name, process, secret, .. } = config;
    let shown = secret.map(|secret| ClusterSecret::new(secret).unwrap());
    let secrets = ClusterSecrets { shown, also: None };
    let cookie = secrets.cookie(&[]).unwrap();
    let settings = MeshConfig { name, process, listener, secrets, cookie, host, members: receiver };
    let cluster = Arc::new(Mesh::start(settings).await.unwrap());
    let mut links = cluster.links();
    tokio::spawn(async move {
        loop {
            let now = links.borrow_and_update().clone();
            let names = now.iter().map(|(process, link)| (process.to_string(), name_of(*link)));
            report(&Report::Links(names.collect()));
            if links.changed().await.is_err() {
                return;
            }
        }
    });
    let mut orders = BufReader::new(stdin()).lines();
    while let Some(order) = orders.next_line().await.unwrap() {
        carry_out(serde_json::from_str(&order).unwrap(), &members, &cluster, &metrics).await;
    }
}

async fn carry_out(
    order: Order,
    members: &watch::Sender<Vec<Member>>,
    cluster: &Arc<Mesh>,
    metrics: &PrometheusHandle,
) {
    match order {
        Order::Members(others) => {
            members.send_replace(others.into_iter().map(member).collect());
        }
        Order::Call { to, bytes, first, within_ms } => {
            let began = Instant::now();
            let called = call(cluster, &to, bytes, first, within_ms).await;
            let called = called.map_err(|unreached| format!("{unreached:?}"));
            report(&Report::Called(called, millis(began)));
        }
        Order::Calls { to, count, concurrency, bytes, first, within_ms } => {
            let (mut outcomes, began) = (BTreeMap::new(), Instant::now());
            let mut calls = FuturesUnordered::new();
            for begun in 0..count {
                if begun >= concurrency {
                    count_one(&mut outcomes, calls.next().await.unwrap());
                }
                calls.push(call(cluster, &to, bytes, first, within_ms));
            }
            while let Some(outcome) = calls.next().await {
                count_one(&mut outcomes, outcome);
            }
            report(&Report::CalledAll(outcomes, millis(began)));
        }
        Order::KillServer => {
            let all = ractor::registry::get_all_pids();
            let server = |actor: &ActorCell| {
                actor.is_message_type_of::<NodeServerMessage>().unwrap_or_default()
            };
            all.into_iter().find(server).unwrap().kill();
        }
        Order::Metrics => report(&Report::Metrics(metrics.render())),
    }
}

fn count_one(outcomes: &mut BTreeMap<String, usize>, outcome: Result<usize, CallError>) {
    let outcome = outcome.map_or_else(|why| format!("{why:?}"), |_| "Answered".to_owned());
    *outcomes.entry(outcome).or_default() += 1;
}

async fn call(
    cluster: &Mesh,
    to: &ProcessId,
    bytes: usize,
    first: u8,
    within_ms: u64,
) -> Result<usize, CallError> {
    let call = vec![first; bytes];
    let answer = cluster.call(to, call, Duration::from_millis(within_ms)).await?;
    Ok(answer.len())
}

fn millis(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap()
}

fn name_of(link: LinkState) -> String {
    format!("{link:?}")
}

fn member((node, process, address): PeerAddress) -> Member {
    Member {
        holder: Holder { node, incarnation: Incarnation::new(process.as_str()) },
        process,
        address,
        state: MemberState::Up,
        live_actors: 0,
        version: "test".to_owned(),
        protocol_version: abide_registry::protocol::PROTOCOL_VERSION,
        handshake_version: abide_registry::protocol::HANDSHAKE_VERSION,
        live_directory_version: abide_registry::protocol::LIVE_DIRECTORY_VERSION,
        stored_form_version: abide_registry::protocol::STORED_FORM_VERSION,
        cookie: None,
        auth: None,
        ports: Vec::new(),
        since: abide_conversation::Timestamp::default(),
        lease_ms: 5_000,
    }
}
