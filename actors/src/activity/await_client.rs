//! Waits until no client was connected for the grace time of a client call. A child's client may be
//! connected to the root, too.

use std::time::Duration;

use abide_conversation::command::ClientMissing;
use abide_conversation::{Action, CallId};
use tokio::sync::watch;

use super::ActivityContext;

pub(super) async fn await_client(
    ctx: &ActivityContext,
    call: &CallId,
    suspension: u32,
    grace_ms: u64,
) -> Action {
    let live = &ctx.services.live;
    let mut own = live.listeners(&ctx.id);
    let root = ctx.state.parent.as_ref().map(|parent| ctx.id.sibling(&parent.root_conversation_id));
    let mut root = root.map(|root| live.listeners(&root));
    let grace = Duration::from_millis(grace_ms);
    loop {
        let at_root = root.as_mut().map_or(0, |root| *root.borrow_and_update());
        let is_connected = *own.borrow_and_update() > 0 || at_root > 0;
        let changed = changed(&mut own, root.as_mut());
        let is_gone = if is_connected {
            changed.await.is_err()
        } else {
            tokio::time::timeout(grace, changed).await.is_err()
        };
        if is_gone {
            return Action::ClientMissing(ClientMissing { call: call.clone(), suspension });
        }
    }
}

/// Waits for another number of listeners of the conversation, or of its root.
async fn changed(
    own: &mut watch::Receiver<usize>,
    root: Option<&mut watch::Receiver<usize>>,
) -> Result<(), watch::error::RecvError> {
    match root {
        Some(root) => {
            tokio::select! { at_own = own.changed() => at_own, at_root = root.changed() => at_root }
        }
        None => own.changed().await,
    }
}
