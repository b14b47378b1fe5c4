//! Summaries, which are written while turns go on.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_actors::model::Purpose;
use abide_actors::request::IdempotencyKey;
use abide_conversation::command::IfBusy;
use abide_conversation::event::{Event, EventData, Summarized};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::context_reduction::{agent, reductions, run_turns};
use crate::flaky_store::{Checkpoint, FlakyStore};
use crate::test_node::{TestNode, user_message};

const ID: &str = "x";
/// Generous, since paused time advances as soon as every task waits: no test waits for it in real
/// time.
const DEADLINE: Duration = Duration::from_secs(7_200);

fn summarizing() -> Value {
    let mut agent = agent();
    agent["summary"] = json!({});
    agent["working_budget"] = json!(1_600);
    agent["model"]["prices"] = json!({"input": 1, "output": 1});
    agent
}

fn summaries(events: &[Event]) -> Vec<Summarized> {
    let summarized = |event: &Event| match &event.data {
        EventData::Summarized(summarized) => Some(summarized.clone()),
        _ => None,
    };
    events.iter().filter_map(summarized).collect()
}

/// Waits until no summary is wanted.
async fn wait_for_summary(node: &TestNode) {
    let done = async {
        while node.state(ID).await.context.summarize_upto.is_some() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, done).await.expect("the summary was never written");
}

#[tokio::test(start_paused = true)]
async fn old_turns_are_summarized_before_anything_has_to_be_dropped() {
    let node = TestNode::new(&summarizing().to_string()).await;
    for turn in 1..=20 {
        run_turns(&node, turn..=turn).await;
        wait_for_summary(&node).await;
    }
    let events = node.journal(ID).await;
    let summarized = summaries(&events);
    assert!(summarized.len() > 3, "{summarized:?}");
    assert!(summarized.windows(2).all(|pair| pair[0].upto < pair[1].upto));
    assert!(summarized.iter().all(|it| it.tokens_after < it.tokens_before));
    assert!(reductions(&events).iter().all(|it| it.turns == 0), "{:?}", reductions(&events));
    let read = node.model.last_texts.lock().unwrap().clone();
    assert!(
        read[0].starts_with("Summary of the conversation before this:\nSummary of "),
        "{read:?}"
    );
    assert!(!read[0].contains("not shown"), "turns are missing from the summary");
    node.check(ID).await;
}

#[tokio::test(start_paused = true)]
async fn a_summarys_model_reads_what_was_said_and_the_summary_before() {
    let mut agent = summarizing();
    agent["summary"] = json!({"prompt": "In short.",
        "model": {"provider": "scripted", "script": [], "prices": {"output": 1_000_000}}});
    let node = TestNode::new(&agent.to_string()).await;
    node.model.record_prompts.store(true, Ordering::SeqCst);
    for turn in 1..=12 {
        run_turns(&node, turn..=turn).await;
        wait_for_summary(&node).await;
    }
    let prompts = node.model.prompts.lock().unwrap();
    let summary_calls: Vec<_> =
        prompts.iter().filter(|it| it.purpose == Purpose::Summary).collect();
    assert!(summary_calls.len() > 1);
    assert!(summary_calls.iter().all(|it| it.system == "In short." && it.tools.is_empty()));
    let first = summary_calls[0].messages[0].text();
    assert!(
        first.starts_with("User: 1 the quick") && first.contains("[calls echo with"),
        "{first}"
    );
    let second = summary_calls[1].messages[0].text();
    let earlier = "User: Summary of the conversation before this:\nSummary of ";
    assert!(second.starts_with(earlier), "{second}");
}

#[tokio::test(start_paused = true)]
async fn a_turn_goes_on_while_a_summary_is_written() {
    let node = TestNode::new(&summarizing().to_string()).await;
    node.model.fail_summaries.store(true, Ordering::SeqCst);
    run_turns(&node, 1..=3).await;
    assert!(node.state(ID).await.context.summarize_upto.is_some(), "no summary is being retried");
    run_turns(&node, 4..=4).await;
    node.model.fail_summaries.store(false, Ordering::SeqCst);
    wait_for_summary(&node).await;
    run_turns(&node, 5..=5).await;
    wait_for_summary(&node).await;
    node.check(ID).await;
}

