//! Keeps a connection to every member: dials, takes authenticated connections, publishes their
//! states.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ractor_cluster::NodeId;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::event::{LinkEvent, LinkEvents};
use super::handshake::{Authenticated, DialError, Handshake};
use super::peer::{Peer, Session};
use super::peer_client::PeerClient;
use super::server::{self, PeerServer};
use super::stream::{Keepalive, Stream};
use crate::member::{LinkState, LinkStates, Member, ProcessId};

/// The delay between attempts to replace a server that has ended, most likely for lack of file
/// descriptors.
const SERVER_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The clients of the connected processes, by process.
pub(super) type PeerClients = Arc<RwLock<HashMap<ProcessId, Arc<PeerClient>>>>;

/// The one task that manages all connections.
pub(super) struct Connector {
    pub(super) handshake: Arc<Handshake>,
    pub(super) server: PeerServer,
    pub(super) events: LinkEvents,
    pub(super) clients: PeerClients,
    pub(super) links: watch::Sender<LinkStates>,
    /// By process.
    pub(super) peers: BTreeMap<ProcessId, Peer>,
    /// Sessions opened so far, so that each has a label of its own.
    pub(super) session_count: u64,
}

impl Connector {
    pub(super) async fn run(
        mut self,
        mut receiver: mpsc::UnboundedReceiver<LinkEvent>,
        mut members: watch::Receiver<Vec<Member>>,
    ) {
        members.mark_changed();
        let mut has_members = true;
        loop {
            tokio::select! {
                Some(event) = receiver.recv() => self.apply(event),
                changed = members.changed(), if has_members => {
                    has_members = changed.is_ok();
                    let members = members.borrow_and_update().clone();
                    self.sync_members(&members);
                }
                _ = &mut self.server.ended => self.restart().await,
            }
            self.publish();
        }
    }

    /// Dials new members, and forgets those that have left.
    fn sync_members(&mut self, members: &[Member]) {
        let others = || members.iter().filter(|member| member.process != self.handshake.process);
        let departed: Vec<ProcessId> = self
            .peers
            .iter()
            .filter(|(process, peer)| {
                peer.address.is_some() && !others().any(|other| other.process == **process)
            })
            .map(|(process, _)| process.clone())
            .collect();
        let others: Vec<Member> = others().cloned().collect();
        let has_legacy = others.iter().any(Member::is_legacy);
        self.handshake.has_legacy_members.store(has_legacy, Ordering::Relaxed);
        for process in departed {
            self.forget(&process);
        }
        for member in others {
            let legacy = member.is_legacy();
            let Member { holder, process, address, .. } = member;
            let peer = self.peers.entry(process.clone()).or_insert_with(|| Peer::new(&holder.node));
            peer.address = Some(address);
            // The first incarnation in a process has the id of the process.
            peer.has_rejoined = holder.incarnation.as_str() != process.as_str();
            peer.legacy = legacy;
            if peer.session.is_none() && peer.attempt.is_none() {
                self.dial(&process);
            }
        }
    }

