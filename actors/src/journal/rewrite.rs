//! What takes the place of a part of a journal.

use std::sync::Arc;

use abide_conversation::event::Event;
use abide_conversation::state::PendingCall;

use super::ConversationSummary;

/// Events that take the place of others, and what is stored beside the journal as it is then.
#[derive(Clone, Debug, PartialEq)]
pub struct Rewrite {
    /// Each takes the place of the event of its number, which exists.
    pub events: Vec<Event>,
    /// The summary of the whole journal, whose last event is the same as before.
    pub summary: ConversationSummary,
    /// The keys of the metadata by which the conversation is found.
    pub indexed: Arc<[String]>,
    /// All open suspensions, at the places in the inbox that they have already.
    pub open: Vec<PendingCall>,
}
