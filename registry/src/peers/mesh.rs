//! The nodes of a cluster, connected with one another by ractor_cluster.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ractor::{ActorRef, SpawnErr};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use super::connector::{Connector, PeerClients};
use super::handshake::Handshake;
use super::hello::Hello;
use super::keys::Keys;
use super::server::{self, PeerServer};
use super::{CallError, Peers};
use crate::host::HostMsg;
use crate::member::{LinkStates, Member};
use crate::protocol::WIRE;

/// What a cluster is started with.
pub struct MeshConfig {
    /// Of this node.
    pub name: String,
    /// Of this process, as the members know it.
    pub process: String,
    /// Where the other nodes dial this one.
    pub listener: TcpListener,
    /// The same on every node, long and random. Without one, whoever reaches the listener gets in.
    pub secret: Option<String>,
    /// Answers the calls of the others. It has no name, and is the only remotable actor.
    pub host: ActorRef<HostMsg>,
    /// Whom to be connected with; this process may be among them.
    pub members: watch::Receiver<Vec<Member>>,
}

/// Why a cluster does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("no key can be made of the cluster's secret: {0}")]
    Keys(#[from] rustls::Error),
    #[error("the node's name cannot be told to others: {0}")]
    Name(#[from] io::Error),
    #[error("the server of the connections between nodes does not start: {0}")]
    Server(#[from] SpawnErr),
}

/// The connections to the other nodes. Dropping it ends them.
pub struct Mesh {
    ways: PeerClients,
    links: watch::Receiver<LinkStates>,
    _tasks: [AbortOnDropHandle<()>; 2],
}

impl Mesh {
    /// Accepts from now on, and keeps a connection to every member while it is one. There can be
    /// one in a process.
    pub async fn start(settings: MeshConfig) -> Result<Self, StartError> {
        let MeshConfig { name, process, listener, secret, host, members } = settings;
        let keys = Keys::derive(secret.as_deref())?;
        let to = Some(process.clone());
        let hello =
            Hello { wire: WIRE, name: name.clone(), process: process.clone(), to, probe: false };
        hello.encode()?;
        let door = Arc::new(Handshake { name, process, keys, refusals: Default::default() });
        let (happened, happenings) = mpsc::unbounded_channel();
        server::announce(&host);
        let server = PeerServer::start(&door, happened.clone()).await?;
        let (ways, links) = (PeerClients::default(), watch::Sender::<LinkStates>::default());
        let published = links.subscribe();
        let accept = tokio::spawn(door.clone().accept(listener, happened.clone()));
        let (peers, sessions) = Default::default();
        let keeper =
            Connector { door, server, happened, ways: ways.clone(), links, peers, sessions };
        let keep = tokio::spawn(keeper.run(happenings, members));
        let _tasks = [AbortOnDropHandle::new(accept), AbortOnDropHandle::new(keep)];
        Ok(Self { ways, links: published, _tasks })
    }
}

#[async_trait]
impl Peers for Mesh {
    async fn call(
        &self,
        process: &str,
        call: Vec<u8>,
        within: Duration,
    ) -> Result<Vec<u8>, CallError> {
        let way = {
            let ways = self.ways.read().unwrap_or_else(PoisonError::into_inner);
            ways.get(process).cloned().ok_or(CallError::Unconnected)?
        };
        way.call(call, within).await
    }

    fn links(&self) -> watch::Receiver<LinkStates> {
        self.links.clone()
    }
}
