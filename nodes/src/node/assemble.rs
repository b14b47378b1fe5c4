//! Composes a node of its parts: listeners, store, conversations, peers, and the two APIs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_actors::credentials::Credentials;
use abide_actors::definition::Definition;
use abide_actors::exec::HiddenPaths;
use abide_actors::identity::Incarnation;
use abide_actors::journal::Holder;
use abide_actors::model::http::{HttpModel, HttpTimeouts};
use abide_actors::model::providers::ProviderSet;
use abide_actors::services::Executors;
use abide_actors::tools::{BuiltinServices, Extensions};
use abide_actors::webhooks::NoticeSender;
use abide_registry::agent_catalog::AgentCatalog;
use abide_registry::index_rebuilder::IndexRebuilder;
use abide_registry::member::ProcessId;
use abide_registry::membership::{Member, MemberState};
use abide_registry::notices::webhook_catalog::WebhookCatalog;
use abide_registry::peers::{ClusterSecrets, Mesh, MeshConfig, Peers};
use abide_registry::protocol::{HANDSHAKE_VERSION, LIVE_DIRECTORY_VERSION, PROTOCOL_VERSION};
use abide_registry::runtime::{NodeRuntime, RuntimeDeps};
use abide_registry::standalone::Standalone;
use abide_registry::store::Store;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_util::task::AbortOnDropHandle;

use super::protected_ports::PortGuard;
use super::{Node, builtin_tools, stores};
use crate::access::{AccessControl, CallerConversations, CheckedAuthFile, ClientState, ReplyLinks};
use crate::admin::{self, Admin};
use crate::callbacks::SignedCallbacks;
use crate::config::{AdminAddress, Config};
use crate::departures::Departures;
use crate::ephemeral::EphemeralSweeper;
use crate::http::body_budget::BodyBudget;
use crate::http::host::AllowedHosts;
use crate::http::{self, Api, ApiDeps};
use crate::operations::Operations;
use crate::public_url::PublicUrl;
use crate::readiness::ReadinessNotes;
use crate::schedule_sender::ScheduleSender;
use crate::server::{Listener, UnixSocket};
use crate::start_error::StartError;
use crate::{seed_agents, server, telemetry};

/// The lease of a node that has its store to itself.
const ENDLESS_LEASE: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The parts of a node, already checked.
pub(super) struct Blueprint {
    pub(super) config: Config,
    pub(super) extensions: Arc<Extensions>,
    pub(super) definitions: Vec<Definition>,
    pub(super) cluster_secrets: ClusterSecrets,
    pub(super) auth: Option<CheckedAuthFile>,
    pub(super) metrics: Option<PrometheusHandle>,
}

