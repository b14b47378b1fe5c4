//! No client came for a client call within its grace time.

use super::Rejection;
use super::draft::Draft;
use super::settle::settle;
use crate::command::ClientMissing;
use crate::event::SuspensionKind;
use crate::message::ErrorType;
use crate::state::OpenSuspension;

pub(super) fn client_missing(draft: &mut Draft, missing: ClientMissing) -> Result<(), Rejection> {
    let open = draft.state.call(&missing.call).and_then(|call| call.open_suspension());
    let is_watched = |open: &OpenSuspension| {
        open.kind == SuspensionKind::ClientExec && open.suspension == missing.suspension
    };
    if !open.is_some_and(is_watched) {
        return Err(Rejection::Stale);
    }
    draft.push_error(missing.call, "no client connected", ErrorType::NoClient);
    settle(draft);
    Ok(())
}
