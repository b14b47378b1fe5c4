//! What happens to the connections between nodes, as the connector learns of it.

use ractor_cluster::NodeId;
use tokio::sync::mpsc;

use super::handshake::{Authenticated, DialError};
use crate::member::ProcessId;

/// An event that concerns the connection to one process.
pub(super) enum LinkEvent {
    /// A peer dialled and has completed its handshake.
    Accepted(Authenticated),
    /// A peer that leaves dialling to this process has asked who is here.
    Probed {
        process: ProcessId,
    },
    /// This process dialled a peer.
    Dialled {
        process: ProcessId,
        outcome: Result<Authenticated, DialError>,
    },
    /// Calls can be made in a session.
    Ready {
        label: String,
        node: NodeId,
    },
    Ended {
        label: String,
    },
}

/// The queue has no bound of its own: a peer adds one attempt and one probe at a time and three
/// events for each session, and each of them needed a handshake.
pub(super) type LinkEvents = mpsc::UnboundedSender<LinkEvent>;
