//! Which blobs the events of a commit name, and whose uploads that uses up.

use std::collections::{BTreeMap, BTreeSet};

use abide_conversation::BlobId;
use abide_conversation::event::EventData;

use super::BlobHold;
use crate::journal::{Commit, StoreError};
use crate::named_blobs::named_blobs;

/// Blobs that are named, each with the holds that this ends: those of the same holders that end no
/// later. Anybody else who has uploaded the same bytes has yet to name them.
pub type NamedBlobs = BTreeMap<BlobId, BTreeSet<BlobHold>>;

/// The blobs that the events of a commit may name. An event is that of whoever sent it, and of the
/// conversation's owner if nobody did. What is uploaded after an event is for a later one, so that a
/// fork, which copies events, uses nothing up.
pub fn blobs_of_commit(commit: &Commit) -> Result<NamedBlobs, StoreError> {
    let owner = commit.summary.participants.owner.as_deref();
    let mut blobs = NamedBlobs::new();
    for (event, json) in commit.events.iter().zip(commit.event_json()?.iter()) {
        for blob in named_blobs(json) {
            let used_up = blobs.entry(blob).or_default();
            let sender = sender(&event.data).or(owner);
            used_up.extend(sender.map(|sender| BlobHold::used_up_by(sender, event.at)));
        }
    }
    Ok(blobs)
}

/// The subject who sent what the event tells of; `None` if the conversation itself did it.
fn sender(data: &EventData) -> Option<&str> {
    let principal = match data {
        EventData::UserMsg(it) => &it.principal,
        EventData::MessageScheduled(it) => &it.user_msg.principal,
        EventData::Steered(it) => &it.principal,
        EventData::DispatchStarted(it) => &it.principal,
        EventData::DispatchFinished(it) => &it.principal,
        EventData::Resolution(it) => &it.by,
        EventData::Updated(it) => &it.by,
        EventData::Operated(it) => &it.by,
        EventData::SuspensionExtended(it) => &it.by,
        EventData::TurnWithdrawn(it) => &it.by,
        EventData::Rewound(it) => &it.by,
        EventData::ScheduleEnded(it) => it.by.as_ref()?,
        EventData::StateChanged(it) => it.by.as_ref()?,
        EventData::Voted(it) => return Some(&it.vote.by.identity.acting().sub),
        EventData::Created(_)
        | EventData::TurnStarted(_)
        | EventData::AssistantMsg(_)
        | EventData::ToolCall(_)
        | EventData::Suspension(_)
        | EventData::ToolStarted(_)
        | EventData::InputRequired(_)
        | EventData::ToolResult(_)
        | EventData::RepairRequested(_)
        | EventData::ContextAdded(_)
        | EventData::MessageRefused(_)
        | EventData::Forked(_)
        | EventData::ContextReduced(_)
        | EventData::Summarized(_)
        | EventData::SummaryFailed(_)
        | EventData::TurnEnded(_)
        | EventData::PhaseChanged(_)
        | EventData::TodosChanged(_)
        | EventData::WorkspaceOpened(_)
        | EventData::ChildStarted(_)
        | EventData::ChildEnded(_)
        | EventData::ChildReleased(_)
        | EventData::ParentNotified(_)
        | EventData::Abandoned {}
        | EventData::DecisionRemembered(_)
        | EventData::DecisionPublished(_)
        | EventData::DecisionRevoked(_)
        | EventData::ToolQueued(_)
        | EventData::ToolLeased(_)
        | EventData::CallbackAwaited(_)
        | EventData::SuspensionExpiring(_)
        | EventData::SuspensionEscalated(_)
        | EventData::ToolAttemptFailed(_)
        | EventData::Unknown(_) => return None,
    };
    Some(principal.as_str())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use abide_conversation::Event;
    use abide_conversation::Timestamp;
    use abide_conversation::identity::Participants;
    use serde_json::{Value, json};

    use super::*;
    use crate::blobs::BlobHolder;
    use crate::journal::ConversationSummary;

    fn blob(digit: &str) -> BlobId {
        BlobId::new(format!("blob_{}", digit.repeat(64)))
    }

    fn moment(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    /// An event of the time N seconds after the first.
    fn event(second: i64, data: Value) -> Event {
        let mut event = json!({"seq": 2, "at": moment(second)});
        event.as_object_mut().unwrap().extend(data.as_object().unwrap().clone());
        serde_json::from_value(event).unwrap()
    }

    fn message(by: &str, blob: &BlobId) -> Value {
        json!({"type": "user_msg", "data": {"principal": by, "message":
            {"id": "m", "role": "user", "content": [{"type": "text", "text": blob}]}}})
    }

    fn named(events: Vec<Event>, owner: Option<&str>) -> NamedBlobs {
        let summary = json!({"agent": "a", "state": "idle", "last_seq": 2,
            "created_at": moment(0), "metadata": {}, "alarm": null, "active": false});
        let mut summary: ConversationSummary = serde_json::from_value(summary).unwrap();
        summary.participants =
            Participants { owner: owner.map(str::to_owned), ..summary.participants };
        blobs_of_commit(&Commit::new(Arc::from(events), summary)).unwrap()
    }

    fn is_used_up(named: &NamedBlobs, blob: &BlobId, by: &str, began: i64) -> bool {
        let hold = BlobHold::new(BlobHolder::uploader(by), moment(began));
        named[blob].iter().any(|it| it.ends(&hold))
    }

    #[test]
    fn a_message_uses_up_what_its_sender_has_uploaded_and_nobody_else() {
        let (one, two) = (blob("1"), blob("2"));
        let events = vec![event(9, message("ada", &one)), event(9, message("bob", &two))];
        let named = named(events, Some("eve"));
        assert!(is_used_up(&named, &one, "ada", 5) && is_used_up(&named, &two, "bob", 5));
        for (blob, other) in [(&one, "bob"), (&one, "eve"), (&two, "ada")] {
            assert!(!is_used_up(&named, blob, other, 5), "{other}");
        }
    }

    #[test]
    fn what_is_uploaded_after_a_message_is_not_used_up_by_a_copy_of_it() {
        let one = blob("1");
        let named = named(vec![event(0, message("ada", &one))], None);
        assert!(is_used_up(&named, &one, "ada", 0));
        assert!(!is_used_up(&named, &one, "ada", 3_600));
    }

    #[test]
    fn what_the_conversation_names_itself_is_its_owners() {
        let one = blob("1");
        let result = json!({"type": "repair_requested", "data": {"reason": one}});
        let owned = named(vec![event(9, result.clone())], Some("eve"));
        assert!(is_used_up(&owned, &one, "eve", 5) && !is_used_up(&owned, &one, "ada", 5));
        assert_eq!(named(vec![event(9, result)], None), NamedBlobs::from([(one, [].into())]));
    }
}
