//! What a commit changes of the conversation's entry in lists.

use std::sync::Arc;

use abide_conversation::state::ConversationStatus;
use abide_conversation::{AgentName, State, Timestamp, wanted};

use super::{LiveConversation, with_store_timeout};
use crate::journal::{ConversationSummary, ListEntry, Relisting, StoreError};

/// What is stored of a conversation in this state in addition to its journal.
pub fn summary(state: &State) -> ConversationSummary {
    ConversationSummary {
        agent: state.agent.clone().unwrap_or_else(|| AgentName::new("")),
        status: state.status(),
        last_seq: state.seq,
        created_at: state.created_at.unwrap_or(Timestamp::UNIX_EPOCH),
        metadata: state.metadata.clone(),
        participants: state.participants.clone(),
        alarm: state.alarm(),
        active: !wanted(state).is_empty(),
        listing: ListEntry::of(state),
    }
}

/// Whether a commit between these states moves the conversation in lists. A fast model asks in the same
/// millisecond in which the conversation was active before.
fn is_touched(before: &State, next: &State) -> bool {
    let awaits = |state: &State| state.status() == ConversationStatus::AwaitingInput;
    before.active_at != next.active_at || (awaits(next) && !awaits(before))
}

impl LiveConversation {
    /// What a commit changes of the entry after which this is the state.
    pub(super) async fn relisting(&self, next: &State) -> Result<Relisting, StoreError> {
        let before = &self.state;
        let is_whole = !before.exists()
            || before.metadata != next.metadata
            || before.title != next.title
            || before.expires_at != next.expires_at
            || before.participants != next.participants;
        if is_whole {
            return Ok(Relisting::Whole { indexed: self.indexed_keys(next).await? });
        }
        Ok(if is_touched(before, next) { Relisting::Touched } else { Relisting::Unchanged })
    }

    /// The keys of the metadata that the newest revision of the agent indexes; none if the agent is
    /// gone. Reads nothing that the request has just read.
    pub(super) async fn indexed_keys(&self, next: &State) -> Result<Arc<[String]>, StoreError> {
        let Some(agent) = next.agent.as_ref().filter(|_| !next.metadata.is_empty()) else {
            return Ok(Arc::from([]));
        };
        let known = self.choice.as_ref().map(|choice| choice.newest.clone());
        let known = known.filter(|known| known.name == *agent);
        let definition = match known.filter(|_| !self.state.exists()) {
            Some(known) => Some(known),
            None => {
                let name = self.id.sibling(agent);
                with_store_timeout(self.services.agents.newest(&name)).await?
            }
        };
        Ok(definition.map(|definition| definition.index.clone()).unwrap_or_default())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use abide_conversation::{Event, replay};

    use super::*;

    /// A message, and a call that waits for an approval, all within a millisecond.
    const EVENTS: [(&str, &str); 6] = [
        ("created", r#"{"agent":"a"}"#),
        ("user_msg", r#"{"message":{"id":"msg_1","role":"user","content":[]},"principal":"ann"}"#),
        ("turn_started", r#"{"agent":"a","revision":"bb3e47c1c33d2c48","max_steps":25}"#),
        (
            "assistant_msg",
            r#"{"message":{"id":"msg_2","role":"assistant","content":[],
                "tool_calls":[{"id":"call_1","name":"t","args":{}}]},"status":"complete","step":1}"#,
        ),
        (
            "tool_call",
            r#"{"call_id":"call_1","tool":"t","args":{},"executor":"server","intent":"compute",
                "started":false,"timeout_ms":1000,"on_interrupt":"redispatch"}"#,
        ),
        (
            "suspension",
            r#"{"call_id":"call_1","kind":"approval","suspension":1,"tool":"t","args":{},
                "expires_at":"2026-11-27T00:00:00Z","executor":"server","intent":"compute",
                "message":"May I?"}"#,
        ),
    ];

    /// The state after the first of the events.
    pub(in super::super) fn state_after(count: usize) -> State {
        let events = EVENTS[..count].iter().zip(1..).map(|((kind, data), seq)| {
            let event = format!(
                r#"{{"seq":{seq},"at":"2026-11-26T00:00:00Z","turn_id":"turn_1","type":"{kind}","data":{data}}}"#
            );
            abide_conversation::from_json::<Event>(event.as_bytes()).unwrap()
        });
        replay(State::default(), &events.collect::<Vec<_>>())
    }

    #[test]
    fn a_call_that_waits_in_the_millisecond_of_the_message_moves_the_conversation_in_lists() {
        let (before, waiting) = (state_after(3), state_after(6));
        assert_eq!(before.active_at, waiting.active_at);
        assert_eq!(waiting.status(), ConversationStatus::AwaitingInput);
        assert!(is_touched(&before, &waiting));
        assert!(!is_touched(&before, &before) && !is_touched(&waiting, &waiting));
    }
}