impl Blueprint {
    /// Opens the store, resumes what ran there, and serves.
    pub(super) async fn assemble(self) -> Result<Node, StartError> {
        let Self { config, extensions, definitions, cluster_secrets, auth, metrics } = self;
        let public_listener = listen(config.listen).await?;
        let admin_listener = listen_at(&config.admin_listen).await?;
        let public = local_address(&public_listener)?;
        let admin = admin_listener.address().map_err(|it| StartError::Broken(it.to_string()))?;
        let opened = stores::open(&config).await?;
        let is_shared = opened.is_shared;
        let (store, clock) = (opened.store.clone(), opened.clock.clone());
        let hidden = HiddenPaths::default();
        let (access, auth_follower) = access_control(auth, &store, &clock, &hidden)?;
        let access = access.with_agents_over_http(config.agents_over_http);
        let cluster_listener =
            if is_shared { Some(listen(config.cluster_listen).await?) } else { None };
        let cluster = cluster_listener.as_ref().map(local_address).transpose()?;

        let catalog = AgentCatalog::new(store.clone(), extensions.clone(), clock.clone());
        let catalog = Arc::new(catalog.with_tenants(access.tenant_rules()));
        let listeners: Vec<SocketAddr> =
            [Some(public), admin.tcp(), cluster].into_iter().flatten().collect();
        let port_guard = PortGuard::new(&listeners, &config.store);
        let ports = port_guard.ports.clone();
        let tools = builtin_tools::prepare(&config, is_shared, &clock, ports, hidden)?;
        let mut executors = executors(&extensions, tools.services, tools.mcp_directory, &clock)?;
        executors.callbacks = Arc::new(SignedCallbacks {
            signer: ClientState::new(access.clone(), cluster_secrets.clone()),
            public_url: config.public_url.clone().or_else(|| PublicUrl::of_listener(public)),
        });
        let (workspaces, mcp) = (executors.workspaces.clone(), executors.mcp.clone());
        let notes = ReadinessNotes::new(tools.notes, workspaces.clone(), mcp, access.clone());
        let members = opened.membership.members().await;
        let members = members.map_err(|error| StartError::Broken(error.to_string()))?;
        let cookie = cluster_secrets.cookie(&members);
        let cookie = cookie.map_err(|error| StartError::Broken(error.to_string()))?;
        let me = Member {
            cookie: cluster.map(|_| cookie.clone()),
            auth: access.fingerprint(),
            ..member(&config, &*clock, cluster.unwrap_or(public), &listeners)
        };
        let webhooks = Arc::new(WebhookCatalog::new(store.clone()));
        let notice_sender = NoticeSender::new(clock.clone(), access.tenant_rules());
        let notice_sender = Arc::new(notice_sender.map_err(broken)?);
        let links = ReplyLinks::link_maker(&access, &store, config.public_url.as_ref());
        let has_reply_links = links.is_some();
        let deps = RuntimeDeps {
            me,
            lease: if is_shared { config.lease } else { ENDLESS_LEASE },
            store: store.clone(),
            membership: opened.membership,
            agents: catalog.clone(),
            model: Arc::new(ProviderSet::new(provider_client(&clock))),
            executors,
            clock: clock.clone(),
            credentials: Arc::new(access.clone()),
            passivate_after: config.passivate_after,
            policy: config.placement,
            on_time: opened.on_time,
            webhooks: webhooks.clone(),
            notice_sender: notice_sender.clone(),
            links,
        };
        seed_agents::seed(&catalog, &*store, clock.now(), &definitions).await?;
        let client_state = ClientState::new(access.clone(), cluster_secrets.clone());
        let runtime = begin(deps, cluster_listener, cluster_secrets, cookie).await?;

        let view = runtime.conversations.cluster().watch();
        access.share_quotas(view.clone());
        let _protected_ports = port_guard.follow(view.clone());
        let restore = seed_agents::restore_at_rejoin(
            catalog.clone(),
            store.clone(),
            clock.clone(),
            definitions,
            view,
        );
        let agent_seeder = AbortOnDropHandle::new(tokio::spawn(restore));
        let sweeper = EphemeralSweeper {
            conversations: runtime.conversations.clone(),
            store: store.clone(),
            clock: clock.clone(),
            access: access.clone(),
        };
        let ephemeral_sweeper = AbortOnDropHandle::new(tokio::spawn(sweeper.run()));
        let rebuilder =
            IndexRebuilder { store: store.clone(), agents: catalog.clone(), clock: clock.clone() };
        let rebuild = rebuilder.run(runtime.conversations.cluster().clone());
        let index_rebuilder = AbortOnDropHandle::new(tokio::spawn(rebuild));
        let metrics_upkeep = metrics.clone().map(telemetry::upkeep);
        let operations = Operations::new(store.clone(), clock.clone(), config.audit_level);
        let operators_api = Admin {
            conversations: runtime.conversations.clone(),
            store: store.clone(),
            operations: operations.clone(),
            clock: clock.clone(),
            queues: runtime.queues.clone(),
            metrics,
            state: runtime.state.clone(),
            notes,
            access: access.clone(),
            bodies: BodyBudget::default(),
        };
        let allowed_hosts = AllowedHosts::new(&config.allow_host);
        let lease = runtime.conversations.cluster().lease();
        let (departures, departing) = Departures::follow(runtime.state.subscribe(), lease.clone());
        let public_api = Api::new(ApiDeps {
            conversations: CallerConversations::new(runtime.conversations.clone()),
            catalog,
            store,
            operations,
            hub: runtime.hub.clone(),
            queues: runtime.queues.clone(),
            clock,
            workspaces,
            allowed_hosts: allowed_hosts.clone(),
            access: access.clone(),
            client_state,
            requests_in_flight: AtomicUsize::new(0),
            bodies: BodyBudget::default(),
            departures,
            encoding_streams: Arc::new(Semaphore::new(http::events::MAX_ENCODING_STREAMS)),
            waiting_requests: Arc::new(Semaphore::new(http::wait::MAX_WAITING_REQUESTS)),
            waiting_workers: Arc::new(Semaphore::new(http::queues::MAX_WAITING_WORKERS)),
            blobs_in_flight: Arc::new(Semaphore::new(http::blobs::MAX_BLOBS_IN_FLIGHT)),
            webhooks,
            notice_sender,
            has_reply_links,
        });
        let sender =
            ScheduleSender { conversations: runtime.conversations.clone(), access: access.clone() };
        let ticks = sender.run(public_api.store.clone(), opened.clock);
        let public_router = http::router(public_api, &config.allow_origin);
        let admin_router = admin::router(operators_api, allowed_hosts, public_router.clone());
        let (stop, stopped) = watch::channel(false);
        let servers =
            [(Listener::Tcp(public_listener), public_router), (admin_listener, admin_router)];
        let serve =
            |(listener, router)| tokio::spawn(server::serve(listener, router, stopped.clone()));
        let servers = servers.map(serve).into();
        Ok(Node {
            public,
            admin,
            cluster,
            name: config.node_name(),
            stop,
            servers,
            runtime,
            extensions,
            _metrics_upkeep: metrics_upkeep,
            agent_seeder,
            ephemeral_sweeper,
            index_rebuilder,
            ticks,
            access,
            _auth_follower: auth_follower,
            _protected_ports,
            departing,
            close_watch: opened.close_watch,
            failure_watch: opened.failure_watch,
        })
    }
}

