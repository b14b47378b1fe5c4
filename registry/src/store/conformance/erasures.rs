//! Erasures, and what they change of journals, usage and the operators' audit.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use abide_actors::journal::{Relisting, Rewrite, StoreError};
use abide_actors::usage_counts::UsageCounts;
use abide_conversation::erase::SubjectAlias;
use abide_conversation::event::{Event, EventData, Operated};
use abide_conversation::identity::Participants;
use abide_conversation::remembered_decision::{Match, RememberedDecision};
use abide_conversation::{DecisionId, ErasureId, Principal, Scoped, Seq, State, Tenant, replay};
use jiff::civil::Date;

use super::super::{
    AuditLevel, Effect, ListError, ListQuery, Operation, Store, UsageBy, UsageQuery, verify_chain,
};
use super::fixtures::*;
use crate::erasure::{Erasure, ErasureState};

fn erasure(id: &str, began: i64) -> Erasure {
    Erasure::new(ErasureId::new(id), "ada".to_owned(), b"salt", at(began))
}

async fn due(store: &dyn Store, until: i64) -> Vec<String> {
    let due = store.due_erasures(at(until), 9).await.unwrap();
    due.iter().map(Scoped::to_string).collect()
}

fn alias() -> SubjectAlias {
    SubjectAlias { subject: "ada".to_owned(), alias: "erased:0f".to_owned() }
}

pub(in super::super) async fn an_erasure_is_replaced_only_over_the_version_that_is_known(
    store: Arc<dyn Store>,
) {
    let name = scoped("run_1");
    let first = erasure("er_1", 5);
    let second = Erasure { version: 2, ..first.clone() };
    assert_eq!(store.erasure(&name).await.unwrap(), None);
    assert!(!store.replace_erasure(&name, Some(1), Some(&first)).await.unwrap());
    assert!(store.replace_erasure(&name, None, Some(&first)).await.unwrap());
    assert!(!store.replace_erasure(&name, None, Some(&second)).await.unwrap());
    assert_eq!(store.erasure(&name).await.unwrap(), Some(first));
    assert!(store.replace_erasure(&name, Some(1), Some(&second)).await.unwrap());
    assert!(!store.replace_erasure(&name, Some(1), None).await.unwrap());
    assert_eq!(store.erasure(&name).await.unwrap(), Some(second));
    assert_eq!(due(&*store, 5).await, ["run_1"]);
    assert!(store.replace_erasure(&name, Some(2), None).await.unwrap());
    assert_eq!(store.erasure(&name).await.unwrap(), None);
    assert_eq!(due(&*store, 5).await, [""; 0]);
}

pub(in super::super) async fn erasures_are_listed_by_tenant_and_found_when_they_are_due(
    store: Arc<dyn Store>,
) {
    for (name, began) in [("er_2", 2), ("er_1", 3), ("acme/er_3", 1)] {
        let name: Scoped<ErasureId> = scoped(name);
        let begun = erasure(name.local().as_str(), began);
        assert!(store.replace_erasure(&name, None, Some(&begun)).await.unwrap());
    }
    assert_eq!(due(&*store, 2).await, ["acme/er_3", "er_2"]);
    let mut done = Erasure { version: 2, ..erasure("er_2", 2) };
    done.state = ErasureState::Done { ended_at: at(4) };
    assert!(store.replace_erasure(&scoped("er_2"), Some(1), Some(&done)).await.unwrap());
    assert_eq!(due(&*store, 9).await, ["acme/er_3", "er_1"], "a report is kept for a while");
    assert_eq!(due(&*store, 91 * 86_400).await.len(), 3);
    let ids = |tenant_name: &'static str, cursor: Option<String>| {
        let store = store.clone();
        async move {
            let tenant = tenant(tenant_name);
            let page = store.erasures(&tenant, cursor.as_deref(), 1).await.unwrap();
            (page.items.into_iter().map(|it| it.id.to_string()).collect::<String>(), page.cursor)
        }
    };
    let (first, cursor) = ids("default", None).await;
    assert_eq!(first, "er_1");
    assert_eq!(ids("default", cursor.clone()).await, ("er_2".to_owned(), None));
    assert_eq!(ids("acme", None).await, ("er_3".to_owned(), None));
    assert_eq!(ids("nobody", None).await, (String::new(), None));
    let elsewhere = store.erasures(&tenant("acme"), cursor.as_deref(), 9).await;
    assert_eq!(elsewhere, Err(ListError::Cursor));
}

