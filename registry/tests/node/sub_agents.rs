//! Agents that ask each other, and how tests find their conversations.

use std::time::Duration;

use abide_actors::journal::{InboxEntry, InboxFilter};
use abide_conversation::event::{Event, EventData};
use abide_conversation::message::Ui;
use abide_conversation::{Attempt, Scoped, Tenant, wanted};
use abide_registry::store::SummaryFilter;

use crate::test_node::TestNode;

/// Generous, since paused time advances as soon as every task waits: no test waits for it in real
/// time.
const DEADLINE: Duration = Duration::from_secs(7_200);

/// Passes the user's text on to `kid`, and replies with the kid's answer.
pub const BOSS: &str = r#"
name: a
assigns: {site: one, shift: day}
model:
  provider: scripted
  script:
    - calls: [{id: c, name: ask, args: {prompt: "{{ user }}"}}]
      usage: {input_tokens: 100, output_tokens: 10}
    - text: "{{ results.ask.result if results.ask.ok else results.ask.error }}"
tools: [{name: ask, run: {agent: kid}, run_timeout: 1h}]
"#;

/// Replies with its name and the user's text.
pub const KID: &str = r#"
name: kid
model:
  provider: scripted
  script: [{text: "kid heard {{ user }}", usage: {input_tokens: 5, output_tokens: 2}}]
"#;

/// Needs an approval before it replies.
pub const CAREFUL_KID: &str = r#"
name: kid
suspension_timeout: 10m
assigns: {shift: night}
model:
  provider: scripted
  script:
    - calls: [{id: k, name: echo, args: {n: 7}}]
    - text: "kid got {{ results.echo.result.args.n if results.echo.ok else results.echo.error }}"
tools: [{name: echo, run: {native: echo}, approval: requires_approval}]
"#;

/// Passes the user's text on to `kid`, for a root that asks `middle`.
pub const MIDDLE: &str = r#"
name: middle
model:
  provider: scripted
  script:
    - calls: [{id: m, name: ask, args: {prompt: "{{ user }}"}}]
      usage: {input_tokens: 30, output_tokens: 3}
    - text: "{{ results.ask.result if results.ask.ok else results.ask.error }}"
tools: [{name: ask, run: {agent: kid}, run_timeout: 30m}]
"#;

/// `BOSS`, with `middle` as its child.
pub fn grand_boss() -> String {
    BOSS.replace("agent: kid", "agent: middle")
}

/// The ids of the children of a journal's calls, in order.
pub fn children(events: &[Event]) -> Vec<String> {
    let child = |event: &Event| match &event.data {
        EventData::DispatchStarted(run) if run.attempt != Attempt::FIRST => None,
        data => data.planned_child().map(ToString::to_string),
    };
    events.iter().filter_map(child).collect()
}

/// The child of a conversation's only call, as soon as there is one.
pub async fn child(node: &TestNode, id: &str) -> String {
    node.poll_for_event(id, |data| data.planned_child().is_some()).await;
    children(&node.journal(id).await).remove(0)
}

/// The part of a call's result that is made for people.
pub fn result_ui(events: &[Event], call: &str) -> Option<Ui> {
    events.iter().find_map(|event| match &event.data {
        EventData::ToolResult(result) if result.call_id.as_str() == call => result.ui.clone(),
        _ => None,
    })
}

pub async fn inbox(node: &TestNode) -> Vec<InboxEntry> {
    node.store.inbox(&Tenant::default(), &InboxFilter::default(), None, 1_000).await.unwrap().items
}

/// Waits for a suspension in a conversation.
pub async fn suspended(node: &TestNode, id: &str) {
    node.poll_for_event(id, |data| matches!(data, EventData::Suspension(_))).await;
}

/// The ids of all conversations.
pub async fn all_conversations(node: &TestNode) -> Vec<String> {
    let all = node
        .store
        .conversations(&Tenant::default(), &SummaryFilter::default(), None, 1_000)
        .await
        .unwrap();
    all.items.into_iter().map(|(id, _)| id.to_string()).collect()
}

/// Waits until no conversation has anything to do, and checks that none waits for anybody.
pub async fn check_all_settled(node: &TestNode) {
    let mut all = Vec::new();
    // A conversation that settles may still create others.
    while all != all_conversations(node).await {
        all = all_conversations(node).await;
        for id in &all {
            let in_time = tokio::time::timeout(DEADLINE, settled(node, id)).await;
            assert!(in_time.is_ok(), "{id} never settled: {:?}", node.state(id).await);
        }
    }
    for id in all {
        node.check(&id).await;
        let summary = node.store.summary(&Scoped::parse(&id).unwrap()).await.unwrap().unwrap();
        assert!(!summary.active && summary.alarm.is_none(), "{id}: {summary:?}");
    }
    assert_eq!(inbox(node).await, []);
}

async fn settled(node: &TestNode, id: &str) {
    loop {
        let state = node.state(id).await;
        if wanted(&state).is_empty() && state.turn.is_none() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
