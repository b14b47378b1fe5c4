//! Replaces what is written about the conversation.

use super::Rejection;
use super::draft::Draft;
use super::expiry::check_expires_at;
use crate::command::Update;
use crate::event::{EventData, Updated};

/// Journals what differs; what is asked again changes nothing.
pub(super) fn update(draft: &mut Draft, update: Update) -> Result<(), Rejection> {
    let Update { metadata, members, title, expires_at, by, identity } = update;
    let metadata = metadata.filter(|metadata| *metadata != draft.state.metadata);
    let members = members.filter(|members| *members != draft.state.participants.members);
    let title = title.filter(|title| *title != draft.state.title);
    let expires_at = expires_at.filter(|expires_at| *expires_at != draft.state.expires_at);
    check_expires_at(draft, expires_at.flatten())?;
    let changes =
        metadata.is_some() || members.is_some() || title.is_some() || expires_at.is_some();
    if changes {
        let updated = Updated { metadata, members, title, expires_at, by, identity };
        draft.push_in(None, EventData::Updated(updated));
    }
    Ok(())
}
