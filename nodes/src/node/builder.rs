//! What a node is started with, checked before the first write.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use abide_actors::agent::{self, LoadError, Parsed};
use abide_actors::definition::{Definition, WorkspaceRoot};
use abide_actors::tools::Extensions;
use abide_actors::workspace::permits_root;
use abide_registry::peers::{ClusterSecret, ClusterSecrets};
use metrics_exporter_prometheus::PrometheusHandle;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use serde_json::Value;

use super::Node;
use super::assemble::Blueprint;
use crate::access::CheckedAuthFile;
use crate::config::{Config, StoreUrl};
use crate::definition_warnings;
use crate::demo;
use crate::start_error::StartError;

/// A node that is not started yet.
pub struct NodeBuilder {
    config: Config,
    extensions: Extensions,
    agents: Vec<Value>,
    metrics: Option<PrometheusHandle>,
}

impl NodeBuilder {
    pub(super) fn new(config: Config) -> Self {
        Self { config, extensions: Extensions::new(), agents: Vec::new(), metrics: None }
    }

    /// The program's own tools, hooks and middleware; they replace those of an earlier call.
    #[must_use]
    pub fn extensions(self, extensions: Extensions) -> Self {
        Self { extensions, ..self }
    }

    /// Adds an agent, as a definition in JSON. Without any, and without a directory of agents, the node
    /// defines the agent `demo`.
    #[must_use]
    pub fn agent(mut self, definition: Value) -> Self {
        self.agents.push(definition);
        self
    }

    /// Serves these metrics at `/metrics`; see [`start_metrics`](crate::start_metrics).
    #[must_use]
    pub fn metrics(self, metrics: PrometheusHandle) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// Opens the store, resumes what ran there, and serves.
    ///
    /// A definition that is not valid, or a native tool that cannot start, keeps the node from serving.
    pub async fn start(self) -> Result<Node, StartError> {
        let Self { config, extensions, agents, metrics } = self;
        hide_memory();
        let extensions = Arc::new(demo::with_demo_tools(extensions));
        // Everything that may be refused comes before the first write.
        config.check_node_name().map_err(StartError::Config)?;
        config.check_addresses().map_err(StartError::Config)?;
        let definitions = definitions(config.agents.as_deref(), agents, &extensions)?;
        check_roots(&config, &definitions)?;
        let cluster_secrets = cluster_secrets(&config)?;
        let auth = config.auth.clone().map(CheckedAuthFile::read).transpose()?;
        extensions.start().await.map_err(StartError::broken)?;
        let blueprint = Blueprint {
            config,
            extensions: extensions.clone(),
            definitions,
            cluster_secrets,
            auth,
            metrics,
        };
        let started = blueprint.assemble().await;
        if started.is_err() {
            extensions.stop().await;
        }
        started
    }
}

/// Keeps other processes of the same user, such as MCP servers, from reading this one's memory and
/// environment: both hold keys. The kernel then writes no core dumps of it, either.
fn hide_memory() {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "process cannot be made undumpable");
    }
}

/// The definitions that the node brings: those of the directory and those given in code, or else the
/// demo agent.
fn definitions(
    dir: Option<&Path>,
    given: Vec<Value>,
    extensions: &Extensions,
) -> Result<Vec<Definition>, StartError> {
    let mut parsed = Vec::new();
    if let Some(dir) = dir {
        let loaded = agent::load_dir(dir, extensions);
        let lines = |errors: Vec<LoadError>| {
            errors.iter().map(LoadError::to_string).collect::<Vec<_>>().join("\n")
        };
        parsed = loaded.map_err(|errors| StartError::Config(lines(errors)))?;
    } else if given.is_empty() {
        parsed.push(demo::agent(extensions).map_err(StartError::Config)?);
    }
    for source in given {
        let agent = Definition::parse(source, extensions);
        parsed.push(agent.map_err(|errors| StartError::Config(agent::join_errors(&errors)))?);
    }
    let log_warnings = |Parsed { definition, warnings }: Parsed| {
        definition_warnings::log(definition.name.as_str(), &warnings);
        definition
    };
    Ok(parsed.into_iter().map(log_warnings).collect())
}

/// Refuses a definition whose workspace the operator did not permit.
fn check_roots(config: &Config, definitions: &[Definition]) -> Result<(), StartError> {
    for Definition { name, workspace, .. } in definitions {
        let Some(WorkspaceRoot { root, .. }) = workspace else { continue };
        if !permits_root(&config.workspace_roots, root) {
            let root = root.display();
            let reason =
                format!("agent {name}: workspace.root: {root} is not in --workspace-roots");
            return Err(StartError::Config(reason));
        }
    }
    Ok(())
}

/// The secrets by which the nodes of a cluster authenticate each other. One is required unless only this
/// machine can reach the node.
fn cluster_secrets(config: &Config) -> Result<ClusterSecrets, StartError> {
    let shown = secret_of("ABIDE_CLUSTER_SECRET")?;
    let also = secret_of("ABIDE_CLUSTER_SECRET_ALSO")?;
    if also.is_some() && shown.is_none() {
        let reason =
            "ABIDE_CLUSTER_SECRET_ALSO: needs ABIDE_CLUSTER_SECRET, which is what the node shows";
        return Err(StartError::Config(reason.to_owned()));
    }
    let is_shared = matches!(config.store, StoreUrl::Redis(_));
    let address = config.cluster_advertise.as_deref().unwrap_or("127.0.0.1:0");
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_matches(['[', ']']);
    let advertises_loopback =
        host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    let listens = [Some(config.listen), config.admin_listen.tcp(), Some(config.cluster_listen)];
    let listens_on_loopback = listens.iter().flatten().all(|it| it.ip().is_loopback());
    if is_shared && !(advertises_loopback && listens_on_loopback) && shown.is_none() {
        let reason =
            "ABIDE_CLUSTER_SECRET: is required with a Redis store unless every address is loopback";
        return Err(StartError::Config(reason.to_owned()));
    }
    Ok(ClusterSecrets { shown, also })
}

/// The secret in a variable of the environment.
fn secret_of(variable: &str) -> Result<Option<ClusterSecret>, StartError> {
    let text = std::env::var(variable).ok().filter(|secret| !secret.is_empty());
    let checked = text.map(ClusterSecret::new).transpose();
    checked.map_err(|error| StartError::Config(format!("{variable}: {error}")))
}
