//! The ports that no command of a tool may connect to: this node's, the other nodes', and their
//! store's.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use abide_actors::exec::ProtectedPorts;
use abide_registry::cluster_view::ClusterView;
use abide_registry::member::Member;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::config::StoreUrl;

/// Keeps the ports up to date.
pub(super) struct PortGuard {
    pub(super) ports: ProtectedPorts,
    /// The ports that this node knows without the others.
    own: BTreeSet<u16>,
}

impl PortGuard {
    /// Protects the ports of this node and of its store.
    pub(super) fn new(listeners: &[SocketAddr], store: &StoreUrl) -> Self {
        let (ports, own) = (ProtectedPorts::default(), own_ports(listeners, store));
        ports.set(own.clone());
        Self { ports, own }
    }

    /// Protects the ports of all members, too, until the handle is dropped.
    pub(super) fn follow(
        self,
        mut view: watch::Receiver<Arc<ClusterView>>,
    ) -> AbortOnDropHandle<()> {
        AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                let members: BTreeSet<u16> =
                    view.borrow_and_update().all().flat_map(ports_of).collect();
                self.ports.set(&self.own | &members);
                if view.changed().await.is_err() {
                    return;
                }
            }
        }))
    }
}

fn own_ports(listeners: &[SocketAddr], store: &StoreUrl) -> BTreeSet<u16> {
    let mut ports: BTreeSet<u16> = listeners.iter().map(SocketAddr::port).collect();
    match store {
        StoreUrl::Redis(url) => ports.extend(url.ports()),
        StoreUrl::Memory | StoreUrl::Embedded(_) => {}
    }
    ports
}

/// A build that does not name its ports has at least the one that the others dial.
fn ports_of(member: &Member) -> impl Iterator<Item = u16> {
    let dialled = member.address.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    member.ports.iter().copied().chain(dialled)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_ports_of_the_listeners_and_of_the_store_are_protected() {
        let listeners = ["127.0.0.1:8080", "[::1]:9090"].map(|text| text.parse().unwrap());
        let of = |store: &str| own_ports(&listeners, &store.parse().unwrap());
        assert_eq!(of("memory"), BTreeSet::from([8080, 9090]));
        assert_eq!(of("redis://h:7000"), BTreeSet::from([7000, 8080, 9090]));
        let watched = of("redis+sentinel://a,b:5000/main");
        assert_eq!(watched, BTreeSet::from([5000, 6379, 8080, 9090, 26379]));
    }
}