/// Starts the conversations and, with a listener, the connections to the other nodes.
async fn begin(
    deps: RuntimeDeps,
    listener: Option<TcpListener>,
    secrets: ClusterSecrets,
    cookie: String,
) -> Result<NodeRuntime, StartError> {
    let (name, process) = (deps.me.holder.node.clone(), deps.me.process.clone());
    let begun = NodeRuntime::start(deps, move |host, members| async move {
        let Some(listener) = listener else { return Ok(Arc::new(Standalone::default()) as _) };
        let config = MeshConfig { name, process, listener, secrets, cookie, host, members };
        let mesh = Mesh::start(config).await.map_err(|error| error.to_string())?;
        Ok(Arc::new(mesh) as Arc<dyn Peers>)
    });
    begun.await.map_err(|error| StartError::Broken(error.to_string()))
}

/// Who may use the node, and what keeps that up to date.
fn access_control(
    auth: Option<CheckedAuthFile>,
    store: &Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
    hidden: &HiddenPaths,
) -> Result<(AccessControl, Option<AbortOnDropHandle<()>>), StartError> {
    let Some(auth) = auth else { return Ok((AccessControl::open(), None)) };
    let (access, follower) =
        AccessControl::guarded(auth, store.clone(), clock.clone(), hidden.clone())?;
    Ok((access, Some(follower)))
}

/// This process, as it describes itself to the other nodes.
fn member(
    config: &Config,
    clock: &dyn Clock,
    address: SocketAddr,
    listeners: &[SocketAddr],
) -> Member {
    let incarnation = Incarnation::new(clock.id("inc"));
    Member {
        // The first incarnation in a process also names the process.
        process: ProcessId::new(incarnation.as_str()),
        holder: Holder { node: config.node_name(), incarnation },
        address: config.cluster_advertise.clone().unwrap_or_else(|| address.to_string()),
        state: MemberState::Up,
        live_actors: 0,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol_version: PROTOCOL_VERSION,
        handshake_version: HANDSHAKE_VERSION,
        live_directory_version: LIVE_DIRECTORY_VERSION,
        cookie: None,
        auth: None,
        ports: listeners.iter().map(SocketAddr::port).collect(),
        since: clock.now(),
        lease_ms: u64::try_from(config.lease.as_millis()).unwrap_or(u64::MAX),
    }
}

fn broken(error: impl std::fmt::Display) -> StartError {
    StartError::Broken(error.to_string())
}

fn provider_client(clock: &Arc<dyn Clock>) -> HttpModel {
    HttpModel::new(clock.clone(), HttpTimeouts::default(), |name: &str| std::env::var(name).ok())
}

fn executors(
    extensions: &Extensions,
    services: BuiltinServices,
    mcp_directory: PathBuf,
    clock: &Arc<dyn Clock>,
) -> Result<Executors, StartError> {
    let executors = Executors::new(extensions.clone(), services, mcp_directory, clock.clone());
    executors.map_err(|error| StartError::Broken(error.to_string()))
}

async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|error| StartError::Listen(address.to_string(), error))
}

async fn listen_at(address: &AdminAddress) -> Result<Listener, StartError> {
    match address {
        AdminAddress::Tcp(address) => listen(*address).await.map(Listener::Tcp),
        AdminAddress::Unix(path) => {
            let bound = UnixSocket::bind(path).await.map(Listener::Unix);
            bound.map_err(|error| StartError::Listen(address.to_string(), error))
        }
    }
}

fn local_address(listener: &TcpListener) -> Result<SocketAddr, StartError> {
    listener.local_addr().map_err(|error| StartError::Broken(error.to_string()))
}