#[tokio::test(start_paused = true)]
async fn a_summary_model_that_fails_for_hours_stops_nobody() {
    let node = TestNode::new(&summarizing().to_string()).await;
    node.model.fail_summaries.store(true, Ordering::SeqCst);
    node.model.record_prompts.store(true, Ordering::SeqCst);
    for turn in 1..=24 {
        run_turns(&node, turn..=turn).await;
        sleep(Duration::from_secs(300)).await;
    }
    let events = node.journal(ID).await;
    let failed = |event: &&Event| matches!(&event.data, EventData::SummaryFailed(_));
    assert!(events.iter().filter(failed).count() > 15);
    assert!(summaries(&events).is_empty());
    assert!(
        reductions(&events).iter().any(|it| it.turns > 0),
        "no turn was dropped in the meantime"
    );
    node.model.fail_summaries.store(false, Ordering::SeqCst);
    run_turns(&node, 25..=25).await;
    wait_for_summary(&node).await;
    let summarized = summaries(&node.journal(ID).await);
    assert_eq!(summarized.len(), 1);
    let prompts = node.model.prompts.lock().unwrap().clone();
    let summary_calls = prompts.iter().rev().find(|it| it.purpose == Purpose::Summary).unwrap();
    assert!(
        summary_calls.messages[0].text().starts_with("User: 1 the quick"),
        "the summary does not begin with the first turn"
    );
    node.check(ID).await;
}

#[tokio::test(start_paused = true)]
async fn hooks_are_notified_before_and_after_a_summary() {
    let mut agent = summarizing();
    let hook = |on: &str| json!({"on": on, "name": on, "native": "note"});
    agent["hooks"] = json!([hook("PreCompact"), hook("PostCompact")]);
    let node = TestNode::new(&agent.to_string()).await;
    run_turns(&node, 1..=4).await;
    wait_for_summary(&node).await;
    let done = async {
        while node.tools.hook_events.lock().unwrap().len() < 2 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, done).await.expect("the hooks were not notified");
    let events = node.tools.hook_events.lock().unwrap().clone();
    assert_eq!((&events[0]["on"], &events[1]["on"]), (&json!("PreCompact"), &json!("PostCompact")));
    assert_eq!(events[1]["event"]["type"], "summarized");
}

/// Repeats a message until it is accepted, and waits for the end of its turn.
async fn send_until_accepted(node: &TestNode, turn: usize) {
    let key = || IdempotencyKey {
        key: format!("message:{turn}"),
        fingerprint: String::new(),
        field: "message_id".into(),
    };
    let words = "word ".repeat(150);
    let message = || user_message(&format!("{turn} {words}"), IfBusy::Reject);
    while node.deliver_keyed(ID, message(), vec![key()]).await.is_err() {
        sleep(Duration::from_millis(50)).await;
    }
    node.turn_end(ID, turn).await;
}

#[tokio::test(start_paused = true)]
async fn a_death_at_any_write_neither_loses_nor_doubles_a_summary() {
    for before in [true, false] {
        for write_number in 0.. {
            let store = Arc::new(FlakyStore::default());
            let checkpoint = Checkpoint::new(write_number, before);
            let node = TestNode::with_store(store.clone(), &summarizing().to_string()).await;
            *store.checkpoint.lock().unwrap() = Some(checkpoint.clone());
            let scenario = async {
                for turn in 1..=4 {
                    send_until_accepted(&node, turn).await;
                }
                wait_for_summary(&node).await;
            };
            let death = async {
                let id = checkpoint.wait_until_reached().await;
                // The conversation may have no actor any more.
                let _ = node.conversations.kill(&id).await;
                checkpoint.resume.add_permits(1);
            };
            tokio::pin!(death);
            let died = tokio::select! {
                () = scenario => false,
                () = &mut death => true,
            };
            if died {
                for turn in 1..=4 {
                    send_until_accepted(&node, turn).await;
                }
                wait_for_summary(&node).await;
            }
            let events = node.journal(ID).await;
            let summarized = summaries(&events);
            assert!(!summarized.is_empty(), "at {write_number}");
            assert!(
                summarized.windows(2).all(|pair| pair[0].upto < pair[1].upto),
                "at {write_number}"
            );
            node.check(ID).await;
            if !died {
                assert!(write_number > 20, "only {write_number} writes were tried");
                break;
            }
        }
    }
}
