//! A workspace is about to be used for the first time.

use super::Rejection;
use super::draft::Draft;
use crate::event::{EventData, WorkspaceOpened};

/// Binds a workspace root to its storage. From then on the conversation's files must be there, even
/// if the call that is about to create the first of them fails. The first storage of a root is
/// final.
pub(super) fn workspace_opened(
    draft: &mut Draft,
    root: String,
    storage: String,
) -> Result<(), Rejection> {
    if draft.state.storages.contains_key(&root) {
        return Err(Rejection::Stale);
    }
    draft.push_in(None, EventData::WorkspaceOpened(WorkspaceOpened { root, storage }));
    Ok(())
}
