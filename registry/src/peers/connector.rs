//! Keeps a connection to every member: dials, takes what the door lets through, tells who is there.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ractor_cluster::NodeId;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::handshake::{Authenticated, Handshake, Missed};
use super::peer::{Peer, Session};
use super::peer_client::PeerClient;
use super::server::{self, PeerServer};
use super::stream::{Keepalive, Stream};
use crate::member::{LinkState, LinkStates, Member};

/// Between two attempts to replace a server that has ended, most likely for want of descriptors.
const BREATH: Duration = Duration::from_secs(1);

/// Something that concerns a link.
pub(super) enum LinkEvent {
    /// A peer dialled and is through the door.
    Opened(Authenticated),
    /// This process dialled.
    Tried {
        process: String,
        outcome: Result<Authenticated, Missed>,
    },
    Ready {
        label: String,
        node: NodeId,
    },
    Ended {
        label: String,
    },
}

/// Has no bound of its own: a peer adds one attempt at a time and three events a session, and each
/// of them had to get through the door.
pub(super) type LinkEvents = mpsc::UnboundedSender<LinkEvent>;

/// The ways to those that are connected, by process.
pub(super) type PeerClients = Arc<RwLock<HashMap<String, Arc<PeerClient>>>>;

/// The one task that knows of all links.
pub(super) struct Connector {
    pub(super) door: Arc<Handshake>,
    pub(super) server: PeerServer,
    pub(super) happened: LinkEvents,
    pub(super) ways: PeerClients,
    pub(super) links: watch::Sender<LinkStates>,
    /// By process.
    pub(super) peers: BTreeMap<String, Peer>,
    /// Sessions opened so far; makes their labels differ.
    pub(super) sessions: u64,
}

impl Connector {
    pub(super) async fn run(
        mut self,
        mut happenings: mpsc::UnboundedReceiver<LinkEvent>,
        mut members: watch::Receiver<Vec<Member>>,
    ) {
        members.mark_changed();
        let mut told = true;
        loop {
            tokio::select! {
                Some(happening) = happenings.recv() => self.take(happening),
                changed = members.changed(), if told => {
                    told = changed.is_ok();
                    let members = members.borrow_and_update().clone();
                    self.look(&members);
                }
                _ = &mut self.server.ended => self.restart().await,
            }
            self.publish();
        }
    }

    /// Dials the members that are new, and forgets who is none any more.
    fn look(&mut self, members: &[Member]) {
        let others = || members.iter().filter(|member| member.process != self.door.process);
        let gone: Vec<String> = self
            .peers
            .iter()
            .filter(|(process, peer)| {
                peer.address.is_some() && !others().any(|other| other.process == **process)
            })
            .map(|(process, _)| process.clone())
            .collect();
        let others: Vec<Member> = others().cloned().collect();
        for process in gone {
            self.forget(&process);
        }
        for Member { holder, process, address, .. } in others {
            let peer = self.peers.entry(process.clone()).or_insert_with(|| Peer::new(&holder.node));
            peer.address = Some(address);
            if peer.session.is_none() && peer.attempt.is_none() {
                self.attempt(&process);
            }
        }
    }

    fn take(&mut self, happening: LinkEvent) {
        match happening {
            LinkEvent::Opened(opened) => {
                let peer = self.peers.entry(opened.process.clone());
                peer.or_insert_with(|| Peer::new(&opened.name));
                self.opened(opened);
            }
            LinkEvent::Tried { process, outcome } => self.tried(&process, outcome),
            LinkEvent::Ready { label, node } => self.ready(&label, node),
            LinkEvent::Ended { label } => self.ended(&label),
        }
    }

    /// A connection takes the place of the one before: whoever dials again knows that it has ended.
    fn opened(&mut self, opened: Authenticated) {
        let Some(peer) = self.peers.get_mut(&opened.process) else { return };
        peer.attempt = None;
        let Some(session) = &mut peer.session else { return self.begin(opened) };
        // ractor_cluster would choose between two by lot.
        session.close("replaced");
        peer.next = Some(opened);
    }

    fn begin(&mut self, opened: Authenticated) {
        let Some(peer) = self.peers.get_mut(&opened.process) else { return };
        self.sessions += 1;
        let label = format!("{}#{}", opened.process, self.sessions);
        let (pulse, close) = (Keepalive::new(), CancellationToken::new());
        let stream = Stream::new(opened.stream, label.clone(), pulse.clone(), close.clone());
        peer.session = Some(Session::new(label, pulse, close, self.happened.clone()));
        self.server.open(stream, opened.dialled);
    }

