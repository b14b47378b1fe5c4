//! The node server of ractor_cluster, which gets authenticated connections and nothing else.

use std::net::Ipv4Addr;

use ractor::concurrency::JoinHandle;
use ractor::{Actor, ActorId, ActorRef, SpawnErr};
use ractor_cluster::node::{NodeConnectionMode, NodeServerSessionInformation};
use ractor_cluster::{
    IncomingEncryptionMode, NodeEventSubscription, NodeId, NodeServer, NodeServerMessage,
};

use super::event::{LinkEvent, LinkEvents};
use super::handshake::Handshake;
use super::stream::Stream;
use crate::host::HostMsg;

/// The process group in which each node finds the hosts of the others. The registry of names would
/// not do: the proxy of a dead peer would take its namesake's entry with it.
const GROUP: &str = "abide.host";
/// Twice the size of the largest call or answer, to leave room for the frame around it.
const MAX_FRAME_BYTES: u64 = 8 << 20;

/// A running server. Dropping it stops the server.
pub(super) struct PeerServer {
    actor: ActorRef<NodeServerMessage>,
    /// Completes when the server has ended.
    pub(super) ended: JoinHandle<()>,
}

impl PeerServer {
    pub(super) async fn start(handshake: &Handshake, events: LinkEvents) -> Result<Self, SpawnErr> {
        let name = format!("{}/{}", handshake.name, handshake.process);
        // NodeServer insists on a listener of its own: this one accepts nobody. It recognises that
        // it has dialled itself by its name and host name, which is why the latter is the process.
        let server = NodeServer::new(
            0,
            handshake.cookie.clone(),
            name,
            handshake.process.to_string(),
            Some(IncomingEncryptionMode::Tls(handshake.keys.nobody.clone())),
            Some(NodeConnectionMode::Isolated),
        );
        let server = server.with_listen_addr(Ipv4Addr::LOCALHOST.into());
        let (actor, ended) =
            Actor::spawn(None, server.with_max_inbound_frame_size(MAX_FRAME_BYTES), ()).await?;
        let (id, subscription) = ("links".to_owned(), Box::new(Sessions(events)));
        // A server that has ended already completes `ended`.
        let _ = actor.cast(NodeServerMessage::SubscribeToEvents { id, subscription });
        Ok(Self { actor, ended })
    }

    /// Opens a session on a connection. A server that has ended completes `ended` instead.
    pub(super) fn open(&self, stream: Stream, dialled: bool) {
        let (stream, is_server) = (Box::new(stream), !dialled);
        let _ = self.actor.cast(NodeServerMessage::ConnectionOpenedExternal { stream, is_server });
    }
}

impl Drop for PeerServer {
    fn drop(&mut self) {
        self.actor.stop(None);
    }
}

/// Makes the host known to every session that opens from now on.
pub(super) fn announce(host: &ActorRef<HostMsg>) {
    ractor::pg::join(GROUP.to_owned(), vec![host.get_cell()]);
}

/// The host at the other end of a ready session.
pub(super) fn host(node: NodeId) -> Option<ActorRef<HostMsg>> {
    let is_there = |id: ActorId| matches!(id, ActorId::Remote { node_id, .. } if node_id == node);
    let members = ractor::pg::get_members(&GROUP.to_owned());
    members.into_iter().find(|member| is_there(member.get_id())).map(ActorRef::from)
}

struct Sessions(LinkEvents);

impl NodeEventSubscription for Sessions {
    fn node_session_opened(&self, _: NodeServerSessionInformation) {}

    fn node_session_authenticated(&self, _: NodeServerSessionInformation) {}

    fn node_session_ready(&self, session: NodeServerSessionInformation) {
        let (label, node) = (session.peer_addr, session.node_id);
        // Without a receiver the process is ending.
        let _ = self.0.send(LinkEvent::Ready { label, node });
    }

    fn node_session_disconnected(&self, session: NodeServerSessionInformation) {
        let _ = self.0.send(LinkEvent::Ended { label: session.peer_addr });
    }
}
