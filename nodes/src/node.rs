//! One node, composed of its parts; how it starts, and how it stops.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use abide_actors::agent::{self, Definition};
use abide_actors::clock::Clock;
use abide_actors::conversation::Deps;
use abide_actors::journal::Holder;
use abide_actors::model::openai::{Limits, Openai};
use abide_actors::model::providers::Models;
use abide_actors::tools::{Natives, Runner};
use abide_registry::agents::Catalogue;
use abide_registry::alarms;
use abide_registry::conversations::Conversations;
use abide_registry::host::{Host, Table};
use abide_registry::live::Hub;
use abide_registry::store::Store;
use abide_registry::store::embedded::{self, Embedded};
use abide_registry::store::memory::Memory;
use metrics_exporter_prometheus::PrometheusHandle;
use ractor::Actor;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::admin::{self, Admin, Drain, Me};
use crate::clock::SystemClock;
use crate::config::{Config, Durability, StoreUrl};
use crate::http::{self, Api};
use crate::{demo, seed, serve};

/// Why a node did not start; one line for the person who started it.
#[derive(Debug, thiserror::Error)]
pub enum Unready {
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
    pub name: String,
    drain: watch::Sender<Drain>,
    stop: watch::Sender<bool>,
    servers: Vec<JoinHandle<()>>,
    life: Life,
}

/// The conversations of a node, and what keeps them going.
struct Life {
    conversations: Conversations,
    hub: Hub,
    work: TaskTracker,
    draining: Arc<AtomicBool>,
    supervisor: JoinHandle<()>,
    _alarms: AbortOnDropHandle<()>,
}

impl Life {
    /// Starts the supervisor and the alarms, and takes up what ran when the last process died.
    async fn begin(
        config: &Config,
        me: &Me,
        clock: &Arc<dyn Clock>,
        natives: Arc<Natives>,
        catalogue: &Arc<Catalogue>,
        store: &Arc<dyn Store>,
    ) -> Result<Self, Unready> {
        let broken = |error: &dyn std::error::Error| Unready::Broken(error.to_string());
        let variable = |name: &str| std::env::var(name).ok();
        let openai = Openai::new(clock.clone(), Limits::default(), variable);
        let runner = Runner::new((*natives).clone(), clock.clone());
        let runner = runner.map_err(|error| broken(&error))?;
        let (hub, work) = (Hub::default(), TaskTracker::new());
        let draining = Arc::new(AtomicBool::new(false));
        let deps = Arc::new(Deps {
            me: Holder { node: me.name.clone(), incarnation: me.incarnation.clone() },
            journal: store.clone(),
            agents: catalogue.clone(),
            live: Arc::new(hub.clone()),
            model: Arc::new(Models::new(openai)),
            runner: Arc::new(runner),
            clock: clock.clone(),
            passivate_after: config.passivate_after,
            work: work.clone(),
            draining: draining.clone(),
        });
        let table = Arc::new(Table::default());
        let host =
            Actor::spawn(None, Host, (deps.clone(), table.clone(), mpsc::channel(1).0)).await;
        let (host, supervisor) = host.map_err(|error| broken(&error))?;
        let conversations = Conversations::new(host, table, deps, store.clone());
        tokio::spawn(take_up(conversations.clone()));
        let alarms = alarms::run(conversations.clone(), store.clone(), clock.clone());
        let _alarms = AbortOnDropHandle::new(tokio::spawn(alarms));
        Ok(Self { conversations, hub, work, draining, supervisor, _alarms })
    }
}

async fn take_up(conversations: Conversations) {
    let revived = conversations.revive_active().await;
    if revived > 0 {
        tracing::info!(revived, "took up what was running");
    }
}

impl Node {
    /// Opens the store, takes up what ran, and serves.
    pub async fn start(config: Config, metrics: Option<PrometheusHandle>) -> Result<Self, Unready> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let natives = Arc::new(demo::natives());
        // Everything that may be refused comes before the first write.
        let definitions = definitions(config.agents.as_deref(), &natives)?;
        let public = listen(config.listen).await?;
        let operators = listen(config.admin_listen).await?;
        let (public_at, admin_at) = (local(&public)?, local(&operators)?);
        let store = open(&config)?;
        let catalogue = Arc::new(Catalogue::new(store.clone(), natives.clone()));
        seed::seed(&catalogue, &*store, clock.now(), definitions).await?;