/// Events of which the second and the third name Ada.
fn events() -> Vec<Event> {
    let operated = |seq| Event {
        data: EventData::Operated(Operated {
            by: Principal::new("ada"),
            identity: None,
            verb: "retry".to_owned(),
            reason: None,
        }),
        ..event(seq)
    };
    vec![event(1), operated(2), operated(3), event(4)]
}

fn participants(member: &str) -> Participants {
    Participants { owner: Some("bob".to_owned()), members: vec![member.to_owned()] }
}

pub(in super::super) async fn a_rewrite_replaces_events_and_what_follows_from_them(
    store: Arc<dyn Store>,
) {
    let held = claim_conversation(&*store, "a").await;
    let mut first = commit(1, 4);
    first.events = Arc::from(events());
    first.summary.participants = participants("ada");
    first.opened = vec![pending_call("call_1", 1, 60)];
    first.state = Some(Arc::new(replay(State::default(), &events())));
    first.relisting = Relisting::whole();
    store.append(&id("a"), &held, first.clone()).await.unwrap();

    let mut changed: Vec<Event> = events();
    changed.retain_mut(|event| alias().apply(&mut event.data));
    let mut summary = first.summary.clone();
    summary.participants = participants("erased:0f");
    let mut open = pending_call("call_1", 1, 60);
    open.message = "of erased:0f".to_owned();
    let rewrite = Rewrite {
        events: changed.clone(),
        summary: summary.clone(),
        indexed: Arc::from([]),
        open: vec![open.clone()],
    };
    for _ in 0..2 {
        store.rewrite(&id("a"), &held, rewrite.clone()).await.unwrap();
        let stored = store.load(&id("a")).await.unwrap().unwrap();
        let expected = vec![event(1), changed[0].clone(), changed[1].clone(), event(4)];
        assert_eq!(stored, uncached(expected), "the cached state is gone");
        assert_eq!(store.summary(&id("a")).await.unwrap(), Some(summary.clone()));
        let inbox = store.inbox(&own(), &Default::default(), None, 9).await.unwrap().items;
        assert_eq!((inbox.len(), &inbox[0].pending), (1, &open));
        assert_eq!(inbox[0].participants, summary.participants);
        for (sub, found) in [("bob", 1), ("erased:0f", 1), ("ada", 0)] {
            let visible_to = abide_actors::journal::Viewer::Participant(sub.to_owned());
            let query = ListQuery { visible_to, ..ListQuery::default() };
            let listed = store.list(&own(), &query, None, 9).await.unwrap();
            assert_eq!(listed.items.len(), found, "{sub}");
        }
    }
    // The journal goes on where it ended.
    let mut next = commit(5, 5);
    next.summary.participants = summary.participants;
    next.closed = vec![closed_suspension(&open)];
    store.append(&id("a"), &held, next.clone()).await.unwrap();
    assert!(store.inbox(&own(), &Default::default(), None, 9).await.unwrap().items.is_empty());
    assert_eq!(store.events(&id("a"), Seq::ZERO, 9).await.unwrap().len(), 5);
    // Whoever was replaced after a rewrite is fenced, although it has to read what it writes by.
    let (summary, indexed) = (next.summary, Arc::from([]));
    let nothing = Rewrite { events: Vec::new(), summary, indexed, open: Vec::new() };
    store.rewrite(&id("a"), &held, nothing).await.unwrap();
    let other = store.claim(&id("a"), &holder("b"), Some(&held.holder)).await.unwrap();
    store.append(&id("a"), &other, commit(6, 6)).await.unwrap();
    for seq in [6, 7] {
        let fenced = store.append(&id("a"), &held, commit(seq, seq)).await;
        assert_eq!(fenced, Err(StoreError::Fenced));
    }
    assert_eq!(store.append(&id("a"), &other, commit(6, 6)).await, Err(StoreError::Conflict));
}

