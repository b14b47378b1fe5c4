//! A node of the tests: a cluster whose host echoes, told by lines what to do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use abide_actors::journal::Holder;
use abide_registry::host::{HostMsg, RemoteCall};
use abide_registry::membership::{Member, MemberState};
use abide_registry::peers::{CallError, LinkState, Mesh, MeshConfig, Peers};
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

/// Where a process finds that it is a node.
pub const VARIABLE: &str = "ABIDE_TEST_NODE";
/// Marks the lines that a node says; the others are the test harness's.
pub const MARK: &str = "@ ";

#[derive(Clone, Serialize, Deserialize)]
pub struct Config {
    pub name: String,
    pub process: String,
    pub listen: String,
    pub secret: Option<String>,
}

/// Another node: name, process, address.
pub type Other = (String, String, String);

#[derive(Serialize, Deserialize)]
pub enum Order {
    Members(Vec<Other>),
    Call { to: String, bytes: usize, first: u8, within_ms: u64 },
    Calls { to: String, count: usize, at_a_time: usize, bytes: usize, first: u8, within_ms: u64 },
    KillServer,
    Metrics,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    Listens(String),
    Links(BTreeMap<String, String>),
    /// The length of the answer, or why there is none; and how long it took.
    Called(Result<usize, String>, u64),
    /// How often each outcome came, and how long all took.
    CalledAll(BTreeMap<String, usize>, u64),
    Metrics(String),
}

/// What a call begins with to be answered, and what one that never is begins with.
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

fn say(said: &Said) {
    use std::io::Write;
    let line = format!("{MARK}{}\n", serde_json::to_string(said).unwrap());
    std::io::stdout().write_all(line.as_bytes()).unwrap();
}

#[test]
fn this_binary_runs_a_node_when_it_has_a_configuration() {
    let Ok(config) = std::env::var(VARIABLE) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(run(serde_json::from_str(&config).unwrap()));
    std::process::exit(0);
}

/// Until its input ends: then nobody needs it any more.
async fn run(config: Config) {
    let filter = "info,abide_registry=debug,ractor_cluster=off,ractor=off";
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
    log.with_writer(std::io::stderr).init();
    let metrics = PrometheusBuilder::new().install_recorder().unwrap();
    let (host, _) = Actor::spawn(None, Echo, ()).await.unwrap();
    let listener = TcpListener::bind(&config.listen).await.unwrap();
    say(&Said::Listens(listener.local_addr().unwrap().to_string()));
    let (members, receiver) = watch::channel(Vec::new());
    let Config { name, process, secret, .. } = config;
    let settings = MeshConfig { name, process, listener, secret, host, members: receiver };
    let cluster = Arc::new(Mesh::start(settings).await.unwrap());
    let mut links = cluster.links();
    tokio::spawn(async move {
        loop {
            let now = links.borrow_and_update().clone();
            let names = now.iter().map(|(process, link)| (process.clone(), name_of(*link)));
            say(&Said::Links(names.collect()));
            if links.changed().await.is_err() {
                return;
            }
        }
    });
    let mut orders = BufReader::new(stdin()).lines();
    while let Some(order) = orders.next_line().await.unwrap() {
        obey(serde_json::from_str(&order).unwrap(), &members, &cluster, &metrics).await;
    }
}

async fn obey(
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
            say(&Said::Called(called, millis(began)));
        }
        Order::Calls { to, count, at_a_time, bytes, first, within_ms } => {
            let (mut outcomes, began) = (BTreeMap::new(), Instant::now());
            let mut calls = FuturesUnordered::new();
            for begun in 0..count {
                if begun >= at_a_time {
                    count_one(&mut outcomes, calls.next().await.unwrap());
                }
                calls.push(call(cluster, &to, bytes, first, within_ms));
            }
            while let Some(outcome) = calls.next().await {
                count_one(&mut outcomes, outcome);
            }
            say(&Said::CalledAll(outcomes, millis(began)));
        }
        Order::KillServer => {
            let all = ractor::registry::get_all_pids();
            let server = |actor: &ActorCell| {
                actor.is_message_type_of::<NodeServerMessage>().unwrap_or_default()
            };
            all.into_iter().find(server).unwrap().kill();
        }
        Order::Metrics => say(&Said::Metrics(metrics.render())),
    }
}

fn count_one(outcomes: &mut BTreeMap<String, usize>, outcome: Result<usize, CallError>) {
    let outcome = outcome.map_or_else(|why| format!("{why:?}"), |_| "Answered".to_owned());
    *outcomes.entry(outcome).or_default() += 1;
}

async fn call(
    cluster: &Mesh,
    to: &str,
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

fn member((node, process, address): Other) -> Member {
    Member {
        holder: Holder { node, incarnation: process.clone() },
        process,
        address,
        state: MemberState::Up,
        live_actors: 0,
        version: "test".to_owned(),
        wire: abide_registry::protocol::WIRE,
        since: abide_conversation::Timestamp::default(),
        lease_ms: 5_000,
    }
}
