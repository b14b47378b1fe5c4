//! One node, composed of its parts; how it starts, and how it stops.

mod kit;
mod stores;

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use abide_actors::agent;
use abide_actors::clock::Clock;
use abide_actors::definition::Definition;
use abide_actors::journal::Holder;
use abide_actors::model::http::{HttpModel, HttpTimeouts};
use abide_actors::model::providers::ProviderSet;
use abide_actors::services::Executors;
use abide_actors::tools::{BuiltinServices, Extensions};
use abide_registry::agent_catalog::AgentCatalog;
use abide_registry::membership::{Member, MemberState};
use abide_registry::peers::{Mesh, MeshConfig, Peers};
use abide_registry::protocol::WIRE;
use abide_registry::runtime::{NodeRuntime, RuntimeDeps};
use abide_registry::standalone::Standalone;
use abide_registry::store::Store;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;

use crate::admin::{self, Admin};
use crate::config::{Config, StoreUrl};
use crate::http::{self, Api};
use crate::{demo, seed_agents, server, telemetry};
pub use kit::ReadinessNotes;
use stores::Stores;

/// The lease of a node that is alone with its store.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Why a node did not start; one line for the person who started it.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{0}")]
    Config(String),
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
    #[error("{0}")]
    Broken(String),
}

/// A node that serves.
pub struct Node {
    pub public: SocketAddr,
    pub admin: SocketAddr,
    /// `None` when there is no cluster.
    pub cluster: Option<SocketAddr>,
    pub name: String,
    stop: watch::Sender<bool>,
    servers: Vec<JoinHandle<()>>,
    life: NodeRuntime,
    natives: Arc<Extensions>,
    _upkeep: Option<AbortOnDropHandle<()>>,
    _seeds: AbortOnDropHandle<()>,
}

impl Node {
    /// Opens the store, takes up what ran, and serves, with the demo's native tools and no others.
    pub async fn start(
        config: Config,
        metrics: Option<PrometheusHandle>,
    ) -> Result<Self, StartError> {
        Self::start_with(config, metrics, Extensions::new()).await
    }

    /// The same with a program's own native tools and middleware. A tool that cannot start keeps the
    /// node from serving.
    pub async fn start_with(
        config: Config,
        metrics: Option<PrometheusHandle>,
        natives: Extensions,
    ) -> Result<Self, StartError> {
        let natives = Arc::new(demo::natives(natives));
        // Everything that may be refused comes before the first write.
        let definitions = definitions(config.agents.as_deref(), &natives)?;
        let secret = cluster_secret(&config)?;
        natives.start().await.map_err(|error| StartError::Broken(error.to_string()))?;
        let begun = Self::begin(config, metrics, natives.clone(), definitions, secret).await;
        if begun.is_err() {
            natives.stop().await;
        }
        begun
    }

    async fn begin(
        config: Config,
        metrics: Option<PrometheusHandle>,
        natives: Arc<Extensions>,
        definitions: Vec<Definition>,
        secret: Option<String>,
    ) -> Result<Self, StartError> {
        let public = listen(config.listen).await?;
        let operators = listen(config.admin_listen).await?;
        let (public_at, admin_at) = (local(&public)?, local(&operators)?);
        let ground = stores::open(&config).await?;
        let Stores { store, membership, clock, .. } = &ground;
        let (store, clock) = (store.clone(), clock.clone());
        let nodes = match ground.is_shared {
            true => Some(listen(config.cluster_listen).await?),
            false => None,
        };
        let cluster_at = nodes.as_ref().map(local).transpose()?;

        let catalogue = Arc::new(AgentCatalog::new(store.clone(), natives.clone(), clock.clone()));
        let me = me(&config, &*clock, cluster_at.unwrap_or(public_at));
        let (name, process) = (me.holder.node.clone(), me.process.clone());
        let tools = kit::kit(&config, ground.is_shared, &clock)?;
        let notes = tools.notes;
        let ground = RuntimeDeps {
            me,
            lease: if nodes.is_some() { config.lease } else { FOR_EVER },
            store: store.clone(),
            membership: membership.clone(),
            agents: catalogue.clone(),
            model: Arc::new(ProviderSet::new(wire(&clock))),
            executors: executors(&natives, tools.kit, &clock)?,
            clock: clock.clone(),
            passivate_after: config.passivate_after,
            policy: config.placement,
            on_time: ground.on_time,
        };
        seed_agents::seed(&catalogue, &*store, clock.now(), &definitions).await?;
        let called = name.clone();
        let life = NodeRuntime::start(ground, move |host, members| async move {
            let Some(listener) = nodes else { return Ok(Arc::new(Standalone::default()) as _) };
            let settings = MeshConfig { name: called, process, listener, secret, host, members };
            let mesh = Mesh::start(settings).await.map_err(|error| error.to_string())?;
            Ok(Arc::new(mesh) as Arc<dyn Peers>)
        });
        let life = life.await.map_err(|error| StartError::Broken(error.to_string()))?;

        let view = life.conversations.cluster().watch();
        let seeds =
            seed_agents::keep(catalogue.clone(), store.clone(), clock.clone(), definitions, view);
        let seeds = AbortOnDropHandle::new(tokio::spawn(seeds));
        let (stop, stopped) = watch::channel(false);
        let api = api(&life, catalogue, store.clone(), clock.clone());
        let state = life.state.clone();
        let conversations = life.conversations.clone();
        let _upkeep = metrics.clone().map(telemetry::upkeep);
        let operators_api = Admin { conversations, store, clock, metrics, state, notes };
        let servers = vec![
            tokio::spawn(server::serve(
                public,
                http::router(api, &config.allow_origin),
                stopped.clone(),
            )),
            tokio::spawn(server::serve(operators, admin::router(operators_api), stopped)),
        ];
        let (public, admin, cluster) = (public_at, admin_at, cluster_at);
        Ok(Self {
            public,
            admin,
            cluster,
            name,
            stop,
            servers,
            life,
            natives,
            _upkeep,
            _seeds: seeds,
        })
    }

