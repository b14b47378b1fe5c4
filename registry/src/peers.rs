//! How nodes reach one another: a port, and the mesh of connections behind it.

mod connector;
mod event;
mod handshake;
mod hello;
mod keys;
mod legacy_keys;
mod mesh;
mod peer;
mod peer_client;
mod proof;
mod rejection_log;
mod secret;
mod server;
mod stream;

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::member::{LinkStates, ProcessId};
pub use mesh::{Mesh, MeshConfig, MeshError};
pub use peer_client::MAX_MESSAGE_BYTES;
pub use secret::{ClusterSecret, ClusterSecrets, MIN_SECRET_CHARS, ShortSecretError};

/// Why a call was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Nothing was sent.
    #[error("the node is not connected")]
    Unconnected,
    /// Nothing was sent: too much is in flight.
    #[error("too many calls to the node are in flight")]
    Full,
    /// Nothing was sent.
    #[error("the call is too large to send")]
    TooLarge,
    /// The outcome is unknown.
    #[error("the node did not answer")]
    Lost,
}

/// Carries calls to the hosts of other nodes.
#[async_trait]
pub trait Peers: Send + Sync + 'static {
    /// Calls the host of a process, and waits at most `timeout` for its answer.
    async fn call(
        &self,
        process: &ProcessId,
        call: Vec<u8>,
        timeout: Duration,
    ) -> Result<Vec<u8>, CallError>;

    /// The present states of the connections; the receiver sees every change.
    fn links(&self) -> watch::Receiver<LinkStates>;
}
