//! A parent abandons its child: the child's turn is cancelled, and it owes no report.

use super::Rejection;
use super::cancel::cancel;
use super::draft::Draft;
use crate::event::EventData;
use crate::parent::Parent;

/// A child that does not exist yet needs no mark: created later, it finds that its parent does not
/// wait for it, and deletes itself.
pub(super) fn abandon(draft: &mut Draft, parent: Option<&Parent>) -> Result<(), Rejection> {
    if !draft.state.is_child_for(parent) {
        return Err(Rejection::ConversationExists);
    }
    if !draft.state.abandoned {
        draft.push_in(None, EventData::Abandoned {});
        cancel(draft, None);
    }
    Ok(())
}
