//! Several answers in one request.

use abide_actors::live::Signal;
use abide_actors::request::{AnswerOutcome, Reply, Request, ResolveRequest};
use abide_conversation::command::ResolutionAnswer;
use abide_conversation::event::{EventData, TurnOutcome};
use abide_conversation::{CallId, Principal};
use abide_registry::live::StreamItem;

use crate::test_clock::ticking_clock;
use crate::test_node::{TestNode, connect_client};

/// An agent whose first message makes two calls that wait for approval.
const TWO_CALLS: &str = r#"
name: a
model:
  provider: scripted
  script: [{calls: [{id: m1, name: hold, args: {}}, {id: m2, name: hold, args: {}}]}, {text: "Well."}]
tools: [{name: hold, run: {native: hold}, approval: requires_approval, run_timeout: 1h}]
"#;

fn verdict(call: &str, approved: bool) -> ResolveRequest {
    ResolveRequest {
        call: CallId::new(call),
        suspension: None,
        by: Principal::new("bob"),
        answer: ResolutionAnswer::Approval { approved, reason: None, args: None },
        remember: None,
    }
}

#[tokio::test(start_paused = true)]
async fn answers_of_one_request_are_one_commit() {
    let node = TestNode::with_clock(ticking_clock(), TWO_CALLS).await;
    node.send("x", "go").await.unwrap();
    let is_last = |data: &EventData| matches!(data, EventData::Suspension(open) if open.call_id == CallId::new("m2"));
    node.wait_for_event("x", is_last).await;
    let mut signals = connect_client(&node, "x");
    let answers = vec![verdict("m1", true), verdict("nobody", true), verdict("m2", false)];
    let reply = node.deliver("x", Request::ResolveAll(answers)).await.unwrap();
    let Reply::ResolvedAll { outcomes } = reply else { panic!("{reply:?}") };
    let [AnswerOutcome::Resolved { .. }, AnswerOutcome::Refused(_), AnswerOutcome::Resolved { .. }] =
        &outcomes[..]
    else {
        panic!("{outcomes:?}")
    };
    let committed = loop {
        if let StreamItem::Signal(shared) = signals.next().await
            && let Signal::Committed(events) = &shared.signal
            && events.iter().any(|event| matches!(event.data, EventData::Resolution(_)))
        {
            break events.clone();
        }
    };
    let answered = committed.iter().filter_map(|event| match &event.data {
        EventData::Resolution(resolution) => Some(resolution.call_id.as_str()),
        _ => None,
    });
    assert_eq!(answered.collect::<Vec<_>>(), ["m1", "m2"]);
    let first = committed.first().unwrap().at;
    assert!(committed.iter().all(|event| event.at == first), "a commit has one time");
    node.tools.release.add_permits(1);
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    node.check("x").await;
}
