//! The parent wants nothing of its child any more: what runs is cancelled, its wish void.

use super::cancel::cancel;
use super::draft::Draft;
use super::{Rejection, create};
use crate::command::Create;
use crate::event::EventData;

/// Also marks a child that does not exist yet, since the wish for it may still be under way.
pub(super) fn abandon(draft: &mut Draft, create: Create) -> Result<(), Rejection> {
    if !draft.state.exists() {
        create::create(draft, create)?;
    } else if !draft.state.is_child_for(create.parent.as_deref()) {
        return Err(Rejection::ConversationExists);
    }
    if !draft.state.abandoned {
        draft.push_of(None, EventData::Abandoned {});
        cancel(draft, None);
    }
    Ok(())
}