pub(in super::super) async fn a_rewrite_of_another_holder_or_journal_changes_nothing(
    store: Arc<dyn Store>,
) {
    let held = claim_conversation(&*store, "a").await;
    let mut first = commit(1, 4);
    first.events = Arc::from(events());
    store.append(&id("a"), &held, first.clone()).await.unwrap();
    let mut changed = events();
    changed.retain_mut(|event| alias().apply(&mut event.data));
    let rewrite = Rewrite {
        events: changed,
        summary: first.summary.clone(),
        indexed: Arc::from([]),
        open: Vec::new(),
    };
    let mut other = held.clone();
    other.holder = holder("elsewhere");
    let fenced = store.rewrite(&id("a"), &other, rewrite.clone()).await;
    assert_eq!(fenced, Err(StoreError::Fenced));
    let mut longer = rewrite;
    longer.summary.last_seq = Seq::new(5);
    let conflict = store.rewrite(&id("a"), &held, longer).await;
    assert_eq!(conflict, Err(StoreError::Conflict));
    assert_eq!(store.load(&id("a")).await.unwrap(), Some(uncached(events())));
}

pub(in super::super) async fn what_was_read_before_a_rewrite_is_not_listed_after_it(
    store: Arc<dyn Store>,
) {
    let held = claim_conversation(&*store, "a").await;
    let mut first = commit(1, 4);
    first.events = Arc::from(events());
    first.summary.participants = participants("ada");
    first.relisting = Relisting::whole();
    store.append(&id("a"), &held, first.clone()).await.unwrap();
    let read = store.summary(&id("a")).await.unwrap().unwrap();
    let mut changed: Vec<Event> = events();
    changed.retain_mut(|event| alias().apply(&mut event.data));
    let mut summary = first.summary;
    summary.participants = participants("erased:0f");
    let (indexed, open) = (Arc::from([]), Vec::new());
    let rewrite = Rewrite { events: changed, summary: summary.clone(), indexed, open };
    store.rewrite(&id("a"), &held, rewrite).await.unwrap();
    let found = async |sub: &str| {
        let visible_to = abide_actors::journal::Viewer::Participant(sub.to_owned());
        let query = ListQuery { visible_to, ..ListQuery::default() };
        store.list(&own(), &query, None, 9).await.unwrap().items.len()
    };
    assert_eq!(store.relist(&id("a"), &read, &[]).await, Ok(false));
    assert_eq!(store.summary(&id("a")).await.unwrap(), Some(summary.clone()));
    assert_eq!((found("ada").await, found("erased:0f").await), (0, 1));
    assert_eq!(store.relist(&id("a"), &summary, &[]).await, Ok(true));
    assert_eq!((found("ada").await, found("erased:0f").await), (0, 1));
}

