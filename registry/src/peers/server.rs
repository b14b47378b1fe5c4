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
        // A session is told of the birth and death of each actor here, because it might be remotable.
        // None is: the host has been announced. A conversation would cost two messages for each node.
        ractor::registry::pid_registry::demonitor(session.actor.get_id());
        let (label, node) = (session.peer_addr, session.node_id);
        // Without a receiver the process is ending.
        let _ = self.0.send(LinkEvent::Ready { label, node });
    }

    fn node_session_disconnected(&self, session: NodeServerSessionInformation) {
        let _ = self.0.send(LinkEvent::Ended { label: session.peer_addr });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use ractor::registry::PidLifecycleEvent;
    use ractor::{ActorProcessingErr, SupervisionEvent};
    use ractor_cluster::NodeSessionMessage;
    use tokio::sync::mpsc;

    use super::*;

    /// Stands for a session: reports the births of which it is told.
    struct Witness(mpsc::UnboundedSender<ActorId>);

    impl Actor for Witness {
        type Msg = NodeSessionMessage;
        type State = ();
        type Arguments = ();

        async fn pre_start(
            &self,
            _: ActorRef<Self::Msg>,
            (): (),
        ) -> Result<(), ActorProcessingErr> {
            Ok(())
        }

        async fn handle(
            &self,
            _: ActorRef<Self::Msg>,
            message: Self::Msg,
            (): &mut (),
        ) -> Result<(), ActorProcessingErr> {
            match message {
                NodeSessionMessage::GetReadyState(reply) => Ok(reply.send(true)?),
                _ => Ok(()),
            }
        }

        async fn handle_supervisor_evt(
            &self,
            _: ActorRef<Self::Msg>,
            event: SupervisionEvent,
            (): &mut (),
        ) -> Result<(), ActorProcessingErr> {
            match event {
                SupervisionEvent::PidLifecycleEvent(PidLifecycleEvent::Spawn(actor)) => {
                    Ok(self.0.send(actor.get_id())?)
                }
                _ => Ok(()),
            }
        }
    }

    async fn spawn_actor() -> ActorId {
        let (actor, _) =
            Actor::spawn(None, Witness(mpsc::unbounded_channel().0), ()).await.unwrap();
        actor.get_id()
    }

    #[tokio::test]
    async fn a_ready_session_is_not_told_of_the_actors_that_start() {
        let (told, mut births) = mpsc::unbounded_channel();
        let (session, _) = Actor::spawn(None, Witness(told), ()).await.unwrap();
        // As ractor_cluster does with each session.
        ractor::registry::pid_registry::monitor(session.get_cell());
        let before = spawn_actor().await;
        while births.recv().await.unwrap() != before {}
        let (events, mut links) = mpsc::unbounded_channel();
        Sessions(events).node_session_ready(NodeServerSessionInformation {
            actor: session.clone(),
            peer_name: None,
            is_server: true,
            node_id: 1,
            peer_addr: "peer".to_owned(),
        });
        assert!(matches!(links.recv().await, Some(LinkEvent::Ready { .. })));
        let after = spawn_actor().await;
        // What a session is told, it handles before its messages.
        session.call(NodeSessionMessage::GetReadyState, None).await.unwrap();
        let told: Vec<_> = std::iter::from_fn(|| births.try_recv().ok()).collect();
        assert!(!told.contains(&after), "{told:?}");
    }
}
