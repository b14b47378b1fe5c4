//! Data that is stored in addition to journals, as older builds stored it.

use abide_actors::audit::AuditEntry;
use abide_actors::journal::{
    Claim, ConversationSummary, Holder, InboxEntry, ListEntry, StoreError, StoredResponse,
};
use abide_actors::notices::Webhook;
use abide_conversation::Timestamp;
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::state::ConversationStatus;
use abide_registry::schedules::{LastTick, Missed, Rhythm, Schedule, SentTick};
use abide_registry::store::{
    Attempts, ChainEntry, IndexJobs, Operation, Rebuild, StoredAgent, StoredKey, StoredNotice,
};

use crate::golden_types::{check, golden};

#[test]
fn everything_that_was_ever_stored_in_addition_to_journals_still_parses_the_same() {
    let types = [
        golden::<ConversationSummary>("Head"),
        golden::<(ConversationStatus, Timestamp)>("HeadOnRedis"),
        golden::<ConversationStatus>("Activeness"),
        golden::<Holder>("Holder"),
        golden::<Claim>("Holding"),
        golden::<StoreError>("Refusal"),
        golden::<InboxEntry>("InboxEntry"),
        golden::<StoredResponse>("Answer"),
        golden::<StoredAgent>("StoredAgent"),
        golden::<StoredKey>("StoredKey"),
        golden::<RememberedDecision>("Remembered"),
        golden::<AuditEntry>("Entry"),
        golden::<Operation>("Operation"),
        golden::<ChainEntry>("ChainEntry"),
        golden::<Webhook>("Webhook"),
        golden::<StoredNotice>("StoredNotice"),
        golden::<Attempts>("Attempts"),
        golden::<Schedule>("Schedule"),
        golden::<Rhythm>("Rhythm"),
        golden::<Missed>("Missed"),
        golden::<LastTick>("LastTick"),
        golden::<SentTick>("SentTick"),
        golden::<ListEntry>("Listing"),
        golden::<Rebuild>("Rebuild"),
        golden::<IndexJobs>("IndexJobs"),
    ];
    check("stored.jsonl", &types);
}
