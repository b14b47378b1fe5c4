//! A parent abandons its child: the child's turn is cancelled, and it owes no report.

use super::cancel::cancel;
use super::draft::Draft;
use super::{Rejection, create};
use crate::command::Create;
use crate::event::EventData;

/// Creates a child that does not exist yet, because the message that spawns it may still arrive.
pub(super) fn abandon(draft: &mut Draft, create: Create) -> Result<(), Rejection> {
    if !draft.state.exists() {
        create::create(draft, create)?;
    } else if !draft.state.is_child_for(create.parent.as_deref()) {
        return Err(Rejection::ConversationExists);
    }
    if !draft.state.abandoned {
        draft.push_in(None, EventData::Abandoned {});
        cancel(draft, None);
    }
    Ok(())
}