    fn apply(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Accepted(connection) => {
                let peer = self.peers.entry(connection.process.clone());
                peer.or_insert_with(|| Peer::new(&connection.name));
                self.connected(connection);
            }
            LinkEvent::Probed { process } => self.probed(&process),
            LinkEvent::Dialled { process, outcome } => self.dialled(&process, outcome),
            LinkEvent::Ready { label, node } => self.ready(&label, node),
            LinkEvent::Ended { label } => self.ended(&label),
        }
    }

    /// A process that is not known as a member has just become one: whoever reads the members reads
    /// them anew at every change of the links, so that this node dials it now.
    fn probed(&mut self, process: &ProcessId) {
        if self.peers.get(process).is_none_or(|peer| peer.address.is_none()) {
            self.links.send_modify(|_| {});
        }
    }

    /// A new connection replaces the one before: a peer dials again only if the former has ended.
    fn connected(&mut self, connection: Authenticated) {
        let Some(peer) = self.peers.get_mut(&connection.process) else { return };
        peer.attempt = None;
        let Some(session) = &mut peer.session else { return self.open_session(connection) };
        // Between two open sessions ractor_cluster would choose at random.
        session.close("replaced");
        peer.next = Some(connection);
    }

    fn open_session(&mut self, connection: Authenticated) {
        let Some(peer) = self.peers.get_mut(&connection.process) else { return };
        self.session_count += 1;
        let label = format!("{}#{}", connection.process, self.session_count);
        let keepalive = Keepalive::new();
        let close = CancellationToken::new();
        let stream =
            Stream::new(connection.stream, label.clone(), keepalive.clone(), close.clone());
        peer.session = Some(Session::new(label, keepalive, close, self.events.clone()));
        self.server.open(stream, connection.dialled);
    }

    fn ready(&mut self, label: &str, node: NodeId) {
        let Some((process, peer)) = by_label(&mut self.peers, label) else { return };
        let Some(session) = &mut peer.session else { return };
        let Some(host) = server::host(node) else { return session.close("hostless") };
        session.set_ready();
        let client = PeerClient::new(host, session.keepalive.clone());
        peer.was_connected = true;
        peer.is_refusing = false;
        tracing::info!(peer = peer.name.as_str(), process = process.as_str(), "node connected");
        self.handshake.rejections.forgive(&peer.name);
        let mut clients = self.clients.write().unwrap_or_else(PoisonError::into_inner);
        clients.insert(process.clone(), Arc::new(client));
    }

    fn ended(&mut self, label: &str) {
        let Some((process, peer)) = by_label(&mut self.peers, label) else { return };
        let process = process.clone();
        let next = peer.next.take();
        let Some(session) = peer.session.take() else { return };
        peer.failed_dials =
            if session.is_steady() { 0 } else { peer.failed_dials.saturating_add(1) };
        if session.is_ready() {
            let end = session.keepalive.end_cause();
            tracing::info!(
                peer = peer.name.as_str(),
                process = process.as_str(),
                end,
                "node disconnected"
            );
        }
        let is_member = peer.address.is_some();
        self.clients.write().unwrap_or_else(PoisonError::into_inner).remove(&process);
        match next {
            Some(next) => self.open_session(next),
            None if is_member => self.dial(&process),
            None => self.forget(&process),
        }
    }

    fn dialled(&mut self, process: &ProcessId, outcome: Result<Authenticated, DialError>) {
        let is_dialler = self.is_dialler(process);
        let Some(peer) = self.peers.get_mut(process) else { return };
        peer.attempt = None;
        let error = outcome.as_ref().err().copied();
        tracing::debug!(
            peer = peer.name.as_str(),
            process = process.as_str(),
            ?error,
            "node dialled"
        );
        match outcome {
            Ok(connection) => {
                peer.is_refusing = false;
                if is_dialler {
                    return self.connected(connection);
                }
            }
            Err(error) if peer.is_gone(error) && !peer.is_refusing && peer.session.is_none() => {
                peer.is_refusing = true;
                tracing::warn!(
                    peer = peer.name.as_str(),
                    process = process.as_str(),
                    "node refuses connections at its address"
                );
            }
            Err(_) => {}
        }
        peer.failed_dials = peer.failed_dials.saturating_add(1);
        self.dial(process);
    }

    /// Dials a member. Of each pair one node is the dialler. The other one only probes: a new node
    /// makes itself known to its dialler in this way, and each learns that no process is there any
    /// more, also if the two were never connected.
    fn dial(&mut self, process: &ProcessId) {
        let is_dialler = self.is_dialler(process);
        let Some(peer) = self.peers.get_mut(process) else { return };
        if peer.session.is_none() {
            peer.dial(process, !is_dialler, self.handshake.clone(), self.events.clone());
        }
    }

    /// Whether this node is the dialler of the pair.
    fn is_dialler(&self, process: &ProcessId) -> bool {
        let here = (&self.handshake.name, &self.handshake.process);
        self.peers.get(process).is_some_and(|peer| here < (&peer.name, process))
    }

    /// Forgets a process, which ends its connection.
    fn forget(&mut self, process: &ProcessId) {
        let Some(peer) = self.peers.remove(process) else { return };
        self.handshake.rejections.forgive(&peer.name);
        self.clients.write().unwrap_or_else(PoisonError::into_inner).remove(process);
        if let Some(mut session) = peer.session {
            session.close("forgotten");
        }
    }

    /// Replaces the server, with which every session has ended.
    async fn restart(&mut self) {
        tracing::error!("peer server ended; it is being replaced");
        let sessions = self.peers.values().filter_map(|peer| peer.session.as_ref());
        for label in sessions.map(|session| session.label.clone()).collect::<Vec<_>>() {
            self.ended(&label);
        }
        // Starting may take a while, in which the other nodes must not appear connected.
        self.publish();
        loop {
            match PeerServer::start(&self.handshake, self.events.clone()).await {
                Ok(server) => break self.server = server,
                Err(error) => tracing::error!(%error, "peer server cannot be started"),
            }
            sleep(SERVER_RETRY_DELAY).await;
        }
    }

    fn publish(&self) {
        let link = |(process, peer): (&ProcessId, &Peer)| {
            let is_public = peer.address.is_some() || peer.link() == LinkState::Connected;
            is_public.then(|| (process.clone(), peer.link()))
        };
        let links: BTreeMap<ProcessId, LinkState> = self.peers.iter().filter_map(link).collect();
        let connected = links.values().filter(|link| **link == LinkState::Connected).count();
        let connected = u32::try_from(connected).unwrap_or(u32::MAX);
        metrics::gauge!("abide_peers_connected").set(connected);
        self.links.send_if_modified(|published| {
            let modified = **published != links;
            if modified {
                *published = Arc::new(links);
            }
            modified
        });
    }
}

fn by_label<'a>(
    peers: &'a mut BTreeMap<ProcessId, Peer>,
    label: &str,
) -> Option<(&'a ProcessId, &'a mut Peer)> {
    peers
        .iter_mut()
        .find(|(_, peer)| peer.session.as_ref().is_some_and(|session| session.label == label))
}
