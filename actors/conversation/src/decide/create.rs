//! Creates a conversation.

use super::Rejection;
use super::draft::Draft;
use crate::command::Create;
use crate::event::{Created, EventData};
use crate::identity::Participants;

pub(super) fn create(draft: &mut Draft, create: Create) -> Result<(), Rejection> {
    if draft.state.exists() {
        return Err(Rejection::ConversationExists);
    }
    let Create { agent, assigns, metadata, tools, parent, fork, participants, title } = create;
    let Participants { owner, members } = participants;
    let parent = parent.map(|parent| *parent);
    let created = Created { agent, assigns, metadata, tools, parent, fork, owner, members, title };
    draft.push_in(None, EventData::Created(created));
    Ok(())
}
