//! No page came for a client call.

use super::Rejection;
use super::draft::Draft;
use super::settle::settle;
use crate::command::ClientMissing;
use crate::event::SuspensionKind;
use crate::message::ErrorType;
use crate::state::OpenSuspension;

pub(super) fn page_missing(draft: &mut Draft, missing: ClientMissing) -> Result<(), Rejection> {
    let waiting = draft.state.call(&missing.call).and_then(|call| call.waiting());
    let meant = |waiting: &&OpenSuspension| {
        waiting.kind == SuspensionKind::ClientExec && waiting.suspension == missing.suspension
    };
    if waiting.filter(meant).is_none() {
        return Err(Rejection::Stale);
    }
    draft.error(missing.call, "no client connected", ErrorType::NoClient);
    settle(draft);
    Ok(())
}
