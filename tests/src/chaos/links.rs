//! Proxies between the nodes and their clients, and what breaks any link.

use std::time::Duration;

use super::schedule::Broken;
use crate::client::{Addresses, Client};
use crate::cluster::Cluster;
use crate::proxy::{Proxy, Way};

/// Slower than any sane network, and faster than every deadline.
const SLOW: Duration = Duration::from_millis(300);

/// What clients dial instead of the nodes.
pub(super) struct Fronts(Vec<Proxy>);

impl Fronts {
    pub(super) fn before(cluster: &Cluster) -> Self {
        Self(cluster.clients().map(|client| Proxy::to(&client.public_address())).collect())
    }

    /// Clients that reach the nodes through these, with all that they ask noted.
    pub(super) fn clients(&self, cluster: &Cluster) -> Vec<Client> {
        let client = |(place, front): (usize, &Proxy)| {
            let client = Client::default().recorded(&cluster.history, cluster.name(place));
            let public = front.address().to_string();
            client.moved(Addresses { public, ..Addresses::default() });
            client
        };
        self.0.iter().enumerate().map(client).collect()
    }

    pub(super) fn of(&self, node: usize) -> &Proxy {
        &self.0[node]
    }

    /// A node has started again, and listens elsewhere.
    pub(super) fn follow(&self, cluster: &Cluster, node: usize) {
        self.0[node].aim(&cluster.client(node).public_address());
    }
}

/// Breaks a link; `Proxy::heal` ends it.
pub(super) async fn cut(link: &Proxy, how: Broken) {
    match how {
        Broken::Cut => link.cut(),
        Broken::Refused => {
            link.refuse().await;
            link.cut();
        }
        Broken::HalfOpen => {
            link.swallow(Way::ToTarget);
            link.swallow(Way::ToClient);
        }
        Broken::AnswersLost => link.swallow(Way::ToClient),
        Broken::Slow => {
            link.delay(Way::ToTarget, SLOW);
            link.delay(Way::ToClient, SLOW);
        }
    }
}
