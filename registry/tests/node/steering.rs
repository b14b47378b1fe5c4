//! Turns that are steered or withdrawn, and conversations that go on from an earlier event.

use std::sync::atomic::Ordering;

use abide_actors::request::{Reply, Request, RewindRequest, WithdrawRequest};
use abide_conversation::branch::RewindPoint;
use abide_conversation::command::IfBusy;
use abide_conversation::event::{EventData, TurnOutcome};
use abide_conversation::{Principal, Seq, State, TurnId, replay};

use crate::test_node::{TestNode, user_message};

const ID: &str = "x";
const AGENT: &str = r#"
name: a
working_budget: 1000000
model: {provider: scripted, window: 4000000, script: [{text: "Yes, {{ user }}."}, {text: "And {{ user }}."}]}
"#;

/// More than an actor holds of its journal.
const LONG: usize = 70_000;

async fn rewind(node: &TestNode, to_seq: Seq) -> Reply {
    let journal = node.journal(ID).await;
    let prefix = journal.iter().take_while(|event| event.seq <= to_seq);
    let point = RewindPoint::at(&replay(State::default(), prefix)).unwrap();
    let request = RewindRequest { to_seq, point, by: Principal::new("ada") };
    node.deliver(ID, Request::Rewind(Box::new(request))).await.unwrap()
}

/// Sends a message and returns the end of its turn, which is the `n`th.
async fn say(node: &TestNode, text: &str, n: usize) -> Seq {
    node.send(ID, text).await.unwrap();
    assert_eq!(node.turn_end(ID, n).await.0, TurnOutcome::Completed);
    node.state(ID).await.seq
}

/// The first words of the messages of the last prompt.
fn read(node: &TestNode) -> Vec<String> {
    let texts = node.model.last_texts.lock().unwrap().clone();
    texts.iter().map(|text| text.chars().take(3).collect()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_model_reads_the_branch_that_counts_also_from_the_store() {
    for length in [0, LONG] {
        let node = TestNode::new(AGENT).await;
        let text = |name: &str| format!("{name}{}", "x".repeat(length));
        let between = say(&node, &text("one"), 1).await;
        say(&node, &text("two"), 2).await;
        assert!(matches!(rewind(&node, between).await, Reply::Rewound { .. }));
        say(&node, &text("new"), 3).await;
        assert_eq!(read(&node), ["one", "Yes", "new"], "{length} bytes");
        rewind(&node, between).await;
        node.wait_until_passivated(ID).await;
        say(&node, &text("end"), 4).await;
        assert_eq!(read(&node), ["one", "Yes", "end"], "{length} bytes");
        node.check(ID).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_steered_while_the_model_answers_goes_on() {
    let node = TestNode::new(AGENT).await;
    node.model.slow.store(true, Ordering::SeqCst);
    let Reply::Sent { turn_id, .. } = node.send(ID, "one").await.unwrap() else { unreachable!() };
    node.wait_for_event(ID, |data| matches!(data, EventData::TurnStarted(_))).await;
    let steered = node.deliver(ID, user_message("two", IfBusy::Steer)).await.unwrap();
    let Reply::Sent { turn_id: of, seq, .. } = steered else { unreachable!() };
    assert_eq!(of, turn_id);
    assert_eq!(node.turn_end(ID, 1).await, (TurnOutcome::Completed, None));
    assert_eq!(node.model.call_count.load(Ordering::SeqCst), 2);
    assert_eq!(read(&node), ["one", "Yes", "two"]);
    let journal = node.journal(ID).await;
    let is_it = |data: &EventData| matches!(data, EventData::Steered(_));
    assert!(journal.iter().any(|event| event.seq == seq && is_it(&event.data)));
    node.check(ID).await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_cancelled_by_its_id_and_no_other() {
    let node = TestNode::new(AGENT).await;
    node.send(ID, "drip").await.unwrap();
    let queued = node.deliver(ID, user_message("two", IfBusy::Queue)).await.unwrap();
    let Reply::Sent { turn_id, .. } = queued else { unreachable!() };
    let cancel = |turn: TurnId| {
        let by = Principal::new("ada");
        node.deliver(ID, Request::CancelTurn(WithdrawRequest { turn, by }))
    };
    let cancelled = |cancelled| Ok(Reply::Cancelled { cancelled });
    assert_eq!(cancel(turn_id.clone()).await, cancelled(true));
    assert_eq!(cancel(turn_id).await, cancelled(false));
    let state = node.state(ID).await;
    assert!(state.queue.is_empty());
    assert_eq!(cancel(state.turn.unwrap().id).await, cancelled(true));
    assert_eq!(node.turn_end(ID, 1).await, (TurnOutcome::Cancelled, None));
    node.check(ID).await;
}
