//! The connections between the nodes of a cluster, by ractor_cluster.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use abide_actors::identity::NodeName;
use async_trait::async_trait;
use ractor::{ActorRef, SpawnErr};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use super::connector::{Connector, PeerClients};
use super::handshake::Handshake;
use super::hello::Hello;
use super::keys::Keys;
use super::rejection_log::RejectionLog;
use super::secret::ClusterSecrets;
use super::server::{self, PeerServer};
use super::{CallError, Peers};
use crate::host::HostMsg;
use crate::member::{LinkStates, Member, ProcessId};
use crate::protocol::PROTOCOL_VERSION;

/// What the mesh is started with.
pub struct MeshConfig {
    /// The name of this node.
    pub name: NodeName,
    /// The id of this process, as the members know it.
    pub process: ProcessId,
    /// Where the other nodes dial this one.
    pub listener: TcpListener,
    /// The cluster's secrets. Without one, anyone who reaches the listener is accepted.
    pub secrets: ClusterSecrets,
    /// What [`ClusterSecrets::cookie`] returned before this process became a member.
    pub cookie: String,
    /// Answers the calls of the others. It has no registered name and is the only remotable actor.
    pub host: ActorRef<HostMsg>,
    /// The members to be connected with; this process may be among them.
    pub members: watch::Receiver<Vec<Member>>,
}

/// Why the mesh does not start.
#[derive(Debug, thiserror::Error)]
pub enum MeshError {
    #[error("the cluster secret cannot be turned into a key: {0}")]
    Keys(#[from] rustls::Error),
    #[error("the derivation of the keys ended early: {0}")]
    Derivation(#[from] tokio::task::JoinError),
    #[error("the node's name cannot be sent to others: {0}")]
    Name(#[from] io::Error),
    #[error("the peer server does not start: {0}")]
    Server(#[from] SpawnErr),
}

/// The connections to the other nodes. Dropping it ends them.
pub struct Mesh {
    clients: PeerClients,
    links: watch::Receiver<LinkStates>,
    _tasks: [AbortOnDropHandle<()>; 2],
}

impl Mesh {
    /// Accepts connections from now on, and keeps one to every member as long as it is a member. A
    /// process can have one mesh.
    pub async fn start(config: MeshConfig) -> Result<Self, MeshError> {
        let MeshConfig { name, process, listener, secrets, cookie, host, members } = config;
        // The derivation is slow on purpose.
        let keys = tokio::task::spawn_blocking(move || Keys::derive(&secrets)).await??;
        let to = Some(process.clone());
        let hello = Hello {
            protocol_version: PROTOCOL_VERSION,
            name: name.clone(),
            process: process.clone(),
            to,
            probe: false,
        };
        hello.encode()?;
        let handshake = Arc::new(Handshake {
            name,
            process,
            keys,
            cookie,
            has_legacy_members: AtomicBool::new(false),
            rejections: RejectionLog::default(),
        });
        let (events, receiver) = mpsc::unbounded_channel();
        server::announce(&host);
        let server = PeerServer::start(&handshake, events.clone()).await?;
        let clients = PeerClients::default();
        let link_sender = watch::Sender::<LinkStates>::default();
        let links = link_sender.subscribe();
        let accept = tokio::spawn(handshake.clone().accept(listener, events.clone()));
        let connector = Connector {
            handshake,
            server,
            events,
            clients: clients.clone(),
            links: link_sender,
            peers: BTreeMap::new(),
            session_count: 0,
        };
        let connect = tokio::spawn(connector.run(receiver, members));
        let _tasks = [AbortOnDropHandle::new(accept), AbortOnDropHandle::new(connect)];
        Ok(Self { clients, links, _tasks })
    }
}

#[async_trait]
impl Peers for Mesh {
    async fn call(
        &self,
        process: &ProcessId,
        call: Vec<u8>,
        timeout: Duration,
    ) -> Result<Vec<u8>, CallError> {
        let client = {
            let clients = self.clients.read().unwrap_or_else(PoisonError::into_inner);
            clients.get(process).cloned().ok_or(CallError::Unconnected)?
        };
        client.call(call, timeout).await
    }

    fn links(&self) -> watch::Receiver<LinkStates> {
        self.links.clone()
    }
}
