//! The limits of a journal that another place wrote, event by event.

use super::{LimitError, MAX_STEPS, check_map, check_members, check_owner, check_title};
use crate::Timestamp;
use crate::decide::{
    MAX_RUNNING_DISPATCHES, MAX_SCHEDULED_MESSAGES, MAX_WAITING_MESSAGES, check_end,
};
use crate::event::{Created, Event, EventData, StateChanged, Updated};
use crate::ids::ConversationId;
use crate::key_value::changes_of;
use crate::parent::{MAX_CHILD_DEPTH, Parent};
use crate::state::State;

/// Refuses an event of the conversation `id` that has what no request and no node can have written.
/// The state is that before the event.
pub fn check_event(id: &ConversationId, state: &State, event: &Event) -> Result<(), LimitError> {
    let checked = match &event.data {
        EventData::Created(created) => check_created(id, created, event.at),
        EventData::Updated(updated) => check_updated(state, updated, event.at),
        EventData::StateChanged(changed) => check_changes(state, changed),
        EventData::TurnStarted(started) if started.max_steps > MAX_STEPS => {
            Err(LimitError::new("max_steps", format!("must be at most {MAX_STEPS}")))
        }
        // A message that interrupts stands behind those that wait, and begins at once.
        EventData::UserMsg(_) if state.queue.len() > MAX_WAITING_MESSAGES => {
            Err(LimitError::new("message", format!("{MAX_WAITING_MESSAGES} messages wait already")))
        }
        EventData::MessageScheduled(_) if state.scheduled.count() >= MAX_SCHEDULED_MESSAGES => {
            let rule = format!("{MAX_SCHEDULED_MESSAGES} messages are scheduled already");
            Err(LimitError::new("scheduled_id", rule))
        }
        EventData::DispatchStarted(_) if state.dispatches.len() >= MAX_RUNNING_DISPATCHES => Err(
            LimitError::new("call_id", format!("{MAX_RUNNING_DISPATCHES} dispatches run already")),
        ),
        _ => Ok(()),
    };
    checked.map_err(|error| error.within("data"))
}

fn check_created(id: &ConversationId, created: &Created, at: Timestamp) -> Result<(), LimitError> {
    created.owner.as_deref().map_or(Ok(()), check_owner)?;
    check_members(&created.members)?;
    check_title(created.title.as_deref())?;
    check_map("metadata", &created.metadata)?;
    let is_child = created.parent.is_some();
    if !is_child && created.fork.is_none() {
        check_map("assigns", &created.assigns)?;
    }
    check_expiry(is_child, at, created.expires_at)?;
    created.parent.as_ref().map_or(Ok(()), |parent| check_parent(id, parent))
}

fn check_updated(state: &State, updated: &Updated, at: Timestamp) -> Result<(), LimitError> {
    check_members(updated.members.as_deref().unwrap_or_default())?;
    check_title(updated.title.as_ref().and_then(Option::as_deref))?;
    updated.metadata.as_ref().map_or(Ok(()), |metadata| check_map("metadata", metadata))?;
    check_expiry(state.parent.is_some(), at, updated.expires_at.flatten())
}

fn check_expiry(
    is_child: bool,
    at: Timestamp,
    expires_at: Option<Timestamp>,
) -> Result<(), LimitError> {
    check_end(is_child, at, expires_at).map_err(|rule| LimitError::new("expires_at", rule))
}

fn check_changes(state: &State, changed: &StateChanged) -> Result<(), LimitError> {
    let changes = changes_of(&state.key_values, changed.changes.clone());
    changes.map(drop).map_err(|refusal| LimitError::new("changes", refusal.to_string()))
}

/// No conversation is below itself.
fn check_parent(id: &ConversationId, parent: &Parent) -> Result<(), LimitError> {
    if !(1..=MAX_CHILD_DEPTH).contains(&parent.depth) {
        return Err(LimitError::new("parent.depth", format!("must be 1 to {MAX_CHILD_DEPTH}")));
    }
    let Parent { conversation_id, root_conversation_id, .. } = parent;
    for (field, above) in [
        ("parent.conversation_id", conversation_id),
        ("parent.root_conversation_id", root_conversation_id),
    ] {
        if above == id || ConversationId::parse(above.as_str()).is_none() {
            return Err(LimitError::new(field, "must be the id of another conversation"));
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{from_json, replay};

    fn event(seq: u64, kind: &str, turn: Option<String>, data: Value) -> Event {
        let mut event = json!({"seq": seq, "at": "2026-11-27T08:00:00Z", "type": kind});
        if let Some(turn) = turn {
            event["turn_id"] = json!(turn);
        }
        event["data"] = data;
        from_json(event.to_string().as_bytes()).unwrap()
    }

    fn created() -> Event {
        event(1, "created", None, json!({"agent": "a"}))
    }

    fn message(seq: u64) -> Event {
        let text = json!([{"type": "text", "text": "hello"}]);
        let message = json!({"id": format!("m{seq}"), "role": "user", "content": text});
        let data = json!({"message": message, "principal": "ann"});
        event(seq, "user_msg", Some(format!("t{seq}")), data)
    }

    fn scheduled(seq: u64) -> Event {
        let message = serde_json::to_value(message(seq)).unwrap()["data"].take();
        let data = json!({"scheduled_id": format!("s{seq}"), "deliver_at": "2026-11-28T08:00:00Z",
            "turn": format!("t{seq}"), "if_busy": "queue", "user_msg": message});
        event(seq, "message_scheduled", None, data)
    }

    /// How many such events are accepted one after the other.
    fn accepted(make: fn(u64) -> Event) -> u64 {
        let (id, mut state) = (ConversationId::new("c"), replay(State::default(), [&created()]));
        (0..)
            .take_while(|_| {
                let next = make(state.seq.next().get());
                let is_accepted = check_event(&id, &state, &next).is_ok();
                state = replay(std::mem::take(&mut state), [&next]);
                is_accepted
            })
            .count() as u64
    }

    #[test]
    fn no_more_messages_wait_than_a_conversation_takes() {
        let expected = [MAX_WAITING_MESSAGES + 1, MAX_SCHEDULED_MESSAGES].map(|it| it as u64);
        assert_eq!([accepted(message), accepted(scheduled)], expected);
    }

    #[test]
    fn no_conversation_is_its_own_ancestor() {
        let child = |of: &str, root: &str| {
            let parent = json!({"conversation_id": of, "call_id": "k", "root_conversation_id": root,
                "depth": 2, "ceiling": {"phase": "trusted"}});
            let first = event(1, "created", None, json!({"agent": "a", "parent": parent}));
            check_event(&ConversationId::new("c"), &State::default(), &first)
        };
        assert_eq!(child("boss", "root"), Ok(()));
        let field = |of, root| child(of, root).unwrap_err().field;
        assert_eq!(field("c", "root"), "data.parent.conversation_id");
        assert_eq!(field("boss", "c"), "data.parent.root_conversation_id");
    }
}
