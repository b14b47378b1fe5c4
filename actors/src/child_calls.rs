//! What a child waits for, as its root shows it.

use abide_conversation::identity::Participants;
use abide_conversation::state::PendingCall;
use abide_conversation::{AgentName, CallId, ConversationId, Principal, Seq, State};
use serde::{Deserialize, Serialize, Serializer};

use crate::journal::InboxEntry;

/// All open suspensions of a child as of one of its events: it replaces what was known as of an
/// earlier one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChildCalls {
    pub conversation_id: ConversationId,
    pub agent: AgentName,
    /// The last event of the child's journal.
    pub seq: Seq,
    pub pending: Vec<PendingCall>,
    #[serde(default, skip_serializing_if = "Participants::is_empty")]
    pub participants: Participants,
    /// To inboxes only: what has just closed, and how.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closed: Vec<ClosedCall>,
    /// To inboxes only: what a reminder was just due for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expiring: Vec<(CallId, u32)>,
}

/// How a suspension has closed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClosedCall {
    pub call_id: CallId,
    pub suspension: u32,
    /// Who answered; `None` if nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Principal>,
}

impl ChildCalls {
    /// The open suspensions of the conversation with this state.
    pub fn new(id: ConversationId, state: &State) -> Self {
        Self {
            conversation_id: id,
            agent: state.agent.clone().unwrap_or_else(|| AgentName::new("")),
            seq: state.seq,
            pending: state.pending_calls(),
            participants: state.participants.clone(),
            closed: Vec::new(),
            expiring: Vec::new(),
        }
    }

    /// The suspensions as the inbox lists them.
    pub fn entries(&self) -> impl Iterator<Item = InboxEntry> {
        self.pending.iter().map(|pending| InboxEntry {
            conversation_id: self.conversation_id.clone(),
            agent: self.agent.clone(),
            participants: self.participants.clone(),
            pending: pending.clone(),
        })
    }
}

/// What the descendants of a root wait for. Serialized as the inbox lists it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DescendantCalls {
    /// Includes descendants that wait for nothing.
    pub calls: Vec<ChildCalls>,
    /// Whether all descendants are here: there may be too many to read.
    pub is_complete: bool,
}

impl Serialize for DescendantCalls {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.calls.iter().flat_map(ChildCalls::entries))
    }
}
