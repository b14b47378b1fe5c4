//! How nodes reach one another, as a port, and the cluster behind it.

mod connector;
mod handshake;
mod hello;
mod keys;
mod mesh;
mod peer;
mod peer_client;
mod rejection_log;
mod server;
mod stream;

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::member::LinkStates;
pub use mesh::{Mesh, MeshConfig, StartError};
pub use peer_client::MAX_MESSAGE_BYTES;

/// Why a call was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Nothing was sent.
    #[error("the node is not connected")]
    Unconnected,
    /// Nothing was sent: too much is under way to it.
    #[error("too many calls to the node are under way")]
    Full,
    /// Nothing was sent.
    #[error("the call is too large to send")]
    TooLarge,
    /// What became of it is unknown.
    #[error("the node did not answer")]
    Lost,
}

/// Carries calls to the hosts of other nodes.
#[async_trait]
pub trait Peers: Send + Sync + 'static {
    /// Asks the host of a process, and waits for its answer for at most `within`.
    async fn call(
        &self,
        process: &str,
        call: Vec<u8>,
        within: Duration,
    ) -> Result<Vec<u8>, CallError>;

    /// The present links; the receiver sees every change.
    fn links(&self) -> watch::Receiver<LinkStates>;
}
