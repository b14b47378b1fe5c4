//! Where a node listens.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::config::{AdminAddress, Config};
use crate::server::{Listener, UnixSocket};
use crate::start_error::StartError;

/// The listeners of a node.
pub(super) struct Listeners {
    pub(super) public: TcpListener,
    pub(super) admin: Listener,
    /// Where the other nodes connect; `None` without a cluster.
    pub(super) cluster: Option<TcpListener>,
}

/// Where the listeners of a node are bound.
pub(super) struct Addresses {
    pub(super) public: SocketAddr,
    pub(super) admin: AdminAddress,
    pub(super) cluster: Option<SocketAddr>,
}

impl Listeners {
    /// Binds the two APIs.
    pub(super) async fn bind(config: &Config) -> Result<Self, StartError> {
        let public = listen(config.listen).await?;
        let admin = match &config.admin_listen {
            AdminAddress::Tcp(address) => Listener::Tcp(listen(*address).await?),
            AdminAddress::Unix(path) => {
                let bound = UnixSocket::bind(path).await.map(Listener::Unix);
                bound.map_err(|error| StartError::Listen(config.admin_listen.to_string(), error))?
            }
        };
        Ok(Self { public, admin, cluster: None })
    }

    /// Binds what the other nodes connect to.
    pub(super) async fn bind_cluster(&mut self, config: &Config) -> Result<(), StartError> {
        self.cluster = Some(listen(config.cluster_listen).await?);
        Ok(())
    }

    pub(super) fn addresses(&self) -> Result<Addresses, StartError> {
        let local = |listener: &TcpListener| listener.local_addr().map_err(StartError::broken);
        Ok(Addresses {
            public: local(&self.public)?,
            admin: self.admin.address().map_err(StartError::broken)?,
            cluster: self.cluster.as_ref().map(local).transpose()?,
        })
    }
}

impl Addresses {
    /// All that are of TCP.
    pub(super) fn tcp(&self) -> Vec<SocketAddr> {
        [Some(self.public), self.admin.tcp(), self.cluster].into_iter().flatten().collect()
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|error| StartError::Listen(address.to_string(), error))
}
