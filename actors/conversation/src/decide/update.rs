//! Replaces what is written about the conversation.

use super::draft::Draft;
use crate::command::Update;
use crate::event::{EventData, Updated};

/// Journals what differs; what is asked again changes nothing.
pub(super) fn update(draft: &mut Draft, update: Update) {
    let Update { metadata, members, title, by, identity } = update;
    let metadata = metadata.filter(|metadata| *metadata != draft.state.metadata);
    let members = members.filter(|members| *members != draft.state.participants.members);
    let title = title.filter(|title| *title != draft.state.title);
    if metadata.is_some() || members.is_some() || title.is_some() {
        let updated = Updated { metadata, members, title, by, identity };
        draft.push_in(None, EventData::Updated(updated));
    }
}
