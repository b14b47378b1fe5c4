//! Creates a conversation.

use super::Rejection;
use super::draft::Draft;
use super::expiry::check_expires_at;
use crate::command::Create;
use crate::event::{Created, EventData};
use crate::identity::Participants;

pub(super) fn create(draft: &mut Draft, create: Create) -> Result<(), Rejection> {
    if draft.state.exists() {
        return Err(Rejection::ConversationExists);
    }
    check_expires_at(draft, create.expires_at)?;
    let Create { agent, assigns, metadata, tools, parent, fork, participants, title, expires_at } =
        create;
    let Participants { owner, members } = participants;
    let parent = parent.map(|parent| *parent);
    let created = Created {
        agent,
        assigns,
        metadata,
        tools,
        parent,
        fork,
        owner,
        members,
        title,
        expires_at,
    };
    draft.push_in(None, EventData::Created(created));
    Ok(())
}
