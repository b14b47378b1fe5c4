//! A user's own call of a server tool, beside whatever turn runs.

use super::draft::Draft;
use crate::command::Dispatch;
use crate::event::{Data, DispatchStarted};

pub(super) fn dispatch(draft: &mut Draft, dispatch: Dispatch) {
    let Dispatch { call, tool, input, principal, revision, on_interrupt, requests } = dispatch;
    draft.push_of(
        None,
        Data::DispatchStarted(DispatchStarted {
            call_id: call,
            tool,
            input,
            principal,
            revision,
            attempt: 1,
            on_interrupt,
            requests,
        }),
    );
}
