//! A conversation comes into being.

use super::Rejection;
use super::draft::Draft;
use crate::command::Create;
use crate::event::{Created, Data};

pub(super) fn create(draft: &mut Draft, create: Create) -> Result<(), Rejection> {
    if draft.state.exists() {
        return Err(Rejection::ConversationExists);
    }
    let Create { agent, assigns, metadata, tools, parent } = create;
    let parent = parent.map(|parent| *parent);
    draft.push_of(None, Data::Created(Created { agent, assigns, metadata, tools, parent }));
    Ok(())
}
