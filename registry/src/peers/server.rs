//! The server of ractor_cluster: it gets connections that are through the door, and nothing else.

use std::net::Ipv4Addr;

use ractor::concurrency::JoinHandle;
use ractor::{Actor, ActorId, ActorRef, SpawnErr};
use ractor_cluster::node::{NodeConnectionMode, NodeServerSessionInformation};
use ractor_cluster::{
    IncomingEncryptionMode, NodeEventSubscription, NodeId, NodeServer, NodeServerMessage,
};

use super::door::Handshake;
use super::links::{LinkEvent, LinkEvents};
use super::stream::Stream;
use crate::host::HostMsg;

/// Where each node's host is found by the others. It is in no registry of names: a proxy of a dead
/// peer takes the entry of its namesake along.
const GROUP: &str = "abide.host";
/// Twice what a call or an answer may be: its frame has room.
const FRAME: u64 = 8 << 20;

/// Stopped with this.
pub(super) struct PeerServer {
    actor: ActorRef<NodeServerMessage>,
    /// Done when the server has ended; nothing else makes it.
    pub(super) ended: JoinHandle<()>,
}

impl PeerServer {
    pub(super) async fn start(door: &Handshake, happened: LinkEvents) -> Result<Self, SpawnErr> {
        let name = format!("{}/{}", door.name, door.process);
        // It insists on a listener of its own: this one lets nobody in. The host name makes part of
        // what it compares to find out that it has dialled itself.
        let server = NodeServer::new(
            0,
            door.keys.cookie.clone(),
            name,
            door.process.clone(),
            Some(IncomingEncryptionMode::Tls(door.keys.nobody.clone())),
            Some(NodeConnectionMode::Isolated),
        );
        let server = server.with_listen_addr(Ipv4Addr::LOCALHOST.into());
        let (actor, ended) =
            Actor::spawn(None, server.with_max_inbound_frame_size(FRAME), ()).await?;
        let (id, subscription) = ("links".to_owned(), Box::new(Sessions(happened)));
        // If it has ended already, `ended` says so.
        let _ = actor.cast(NodeServerMessage::SubscribeToEvents { id, subscription });
        Ok(Self { actor, ended })
    }

    /// Makes a session of a connection. If the server has ended, `ended` says so.
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

/// Makes the host known to every session from now on.
pub(super) fn announce(host: &ActorRef<HostMsg>) {
    ractor::pg::join(GROUP.to_owned(), vec![host.get_cell()]);
}

/// The host at the other end of a session that is ready.
pub(super) fn host(of: NodeId) -> Option<ActorRef<HostMsg>> {
    let there = |id: ActorId| matches!(id, ActorId::Remote { node_id, .. } if node_id == of);
    let members = ractor::pg::get_members(&GROUP.to_owned());
    members.into_iter().find(|member| there(member.get_id())).map(ActorRef::from)
}

struct Sessions(LinkEvents);

impl NodeEventSubscription for Sessions {
    fn node_session_opened(&self, _: NodeServerSessionInformation) {}

    fn node_session_authenticated(&self, _: NodeServerSessionInformation) {}

    fn node_session_ready(&self, session: NodeServerSessionInformation) {
        let (label, node) = (session.peer_addr, session.node_id);
        // If nobody listens any more, the process ends.
        let _ = self.0.send(LinkEvent::Ready { label, node });
    }

    fn node_session_disconnected(&self, session: NodeServerSessionInformation) {
        let _ = self.0.send(LinkEvent::Ended { label: session.peer_addr });
    }
}
