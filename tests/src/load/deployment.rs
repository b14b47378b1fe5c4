//! Nodes with a store of their own: a Redis with `--nodes`, and an embedded store without.

use std::path::Path;

use super::idle_conversations::PASSIVATE_AFTER;
use super::node::Node;
use super::node_group::NodeGroup;
use super::{Load, LoadError};

/// Nodes with their store. Dropping the value kills them.
pub(super) enum Deployment {
    Redis(NodeGroup),
    Embedded(Node),
}

impl Deployment {
    /// Starts the nodes that the arguments ask for.
    pub(super) async fn start(load: &Load, dir: &Path) -> Result<Self, LoadError> {
        if load.nodes.is_some() {
            NodeGroup::start(load, dir, PASSIVATE_AFTER, None).await.map(Self::Redis)
        } else {
            Node::start(load, dir, PASSIVATE_AFTER).await.map(Self::Embedded)
        }
    }

    /// Starts one bare node over the store that the arguments ask for.
    pub(super) async fn start_bare(load: &Load, dir: &Path) -> Result<Self, LoadError> {
        if load.nodes.is_some() {
            NodeGroup::bare(load, dir).await.map(Self::Redis)
        } else {
            let store = format!("embedded:{}", dir.display());
            Node::start_bare(load, &store).await.map(Self::Embedded)
        }
    }

    pub(super) async fn stop(self) -> Result<(), LoadError> {
        match self {
            Self::Redis(group) => group.stop().await.map(drop),
            Self::Embedded(node) => node.stop().await,
        }
    }
}
