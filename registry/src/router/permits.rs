//! Tells the node that gives a tool's permits what runs here.

use abide_actors::permit_sync::PermitSync;
use tokio::time::Instant;

use super::ConversationRouter;
use crate::member::ProcessId;
use crate::permits::giver;
use crate::protocol::SyncPermits;

impl ConversationRouter {
    /// How many more calls may begin here; `None` if the node that gives permits cannot be asked.
    pub(super) async fn sync_permits_of_key(&self, sync: PermitSync) -> Option<u32> {
        let view = self.cluster.view();
        let giver = giver(&view, &sync.key)?;
        if giver.holder == view.me {
            return self.give_permits(&self.cluster.process().clone(), &sync);
        }
        match self.cluster.call(giver, SyncPermits { sync }).await {
            Ok(granted) => granted,
            Err(error) => {
                tracing::debug!(node = %giver.holder.node, %error, "permits not asked for");
                None
            }
        }
    }

    /// Follows the members, so that a change that was long ago is not taken for a new one.
    pub(crate) async fn observe_members(self) {
        let mut view = self.cluster.watch();
        loop {
            let seen = view.borrow_and_update().clone();
            self.permits.observe(&seen, Instant::now());
            if view.changed().await.is_err() {
                return;
            }
        }
    }

    /// Takes the message of a process about its runs, if this node gives the permits.
    pub(crate) fn give_permits(&self, from: &ProcessId, sync: &PermitSync) -> Option<u32> {
        self.permits.sync(&self.cluster.view(), from, sync, Instant::now())
    }
}
