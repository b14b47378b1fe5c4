//! A decision is replaced as it was read, or not at all.

use abide_conversation::remembered_decision::RememberedDecision;
use serde_json::json;

use super::super::super::Store;
use super::super::super::conformance::*;
use super::super::read;
use super::super::write::Write;
use super::files::open;

#[tokio::test]
async fn a_decision_that_was_revoked_after_it_was_read_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let demo = scoped("demo");
    let first: RememberedDecision = serde_json::from_value(json!({
        "id": "d", "tool": "t", "does": "", "approved": true, "match": "exact",
        "fingerprint": "", "by": "ann", "expires_at": at(60),
    }))
    .unwrap();
    store.set_decision(&demo, &first.id, Some(&first)).await.unwrap();
    let stored = store.read_row(|from| read::stored_decision(from, &demo, &first.id));
    let (_, stored) = stored.unwrap().unwrap();
    store.set_decision(&demo, &first.id, None).await.unwrap();
    let (agent, id) = (demo.clone(), first.id.clone());
    let replace = Write::ReplaceDecision { agent, id, read: stored, json: b"{}".to_vec() };
    assert_eq!(store.write(replace).await, Ok(false));
    assert_eq!(store.decisions(&demo).await, Ok(vec![]));
}
