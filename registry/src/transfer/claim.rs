//! The claim on a conversation that is about to be there.

use abide_actors::journal::{Claim, Holder, StoreError};
use abide_conversation::{ConversationId, Scoped};

use super::error::ImportError;
use crate::cluster_client::ClusterClient;
use crate::store::Store;

/// How often a claim is tried: each time a dead holder may have been before this import.
const MAX_CLAIMS: usize = 3;

/// Claims a conversation that is not there. `cluster` knows which holders are dead; `None` where no
/// node is.
pub(super) async fn claim_whole(
    store: &dyn Store,
    id: &Scoped<ConversationId>,
    me: &Holder,
    cluster: Option<&ClusterClient>,
) -> Result<Claim, ImportError> {
    // An actor of this node that found nothing under the id is fenced.
    let mut replaced = me.clone();
    for _ in 0..MAX_CLAIMS {
        let claim = store.claim(id, me, Some(&replaced)).await.map_err(ImportError::Store)?;
        if claim.holder == *me {
            return Ok(claim);
        }
        if store.summary(id).await.map_err(ImportError::Store)?.is_some() {
            return Err(ImportError::Exists);
        }
        // An import may have died before it wrote anything.
        let is_dead = is_dead(&claim.holder, me, cluster).await;
        if !is_dead.map_err(ImportError::Store)? {
            return Err(ImportError::TakenUp);
        }
        replaced = claim.holder;
    }
    Err(ImportError::TakenUp)
}

/// Whether a holder is dead. Of two processes with one name one is, or both may fence each other.
async fn is_dead(
    holder: &Holder,
    me: &Holder,
    cluster: Option<&ClusterClient>,
) -> Result<bool, StoreError> {
    match cluster {
        _ if holder.node == me.node => Ok(true),
        Some(cluster) => cluster.is_dead(holder).await,
        None => Ok(false),
    }
}
