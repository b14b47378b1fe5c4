//! Summaries, written beside the turns.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_actors::model::Purpose;
use abide_actors::request::IdempotencyKey;
use abide_conversation::command::IfBusy;
use abide_conversation::event::{Event, EventData, Summarized};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::contexts::{agent, reductions, talk};
use crate::flaky::{Checkpoint, Flaky};
use crate::rig::{Rig, say};

const ID: &str = "x";
/// Paused time runs ahead when nothing else does: no test really waits for this.
const PATIENCE: Duration = Duration::from_secs(7_200);

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
async fn calm(rig: &Rig) {
    let look = async {
        while rig.state(ID).await.context.summarize_upto.is_some() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, look).await.expect("the summary was never done");
}

#[tokio::test(start_paused = true)]
async fn old_turns_are_summarized_before_anything_has_to_be_dropped() {
    let rig = Rig::new(&summarizing().to_string()).await;
    for turn in 1..=20 {
        talk(&rig, turn..=turn).await;
        calm(&rig).await;
    }
    let events = rig.journal(ID).await;
    let written = summaries(&events);
    assert!(written.len() > 3, "{written:?}");
    assert!(written.windows(2).all(|pair| pair[0].upto < pair[1].upto));
    assert!(written.iter().all(|it| it.tokens_after < it.tokens_before));
    assert!(reductions(&events).iter().all(|it| it.turns == 0), "{:?}", reductions(&events));
    let read = rig.model.read.lock().unwrap().clone();
    assert!(
        read[0].starts_with("Summary of the conversation before this:\nSummary of "),
        "{read:?}"
    );
    assert!(!read[0].contains("not shown"), "a summary covers all that is not shown");
    rig.check(ID).await;
}

#[tokio::test(start_paused = true)]
async fn a_summarys_model_reads_what_was_said_and_the_summary_before() {
    let mut agent = summarizing();
    agent["summary"] = json!({"prompt": "In short.",
        "model": {"provider": "scripted", "script": [], "prices": {"output": 1_000_000}}});
    let rig = Rig::new(&agent.to_string()).await;
    rig.model.records.store(true, Ordering::SeqCst);
    for turn in 1..=12 {
        talk(&rig, turn..=turn).await;
        calm(&rig).await;
    }
    let prompts = rig.model.prompts.lock().unwrap();
    let asked: Vec<_> = prompts.iter().filter(|it| it.purpose == Purpose::Summary).collect();
    assert!(asked.len() > 1);
    assert!(asked.iter().all(|it| it.system == "In short." && it.tools.is_empty()));
    let first = asked[0].messages[0].text();
    assert!(
        first.starts_with("User: 1 the quick") && first.contains("[calls echo with"),
        "{first}"
    );
    let second = asked[1].messages[0].text();
    let earlier = "User: Summary of the conversation before this:\nSummary of ";
    assert!(second.starts_with(earlier), "{second}");
}

#[tokio::test(start_paused = true)]
async fn a_turn_goes_on_while_a_summary_is_written() {
    let rig = Rig::new(&summarizing().to_string()).await;
    rig.model.mute.store(true, Ordering::SeqCst);
    talk(&rig, 1..=3).await;
    assert!(rig.state(ID).await.context.summarize_upto.is_some(), "it waits between its attempts");
    talk(&rig, 4..=4).await;
    rig.model.mute.store(false, Ordering::SeqCst);
    calm(&rig).await;
    talk(&rig, 5..=5).await;
    calm(&rig).await;
    rig.check(ID).await;
}

#[tokio::test(start_paused = true)]
async fn a_summary_model_that_fails_for_hours_stops_nobody() {
    let rig = Rig::new(&summarizing().to_string()).await;
    rig.model.mute.store(true, Ordering::SeqCst);
    rig.model.records.store(true, Ordering::SeqCst);
    for turn in 1..=24 {
        talk(&rig, turn..=turn).await;
        sleep(Duration::from_secs(300)).await;
    }
    let events = rig.journal(ID).await;
    let failed = |event: &&Event| matches!(&event.data, EventData::SummaryFailed(_));
    assert!(events.iter().filter(failed).count() > 15);
    assert!(summaries(&events).is_empty());
    assert!(reductions(&events).iter().any(|it| it.turns > 0), "turns were dropped meanwhile");
    rig.model.mute.store(false, Ordering::SeqCst);
    talk(&rig, 25..=25).await;
    calm(&rig).await;
    let written = summaries(&rig.journal(ID).await);
    assert_eq!(written.len(), 1);
    let prompts = rig.model.prompts.lock().unwrap().clone();
    let asked = prompts.iter().rev().find(|it| it.purpose == Purpose::Summary).unwrap();
    assert!(asked.messages[0].text().starts_with("User: 1 the quick"), "from the first turn on");
    rig.check(ID).await;
}

#[tokio::test(start_paused = true)]
async fn hooks_are_told_before_a_summary_and_after() {
    let mut agent = summarizing();
    let hook = |on: &str| json!({"on": on, "name": on, "native": "note"});
    agent["hooks"] = json!([hook("PreCompact"), hook("PostCompact")]);
    let rig = Rig::new(&agent.to_string()).await;
    talk(&rig, 1..=4).await;
    calm(&rig).await;
    let look = async {
        while rig.tools.heard.lock().unwrap().len() < 2 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, look).await.expect("the hooks were not told");
    let heard = rig.tools.heard.lock().unwrap().clone();
    assert_eq!((&heard[0]["on"], &heard[1]["on"]), (&json!("PreCompact"), &json!("PostCompact")));
    assert_eq!(heard[1]["event"]["type"], "summarized");
}

/// Says it again until it was said and its turn has ended.
async fn insist(rig: &Rig, turn: usize) {
    let key = || IdempotencyKey {
        key: format!("message:{turn}"),
        fingerprint: String::new(),
        field: "message_id".into(),
    };
    let words = "word ".repeat(150);
    let message = || say(&format!("{turn} {words}"), IfBusy::Reject);
    while rig.repeat(ID, message(), vec![key()]).await.is_err() {
        sleep(Duration::from_millis(50)).await;
    }
    rig.ended(ID, turn).await;
}

#[tokio::test(start_paused = true)]
async fn whoever_dies_at_whatever_write_no_summary_is_lost_or_doubled() {
    for before in [true, false] {
        for at in 0.. {
            let store = Arc::new(Flaky::default());
            let stop = Checkpoint::new(at, before);
            let rig = Rig::over(store.clone(), &summarizing().to_string()).await;
            *store.checkpoint.lock().unwrap() = Some(stop.clone());
            let story = async {
                for turn in 1..=4 {
                    insist(&rig, turn).await;
                }
                calm(&rig).await;
            };
            let death = async {
                let id = stop.reached().await;
                // It may be that nobody has it any more.
                let _ = rig.conversations.kill(&id).await;
                stop.go.add_permits(1);
            };
            tokio::pin!(death);
            let died = tokio::select! {
                () = story => false,
                () = &mut death => true,
            };
            if died {
                for turn in 1..=4 {
                    insist(&rig, turn).await;
                }
                calm(&rig).await;
            }
            let events = rig.journal(ID).await;
            let written = summaries(&events);
            assert!(!written.is_empty(), "at {at}");
            assert!(written.windows(2).all(|pair| pair[0].upto < pair[1].upto), "at {at}");
            rig.check(ID).await;
            if !died {
                assert!(at > 20, "so many writes: {at}");
                break;
            }
        }
    }
}
