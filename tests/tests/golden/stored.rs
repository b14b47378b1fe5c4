//! What is stored besides journals, as older builds stored it.

use abide_actors::audit::AuditEntry;
use abide_actors::journal::{
    Claim, ConversationSummary, Holder, InboxEntry, StoreError, StoredResponse,
};
use abide_conversation::Timestamp;
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::state::ConversationStatus;
use abide_registry::store::StoredAgent;

use crate::kinds::{check, kind};

#[test]
fn all_that_was_ever_stored_beside_the_journals_still_means_the_same() {
    let kinds = [
        kind::<ConversationSummary>("Head"),
        kind::<(ConversationStatus, Timestamp)>("HeadOnRedis"),
        kind::<ConversationStatus>("Activeness"),
        kind::<Holder>("Holder"),
        kind::<Claim>("Holding"),
        kind::<StoreError>("Refusal"),
        kind::<InboxEntry>("InboxEntry"),
        kind::<StoredResponse>("Answer"),
        kind::<StoredAgent>("StoredAgent"),
        kind::<RememberedDecision>("Remembered"),
        kind::<AuditEntry>("Entry"),
    ];
    check("stored.jsonl", &kinds);
}
