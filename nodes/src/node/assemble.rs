//! Composes a node of its parts: listeners, store, conversations, peers, and the two APIs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use abide_actors::credentials::Credentials;
use abide_actors::definition::Definition;
use abide_actors::exec::HiddenPaths;
use abide_actors::identity::Incarnation;
use abide_actors::journal::Holder;
use abide_actors::services::Executors;
use abide_actors::tools::{BuiltinServices, Extensions};
use abide_registry::member::ProcessId;
use abide_registry::membership::{Member, MemberState};
use abide_registry::peers::{ClusterSecrets, Mesh, MeshConfig, Peers};
use abide_registry::protocol::{
    HANDSHAKE_VERSION, LIVE_DIRECTORY_VERSION, PROTOCOL_VERSION, STORED_FORM_VERSION,
};
use abide_registry::runtime::{NodeRuntime, RuntimeDeps};
use abide_registry::standalone::Standalone;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::listeners::{Addresses, Listeners};
use super::protected_ports::PortGuard;
use super::shared::Shared;
use super::stores::Stores;
use super::{Node, builtin_tools, stores};
use crate::access::{AccessControl, CheckedAuthFile};
use crate::callbacks::SignedCallbacks;
use crate::config::Config;
use crate::departures::Departures;
use crate::http::host::AllowedHosts;
use crate::operations::Operations;
use crate::public_url::PublicUrl;
use crate::readiness::ReadinessNotes;
use crate::server::Listener;
use crate::start_error::StartError;
use crate::{admin, http, seed_agents, server, telemetry};

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
        let mut listeners = Listeners::bind(&config).await?;
        let opened = stores::open(&config).await?;
        if opened.is_shared {
            listeners.bind_cluster(&config).await?;
        }
        let addresses = listeners.addresses()?;
        let hidden = HiddenPaths::default();
        let (access, auth_follower) = access_control(auth, &opened, &hidden)?;
        let access = access.with_agents_over_http(config.agents_over_http);
        let shared = Shared::new(access, &cluster_secrets, &opened, &extensions)?;

        let port_guard = PortGuard::new(&addresses.tcp(), &config.store);
        let ports = port_guard.ports.clone();
        let tools =
            builtin_tools::prepare(&config, opened.is_shared, &shared.clock, ports, hidden)?;
        let url = config.public_url.clone().or_else(|| PublicUrl::of_listener(addresses.public));
        let executors = executors(&shared, &extensions, tools.services, tools.mcp_directory, url)?;
        let workspaces = executors.workspaces.clone();
        let (mcp, access) = (executors.mcp.clone(), shared.access.clone());
        let notes = ReadinessNotes::new(tools.notes, workspaces.clone(), mcp, access);

        let cookie = cookie(&cluster_secrets, &opened).await?;
        let me = member(&config, &shared, &addresses, &cookie);
        let store_clock = opened.clock;
        let (close_watch, failure_watch) = (opened.close_watch, opened.failure_watch);
        let deps = shared.runtime_deps(&config, me, opened.membership, opened.on_time, executors);
        let (catalog, store) = (&shared.catalog, &*shared.store);
        seed_agents::seed(catalog, store, shared.clock.now(), &definitions).await?;
        let has_reply_links = deps.links.is_some();
        let runtime = begin(deps, listeners.cluster, cluster_secrets, cookie).await?;

        let mut background = shared.background_tasks(&runtime, definitions, store_clock);
        background.push(port_guard.follow(runtime.conversations.cluster().watch()));
        background.extend(auth_follower);
        background.extend(metrics.clone().map(telemetry::upkeep));
        let lease = runtime.conversations.cluster().lease();
        let (departures, departing) = Departures::follow(runtime.state.subscribe(), lease.clone());
        let operations =
            Operations::new(shared.store.clone(), shared.clock.clone(), config.audit_level);
        let admin = shared.operators_api(&runtime, operations.clone(), notes, metrics);
        let allowed_hosts = AllowedHosts::new(&config.allow_host);
        let hosts = allowed_hosts.clone();
        let access = shared.access.clone();
        let public =
            shared.public_api(&runtime, operations, departures, workspaces, hosts, has_reply_links);
        let public_router = http::router(public, &config.allow_origin);
        let admin_router = admin::router(admin, allowed_hosts, public_router.clone());
        let (stop, stopped) = watch::channel(false);
        let servers =
            [(Listener::Tcp(listeners.public), public_router), (listeners.admin, admin_router)];
        let serve =
            |(listener, router)| tokio::spawn(server::serve(listener, router, stopped.clone()));
        Ok(Node {
            public: addresses.public,
            admin: addresses.admin,
            cluster: addresses.cluster,
            name: config.node_name(),
            stop,
            servers: servers.map(serve).into(),
            runtime,
            extensions,
            background,
            access,
            departing,
            close_watch,
            failure_watch,
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
    begun.await.map_err(StartError::broken)
}

/// Who may use the node, and what keeps that up to date.
fn access_control(
    auth: Option<CheckedAuthFile>,
    opened: &Stores,
    hidden: &HiddenPaths,
) -> Result<(AccessControl, Option<AbortOnDropHandle<()>>), StartError> {
    let Some(auth) = auth else { return Ok((AccessControl::open(), None)) };
    let (store, clock) = (opened.store.clone(), opened.clock.clone());
    let (access, follower) = AccessControl::guarded(auth, store, clock, hidden.clone())?;
    Ok((access, Some(follower)))
}

/// This process, as it describes itself to the other nodes.
fn member(config: &Config, shared: &Shared, addresses: &Addresses, cookie: &str) -> Member {
    let peers_connect_to = addresses.cluster.unwrap_or(addresses.public);
    let incarnation = Incarnation::new(shared.clock.id("inc"));
    Member {
        // The first incarnation in a process also names the process.
        process: ProcessId::new(incarnation.as_str()),
        holder: Holder { node: config.node_name(), incarnation },
        address: config.cluster_advertise.clone().unwrap_or_else(|| peers_connect_to.to_string()),
        state: MemberState::Up,
        live_actors: 0,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol_version: PROTOCOL_VERSION,
        handshake_version: HANDSHAKE_VERSION,
        live_directory_version: LIVE_DIRECTORY_VERSION,
        stored_form_version: STORED_FORM_VERSION,
        cookie: addresses.cluster.map(|_| cookie.to_owned()),
        auth: shared.access.fingerprint(),
        ports: addresses.tcp().iter().map(SocketAddr::port).collect(),
        since: shared.clock.now(),
        lease_ms: u64::try_from(config.lease.as_millis()).unwrap_or(u64::MAX),
    }
}

/// What the nodes of the cluster recognize one another by.
async fn cookie(secrets: &ClusterSecrets, opened: &Stores) -> Result<String, StartError> {
    let members = opened.membership.members().await.map_err(StartError::broken)?;
    secrets.cookie(&members).map_err(StartError::broken)
}

fn executors(
    shared: &Shared,
    extensions: &Extensions,
    services: BuiltinServices,
    mcp_directory: PathBuf,
    public_url: Option<PublicUrl>,
) -> Result<Executors, StartError> {
    let clock = shared.clock.clone();
    let mut executors = Executors::new(extensions.clone(), services, mcp_directory, clock)
        .map_err(StartError::broken)?;
    let signer = shared.client_state.clone();
    executors.callbacks = Arc::new(SignedCallbacks { signer, public_url });
    Ok(executors)
}
