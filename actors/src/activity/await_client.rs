//! Waits until no client was connected for the grace time of a client call.

use std::time::Duration;

use abide_conversation::command::ClientMissing;
use abide_conversation::{Action, CallId};

use super::ActivityContext;

pub(super) async fn await_client(
    ctx: &ActivityContext,
    call: &CallId,
    suspension: u32,
    grace_ms: u64,
) -> Action {
    let mut listeners = ctx.services.live.listeners(&ctx.id);
    let grace = Duration::from_millis(grace_ms);
    loop {
        let is_connected = *listeners.borrow_and_update() > 0;
        let changed = listeners.changed();
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
