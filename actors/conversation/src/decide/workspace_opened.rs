//! The workspace is about to be used for the first time.

use super::Rejection;
use super::draft::Draft;
use crate::event::{EventData, WorkspaceOpened};

/// From here on the conversation's files must be where they are now, whatever becomes of the call
/// that makes the first of them. The first storage of a root holds for good.
pub(super) fn workspace_opened(
    draft: &mut Draft,
    root: String,
    storage: String,
) -> Result<(), Rejection> {
    if draft.state.storages.contains_key(&root) {
        return Err(Rejection::Stale);
    }
    draft.push_of(None, EventData::WorkspaceOpened(WorkspaceOpened { root, storage }));
    Ok(())
}
