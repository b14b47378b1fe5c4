//! Waits until no page was connected for the grace time of a client call.

use std::time::Duration;

use abide_conversation::command::ClientMissing;
use abide_conversation::{Action, CallId};

use super::ActivityContext;

pub(super) async fn page(
    around: &ActivityContext,
    call: &CallId,
    suspension: u32,
    grace_ms: u64,
) -> Action {
    let mut pages = around.deps.live.pages(&around.id);
    let grace = Duration::from_millis(grace_ms);
    loop {
        let connected = *pages.borrow_and_update() > 0;
        let changed = pages.changed();
        let gone = match connected {
            true => changed.await.is_err(),
            false => tokio::time::timeout(grace, changed).await.is_err(),
        };
        if gone {
            return Action::ClientMissing(ClientMissing { call: call.clone(), suspension });
        }
    }
}