pub(in super::super) async fn the_usage_of_an_owner_goes_to_the_alias(store: Arc<dyn Store>) {
    let day = Date::constant(2027, 1, 15);
    for (conversation, owner) in [("a", "ada"), ("b", "bob"), ("acme/a", "ada"), ("c", "ada")] {
        let held = claim_conversation(&*store, conversation).await;
        let mut first = commit(1, 1);
        first.summary.participants =
            Participants { owner: Some(owner.to_owned()), members: vec![] };
        first.usage = Some(UsageCounts { turns: 1, ..UsageCounts::default() });
        store.append(&id(conversation), &held, first).await.unwrap();
    }
    let rows = async |tenant: Tenant| {
        let query =
            UsageQuery { tenant, first: day, last: day, by: UsageBy::Owner, after: None, limit: 9 };
        let page = store.usage(&query).await.unwrap();
        assert_eq!(page.total.turns, page.rows.iter().map(|(_, it)| it.turns).sum::<u64>());
        page.rows.into_iter().map(|(name, it)| (name, it.turns)).collect::<Vec<_>>()
    };
    assert_eq!(rows(own()).await, [("ada".to_owned(), 2), ("bob".to_owned(), 1)]);
    for _ in 0..2 {
        store.rename_usage(&own(), day, &alias()).await.unwrap();
        assert_eq!(rows(own()).await, [("bob".to_owned(), 1), ("erased:0f".to_owned(), 2)]);
    }
    assert_eq!(rows(tenant("acme")).await, [("ada".to_owned(), 1)], "another tenant's Ada");
}

pub(in super::super) async fn an_entry_of_the_operators_audit_is_replaced_at_its_place(
    store: Arc<dyn Store>,
) {
    for by in ["ada", "bob", "ada"] {
        let operation = Operation {
            at: at(0),
            tenant: Some(own()),
            by: Principal::new(by),
            identity: None,
            operation: "agent.put".to_owned(),
            target: "demo".to_owned(),
            level: AuditLevel::Metadata,
            request: None,
        };
        store.operate(&operation, Effect::Follows).await.unwrap();
    }
    let erasure = ErasureId::new("er_1");
    for chain in [None, Some(own())] {
        for _ in 0..2 {
            let entries = store.operations(chain.as_ref(), 0, 9).await.unwrap();
            for redacted in entries.iter().filter_map(|it| it.redacted("ada", &erasure)) {
                store.replace_operation(chain.as_ref(), &redacted).await.unwrap();
            }
        }
        let entries = store.operations(chain.as_ref(), 0, 9).await.unwrap();
        assert_eq!(verify_chain(&entries), Ok(()));
        let seqs: Vec<u64> = entries.iter().map(|entry| entry.seq()).collect();
        assert_eq!(seqs, [1, 2, 3]);
        let text = serde_json::to_string(&entries).unwrap();
        assert!(!text.contains("\"ada\"") && text.contains("erasure:er_1"), "{text}");
    }
}

pub(in super::super) async fn a_decision_is_replaced_only_as_it_was_read(store: Arc<dyn Store>) {
    let demo = scoped("demo");
    let decision = |tool: &str| RememberedDecision {
        id: DecisionId::new("d"),
        tool: tool.to_owned(),
        tool_digest: String::new(),
        approved: true,
        matching: Match::Tool,
        fingerprint: String::new(),
        by: Principal::new("bob"),
        voters: Vec::new(),
        expires_at: at(60),
    };
    let replaced = async |read: &str, next: &str| {
        store.replace_decision(&demo, &decision(read), &decision(next)).await
    };
    assert_eq!(replaced("a", "b").await, Ok(false), "there is none");
    assert_eq!(store.decisions(&demo).await, Ok(vec![]));
    let id = DecisionId::new("d");
    store.set_decision(&demo, &id, Some(&decision("a"))).await.unwrap();
    assert_eq!(replaced("c", "b").await, Ok(false), "it is another one");
    assert_eq!(store.decisions(&demo).await, Ok(vec![decision("a")]));
    assert_eq!(replaced("a", "b").await, Ok(true));
    assert_eq!(store.decisions(&demo).await, Ok(vec![decision("b")]));
    store.set_decision(&demo, &id, None).await.unwrap();
    assert_eq!(replaced("b", "c").await, Ok(false), "it was revoked");
    assert_eq!(store.decisions(&demo).await, Ok(vec![]));
}
