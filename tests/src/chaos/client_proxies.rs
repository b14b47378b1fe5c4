//! Proxies between the nodes and their clients, and the faults of links.

use std::time::Duration;

use super::fault::LinkFault;
use crate::client::{Addresses, Client};
use crate::cluster::Cluster;
use crate::proxy::{Direction, Proxy};

/// The delay of a slow link: slower than any sane network, and faster than every deadline.
const SLOW_LINK_DELAY: Duration = Duration::from_millis(300);

/// The proxies that clients dial instead of the nodes.
pub(super) struct ClientProxies(Vec<Proxy>);

impl ClientProxies {
    pub(super) fn before(cluster: &Cluster) -> Self {
        Self(cluster.clients().map(|client| Proxy::to(&client.public_address())).collect())
    }

    /// Clients that reach the nodes through the proxies, with their requests recorded.
    pub(super) fn clients(&self, cluster: &Cluster) -> Vec<Client> {
        let client = |(index, front): (usize, &Proxy)| {
            let client = Client::default().with_history(&cluster.history, cluster.name(index));
            let public = front.address().to_string();
            client.move_to(Addresses { public, ..Addresses::default() });
            client
        };
        self.0.iter().enumerate().map(client).collect()
    }

    pub(super) fn of(&self, node: usize) -> &Proxy {
        &self.0[node]
    }

    /// Follows a restarted node to its new address.
    pub(super) fn follow(&self, cluster: &Cluster, node: usize) {
        self.0[node].aim(&cluster.client(node).public_address());
    }
}

/// Causes a fault on a link; `Proxy::heal` ends it.
pub(super) async fn cut(link: &Proxy, how: LinkFault) {
    match how {
        LinkFault::Cut => link.cut(),
        LinkFault::Refused => {
            link.refuse().await;
            link.cut();
        }
        LinkFault::HalfOpen => {
            link.swallow(Direction::ToTarget);
            link.swallow(Direction::ToClient);
        }
        LinkFault::AnswersLost => link.swallow(Direction::ToClient),
        LinkFault::Slow => {
            link.delay(Direction::ToTarget, SLOW_LINK_DELAY);
            link.delay(Direction::ToClient, SLOW_LINK_DELAY);
        }
    }
}