    /// Drains whenever an operator asks for it, for at most `patience`, and goes on serving: what
    /// is asked of a drained node is answered "unavailable". Returns only when the node cannot
    /// live, which is the end of the supervisor.
    pub async fn live(&mut self, patience: Duration) -> StartError {
        let mut state = self.life.state.subscribe();
        tokio::select! {
            // The node itself holds the sender: waiting cannot fail.
            _ = state.wait_for(|state| *state != MemberState::Up) => {}
            _ = &mut self.life.supervisor => return supervisor_died(),
        }
        let drained = self.life.drain(patience).await;
        tracing::info!(drained, "an operator's drain is over");
        // Its end is all that is left to wait for.
        let _ = (&mut self.life.supervisor).await;
        supervisor_died()
    }

    /// Takes no more work, lets running steps and tools finish for at most `patience`, and hands
    /// over the rest. Returns whether nothing had to be cut off.
    pub async fn drain(&self, patience: Duration) -> bool {
        self.life.drain(patience).await
    }

    /// Leaves the cluster, stops serving, and lets the native tools clean up.
    pub async fn stop(self) {
        self.life.leave().await;
        self.stop.send_replace(true);
        for server in self.servers {
            if let Err(error) = server.await {
                tracing::error!(%error, "a server ended badly");
            }
        }
        // With it end the last of the tools' runs.
        drop(self.life);
        self.natives.stop().await;
    }
}

/// What clients' requests are answered with.
fn api(
    life: &NodeRuntime,
    catalogue: Arc<AgentCatalog>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
) -> Api {
    Api::new(http::ApiDeps {
        conversations: life.conversations.clone(),
        catalogue,
        store,
        hub: life.hub.clone(),
        clock,
        under_way: AtomicUsize::new(0),
        drawing: Arc::new(Semaphore::new(http::events::AT_ONCE)),
        blobs: Arc::new(Semaphore::new(http::blobs::AT_ONCE)),
    })
}

/// This process, as it describes itself to the others.
fn me(config: &Config, clock: &dyn Clock, listen: SocketAddr) -> Member {
    let process = clock.id("inc");
    Member {
        holder: Holder { node: name(config), incarnation: process.clone() },
        process,
        address: config.cluster_advertise.clone().unwrap_or_else(|| listen.to_string()),
        state: MemberState::Up,
        live_actors: 0,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        wire: WIRE,
        since: clock.now(),
        lease_ms: u64::try_from(config.lease.as_millis()).unwrap_or(u64::MAX),
    }
}

/// Whoever knows it is a node of the cluster.
fn cluster_secret(config: &Config) -> Result<Option<String>, StartError> {
    let secret = std::env::var("ABIDE_CLUSTER_SECRET").ok().filter(|secret| !secret.is_empty());
    let shared = matches!(config.store, StoreUrl::Redis(_));
    let advertised = config.cluster_advertise.as_deref().unwrap_or("127.0.0.1:0");
    let advertised = advertised.rsplit_once(':').map_or(advertised, |(host, _)| host);
    let advertised = advertised.trim_matches(['[', ']']);
    let loops = advertised == "localhost"
        || advertised.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    let listens = [config.listen, config.admin_listen, config.cluster_listen];
    let open = !loops || listens.iter().any(|address| !address.ip().is_loopback());
    if shared && open && secret.is_none() {
        let why =
            "ABIDE_CLUSTER_SECRET: is required with a Redis store unless every address is loopback";
        return Err(StartError::Config(why.to_owned()));
    }
    Ok(secret)
}

fn wire(clock: &Arc<dyn Clock>) -> HttpModel {
    HttpModel::new(clock.clone(), HttpTimeouts::default(), |name: &str| std::env::var(name).ok())
}

fn executors(
    natives: &Extensions,
    kit: BuiltinServices,
    clock: &Arc<dyn Clock>,
) -> Result<Executors, StartError> {
    let executors = Executors::new(natives.clone(), kit, clock.clone());
    executors.map_err(|error| StartError::Broken(error.to_string()))
}

fn supervisor_died() -> StartError {
    StartError::Broken("the supervisor of the conversations died".to_owned())
}

async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|error| StartError::Listen(address, error))
}

fn local(listener: &TcpListener) -> Result<SocketAddr, StartError> {
    listener.local_addr().map_err(|error| StartError::Broken(error.to_string()))
}

/// The definitions that the node brings: those of `--agents`, else the demo agent.
fn definitions(dir: Option<&Path>, natives: &Extensions) -> Result<Vec<Definition>, StartError> {
    let parsed = match dir {
        Some(dir) => agent::load_dir(dir, natives).map_err(|error| error.to_string()),
        None => demo::agent(natives).map(|parsed| vec![parsed]),
    };
    let parsed = parsed.map_err(StartError::Config)?;
    let keep = |parsed: agent::Parsed| {
        for warning in parsed.warnings {
            tracing::warn!(agent = %parsed.definition.name, warning);
        }
        parsed.definition
    };
    Ok(parsed.into_iter().map(keep).collect())
}

/// The name of the node that is configured so.
pub fn name(config: &Config) -> String {
    config.node.clone().unwrap_or_else(host_name)
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "node".to_owned() } else { name.to_owned() }
}
