//! What is stored besides journals, as older builds stored it.

use abide_actors::audit::Entry;
use abide_actors::journal::{Answer, Head, Holder, Holding, InboxEntry, Refusal};
use abide_conversation::Timestamp;
use abide_conversation::remembered::Remembered;
use abide_conversation::state::Activeness;
use abide_registry::store::StoredAgent;

use crate::kinds::{check, kind};

#[test]
fn all_that_was_ever_stored_beside_the_journals_still_means_the_same() {
    let kinds = [
        kind::<Head>("Head"),
        kind::<(Activeness, Timestamp)>("HeadOnRedis"),
        kind::<Activeness>("Activeness"),
        kind::<Holder>("Holder"),
        kind::<Holding>("Holding"),
        kind::<Refusal>("Refusal"),
        kind::<InboxEntry>("InboxEntry"),
        kind::<Answer>("Answer"),
        kind::<StoredAgent>("StoredAgent"),
        kind::<Remembered>("Remembered"),
        kind::<Entry>("Entry"),
    ];
    check("stored.jsonl", &kinds);
}