        let me = Me {
            name: config.node.clone().unwrap_or_else(host_name),
            incarnation: clock.id("inc"),
            address: public_at.to_string(),
            since: clock.now(),
        };
        let life = Life::begin(&config, &me, &clock, natives, &catalogue, &store).await?;
        let (drain, _) = watch::channel(Drain::Unasked);
        let (stop, stopped) = watch::channel(false);
        let api = Api {
            conversations: life.conversations.clone(),
            catalogue,
            store: store.clone(),
            hub: life.hub.clone(),
            clock: clock.clone(),
            under_way: Arc::new(AtomicUsize::new(0)),
            draining: life.draining.clone(),
        };
        let operators_api = Admin {
            conversations: life.conversations.clone(),
            store,
            clock,
            metrics,
            me: me.clone(),
            draining: life.draining.clone(),
            drain: drain.clone(),
        };
        let servers = vec![
            tokio::spawn(serve::serve(public, http::router(api), stopped.clone())),
            tokio::spawn(serve::serve(operators, admin::router(operators_api), stopped)),
        ];
        Ok(Self { public: public_at, admin: admin_at, name: me.name, drain, stop, servers, life })
    }

    /// Drains whenever an operator asks for it, for at most `patience`, and goes on serving: what
    /// is asked of a drained node is answered "unavailable". Returns only when the node cannot
    /// live, which is the end of the supervisor.
    pub async fn live(&mut self, patience: Duration) -> Unready {
        let mut asked = self.drain.subscribe();
        tokio::select! {
            // The node itself holds the sender: waiting cannot fail.
            _ = asked.wait_for(|drain| *drain == Drain::Asked) => {}
            _ = &mut self.life.supervisor => return supervisor_died(),
        }
        let drained = tokio::time::timeout(patience, self.drain()).await.is_ok();
        tracing::info!(drained, "an operator's drain is over");
        self.drain.send_replace(Drain::Done);
        // Its end is all that is left to wait for.
        let _ = (&mut self.life.supervisor).await;
        supervisor_died()
    }

    /// Takes no more work and lets running steps and tools finish; what they came to is journalled,
    /// and goes on at the next start.
    pub async fn drain(&self) {
        self.life.draining.store(true, Ordering::Relaxed);
        self.life.work.close();
        loop {
            self.life.work.wait().await;
            // What they came to is in the mailboxes, before this question: an answer says that it is
            // journalled, and that what it handed over has started.
            for (id, _) in self.life.conversations.table().page(None, usize::MAX) {
                self.life.conversations.inspect(&id).await;
            }
            if self.life.work.is_empty() {
                return;
            }
        }
    }

    /// Stops serving.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        for server in self.servers {
            if let Err(error) = server.await {
                tracing::error!(%error, "a server ended badly");
            }
        }
    }
}

fn supervisor_died() -> Unready {
    Unready::Broken("the supervisor of the conversations died".to_owned())
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Unready> {
    TcpListener::bind(address).await.map_err(|error| Unready::Listen(address, error))
}

fn local(listener: &TcpListener) -> Result<SocketAddr, Unready> {
    listener.local_addr().map_err(|error| Unready::Broken(error.to_string()))
}

fn open(config: &Config) -> Result<Arc<dyn Store>, Unready> {
    match &config.store {
        StoreUrl::Memory => Ok(Arc::new(Memory::default())),
        StoreUrl::Embedded(dir) => {
            let durability = match config.durability {
                Durability::Fsync => embedded::Durability::Fsync,
                Durability::Os => embedded::Durability::Os,
            };
            let opened = Embedded::open(dir, durability);
            Ok(Arc::new(opened.map_err(|error| Unready::Config(error.to_string()))?))
        }
    }
}

/// The definitions that the node brings: those of `--agents`, else the demo agent.
fn definitions(dir: Option<&Path>, natives: &Natives) -> Result<Vec<Definition>, Unready> {
    let parsed = match dir {
        Some(dir) => agent::load_dir(dir, natives).map_err(|error| error.to_string()),
        None => demo::agent(natives).map(|parsed| vec![parsed]),
    };
    let parsed = parsed.map_err(Unready::Config)?;
    let keep = |parsed: agent::Parsed| {
        for warning in parsed.warnings {
            tracing::warn!(agent = %parsed.definition.name, warning);
        }
        parsed.definition
    };
    Ok(parsed.into_iter().map(keep).collect())
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "node".to_owned() } else { name.to_owned() }
}
