//! No page came for a client call.

use super::Rejection;
use super::draft::Draft;
use super::settle::settle;
use crate::command::PageMissing;
use crate::message::ErrorType;

pub(super) fn page_missing(draft: &mut Draft, missing: PageMissing) -> Result<(), Rejection> {
    let waiting = draft.state.call(&missing.call).and_then(|call| call.waiting());
    if waiting.map(|waiting| waiting.suspension) != Some(missing.suspension) {
        return Err(Rejection::Stale);
    }
    draft.error(missing.call, "no client connected", ErrorType::NoClient);
    settle(draft);
    Ok(())
}