    fn ready(&mut self, label: &str, node: NodeId) {
        let Some((process, peer)) = by_label(&mut self.peers, label) else { return };
        let Some(session) = &mut peer.session else { return };
        let Some(host) = server::host(node) else { return session.close("hostless") };
        session.ready();
        let way = PeerClient::new(host, session.pulse.clone());
        (peer.met, peer.refused) = (true, false);
        tracing::info!(peer = peer.name, process, "a node is connected");
        self.door.refusals.forgive(&peer.name);
        let mut ways = self.ways.write().unwrap_or_else(PoisonError::into_inner);
        ways.insert(process.clone(), Arc::new(way));
    }

    fn ended(&mut self, label: &str) {
        let Some((process, peer)) = by_label(&mut self.peers, label) else { return };
        let (process, next) = (process.clone(), peer.next.take());
        let Some(session) = peer.session.take() else { return };
        peer.tries = if session.was_steady() { 0 } else { peer.tries.saturating_add(1) };
        if session.was_ready() {
            let end = session.pulse.end();
            tracing::info!(peer = peer.name, process, end, "a node is disconnected");
        }
        let member = peer.address.is_some();
        self.ways.write().unwrap_or_else(PoisonError::into_inner).remove(&process);
        match next {
            Some(next) => self.begin(next),
            None if member => self.attempt(&process),
            None => self.forget(&process),
        }
    }

    fn tried(&mut self, process: &str, outcome: Result<Authenticated, Missed>) {
        let dials = self.dials(process);
        let Some(peer) = self.peers.get_mut(process) else { return };
        peer.attempt = None;
        let missed = outcome.as_ref().err();
        tracing::debug!(peer = peer.name, process, ?missed, "a node was dialled");
        match outcome {
            Ok(opened) if dials => return self.opened(opened),
            Err(Missed::Nobody) if peer.met && !peer.refused && peer.session.is_none() => {
                peer.refused = true;
                tracing::warn!(peer = peer.name, process, "nobody is where a node was connected");
            }
            Ok(_) | Err(_) => {}
        }
        peer.tries = peer.tries.saturating_add(1);
        self.attempt(process);
    }

    /// Dials a member; the one that is dialled only asks, and only for one that it knew: it wants
    /// to hear that nobody is there any more.
    fn attempt(&mut self, process: &str) {
        let dials = self.dials(process);
        let Some(peer) = self.peers.get_mut(process) else { return };
        if peer.session.is_none() && (dials || peer.met) {
            peer.attempt(process, !dials, self.door.clone(), self.happened.clone());
        }
    }

    /// Of each pair, one dials.
    fn dials(&self, process: &str) -> bool {
        let here = (self.door.name.as_str(), self.door.process.as_str());
        self.peers.get(process).is_some_and(|peer| here < (peer.name.as_str(), process))
    }

    /// Its connection, if there is one, ends.
    fn forget(&mut self, process: &str) {
        let Some(peer) = self.peers.remove(process) else { return };
        self.door.refusals.forgive(&peer.name);
        self.ways.write().unwrap_or_else(PoisonError::into_inner).remove(process);
        if let Some(mut session) = peer.session {
            session.close("forgotten");
        }
    }

    /// Every session has ended with the server.
    async fn restart(&mut self) {
        tracing::error!("the server of the connections between nodes ended; it is replaced");
        let sessions = self.peers.values().filter_map(|peer| peer.session.as_ref());
        for label in sessions.map(|session| session.label.clone()).collect::<Vec<_>>() {
            self.ended(&label);
        }
        // It may take a while; nobody is to think meanwhile that the others can be reached.
        self.publish();
        loop {
            match PeerServer::start(&self.door, self.happened.clone()).await {
                Ok(server) => break self.server = server,
                Err(error) => tracing::error!(%error, "it cannot be replaced yet"),
            }
            sleep(BREATH).await;
        }
    }

    fn publish(&self) {
        let link = |(process, peer): (&String, &Peer)| {
            let shown = peer.address.is_some() || peer.link() == LinkState::Connected;
            shown.then(|| (process.clone(), peer.link()))
        };
        let links: BTreeMap<String, LinkState> = self.peers.iter().filter_map(link).collect();
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
    peers: &'a mut BTreeMap<String, Peer>,
    label: &str,
) -> Option<(&'a String, &'a mut Peer)> {
    peers
        .iter_mut()
        .find(|(_, peer)| peer.session.as_ref().is_some_and(|session| session.label == label))
}
