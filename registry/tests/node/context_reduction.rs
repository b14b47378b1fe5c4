//! Conversations that are longer than the context of their model.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_actors::model::ModelRequest;
use abide_conversation::Seq;
use abide_conversation::command::IfBusy;
use abide_conversation::event::{ContextReduced, Event, EventData, ReductionReason, TurnOutcome};
use serde_json::{Value, json};

use crate::flaky_store::FlakyStore;
use crate::test_model::total_bytes;
use crate::test_node::{TestNode, user_message};

const ID: &str = "x";
/// A user's text of about 60 tokens.
const WORDS: &str = "the quick brown fox jumps over the lazy dog and then it goes home again to \
    sleep for a while, since the day was long and the night will be short, as it always is in \
    June when the sun hardly sets and nobody wants to go to bed before the last of the guests";

/// Each turn has two calls of `echo`, whose results have about 60 tokens each; the budget leaves
/// 800.
pub fn agent() -> Value {
    let echo = || json!({"calls": [{"name": "echo", "args": {"n": 1, "unit": WORDS}}]});
    json!({
        "name": "a",
        "model": {"provider": "scripted", "script": [echo(), echo(), {"text": "I heard {{ user }}"}]},
        "working_budget": 900,
        "injection_reserve": 100,
        "tools": [{"name": "echo", "run": {"native": "echo"},
            "retention": {"mode": "count", "value": 2}}],
    })
}

pub async fn run_turns(node: &TestNode, turns: std::ops::RangeInclusive<usize>) {
    for turn in turns {
        node.send(ID, &format!("{turn} {WORDS}")).await.unwrap();
        assert_eq!(node.turn_end(ID, turn).await, (TurnOutcome::Completed, None));
    }
}

pub fn reductions(events: &[Event]) -> Vec<ContextReduced> {
    let reduced = |event: &Event| match &event.data {
        EventData::ContextReduced(reduced) => Some(reduced.clone()),
        _ => None,
    };
    events.iter().filter_map(reduced).collect()
}

/// The stable prefix of a prompt, which the next step sends again, one text per message.
fn prefix(prompt: &ModelRequest) -> Vec<String> {
    prompt.messages[..prompt.stable_messages]
        .iter()
        .map(|message| json!(message).to_string())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn over_a_hundred_steps_the_prefix_changes_only_where_the_journal_says_so() {
    let mut agent = agent();
    agent["working_budget"] = json!(3_100);
    let node = TestNode::new(&agent.to_string()).await;
    node.model.record_prompts.store(true, Ordering::SeqCst);
    run_turns(&node, 1..=40).await;
    let prompts = std::mem::take(&mut *node.model.prompts.lock().unwrap());
    let events = node.journal(ID).await;
    // The numbers of the requests that a journalled reduction precedes.
    let mut reduced = Vec::new();
    let mut requests = 0;
    for event in &events {
        match &event.data {
            EventData::AssistantMsg(_) => requests += 1,
            EventData::ContextReduced(_) => reduced.push(requests),
            _ => {}
        }
    }
    assert_eq!((requests, prompts.len()), (120, 120));
    let changed = |at: &usize| !prefix(&prompts[*at]).starts_with(&prefix(&prompts[*at - 1]));
    let changed: Vec<usize> = (1..120).filter(changed).collect();
    assert_eq!(changed, reduced);
    assert!(
        (5..30).contains(&changed.len()),
        "the prefix changed too seldom or too often: {changed:?}"
    );
    for prompt in &prompts {
        let texts: Vec<String> = prompt.messages.iter().map(|it| it.text()).collect();
        assert!(total_bytes(&texts) < 15_000, "a prompt exceeds the budget");
    }
    let marks = node.state(ID).await.context.marks;
    assert!(
        marks.read_from.get() > events.len() as u64 / 2,
        "the model reads more than the tail: {marks:?}"
    );
    let first = prompts.last().unwrap().messages[0].text();
    assert_eq!(first, "[Earlier turns of this conversation are not shown.]");
    node.check(ID).await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_counts_too_few_tokens_does_not_stretch_the_budget() {
    let mut agent = agent();
    for entry in agent["model"]["script"].as_array_mut().unwrap() {
        entry["usage"] = json!({"input_tokens": 5, "output_tokens": 5});
    }
    let node = TestNode::new(&agent.to_string()).await;
    run_turns(&node, 1..=40).await;
    assert!(!reductions(&node.journal(ID).await).is_empty());
    // 800 tokens of 8 characters, and what comes with the running turn.
    assert!(total_bytes(&node.model.last_texts.lock().unwrap()) < 15_000);
    node.check(ID).await;
}

#[tokio::test(start_paused = true)]
async fn results_expire_before_turns_are_dropped() {
    let node = TestNode::new(&agent().to_string()).await;
    run_turns(&node, 1..=6).await;
    let first = reductions(&node.journal(ID).await)[0].clone();
    assert!(first.results > 0 && first.tokens_after < first.tokens_before, "{first:?}");
    assert_eq!(first.reason, ReductionReason::Budget);
}

#[tokio::test(start_paused = true)]
async fn a_kill_loses_no_context_mark() {
    let node = TestNode::new(&agent().to_string()).await;
    run_turns(&node, 1..=10).await;
    let before = node.state(ID).await.context;
    node.kill(ID).await;
    run_turns(&node, 11..=11).await;
    let after = node.state(ID).await.context;
    assert!(after.marks.includes(&before.marks) && before.marks.shown_from > Seq::ZERO);
    let first = node.model.last_texts.lock().unwrap()[0].clone();
    assert_eq!(first, "[Earlier turns of this conversation are not shown.]");
    node.check(ID).await;
}

/// The agent with a budget that is never reached.
fn roomy() -> Value {
    let mut agent = agent();
    agent["working_budget"] = json!(100_000);
    agent
}

#[tokio::test(start_paused = true)]
async fn a_context_too_long_for_the_provider_is_halved_and_sent_once_more() {
    let node = TestNode::new(&roomy().to_string()).await;
    run_turns(&node, 1..=8).await;
    let longest = total_bytes(&node.model.last_texts.lock().unwrap()) - 1_000;
    node.model.max_prompt_bytes.store(longest, Ordering::SeqCst);
    run_turns(&node, 9..=9).await;
    let reduced = reductions(&node.journal(ID).await);
    assert_eq!(reduced.len(), 1);
    let ContextReduced { reason, tokens_before, tokens_after, .. } = reduced[0];
    assert_eq!(reason, ReductionReason::TooLong);
    assert!(tokens_after * 2 <= tokens_before);
    assert!(total_bytes(&node.model.last_texts.lock().unwrap()) < longest);
    node.check(ID).await;
}

#[tokio::test(start_paused = true)]
async fn a_context_that_is_still_too_long_fails_the_turn() {
    let node = TestNode::new(&roomy().to_string()).await;
    run_turns(&node, 1..=8).await;
    node.model.max_prompt_bytes.store(10, Ordering::SeqCst);
    let calls_before = node.model.call_count.load(Ordering::SeqCst);
    node.send(ID, WORDS).await.unwrap();
    assert_eq!(node.turn_end(ID, 9).await, (TurnOutcome::Failed, Some("too long".to_owned())));
    assert_eq!(node.model.call_count.load(Ordering::SeqCst) - calls_before, 2);
    assert_eq!(reductions(&node.journal(ID).await).len(), 1);
    node.model.max_prompt_bytes.store(0, Ordering::SeqCst);
    node.send(ID, WORDS).await.unwrap();
    assert_eq!(
        node.turn_end(ID, 10).await,
        (TurnOutcome::Completed, None),
        "the next turn did not complete"
    );
    node.check(ID).await;
}

#[tokio::test(start_paused = true)]
async fn what_no_window_holds_halts_the_turn_and_not_the_conversation() {
    let mut agent = roomy();
    agent["model"]["window"] = json!(2_000);
    let node = TestNode::new(&agent.to_string()).await;
    node.send(ID, &WORDS.repeat(40)).await.unwrap();
    assert_eq!(
        node.turn_end(ID, 1).await,
        (TurnOutcome::Halted, Some("context_window".to_owned()))
    );
    assert_eq!(node.model.call_count.load(Ordering::SeqCst), 0);
    node.send(ID, WORDS).await.unwrap();
    assert_eq!(
        node.turn_end(ID, 2).await,
        (TurnOutcome::Completed, None),
        "the large turn was not dropped"
    );
    node.check(ID).await;
}

#[tokio::test(start_paused = true)]
async fn a_context_over_its_budget_that_cannot_be_reduced_is_sent() {
    let node = TestNode::new(&agent().to_string()).await;
    node.send(ID, &WORDS.repeat(30)).await.unwrap();
    assert_eq!(node.turn_end(ID, 1).await, (TurnOutcome::Completed, None));
    assert_eq!(reductions(&node.journal(ID).await), []);
    node.check(ID).await;
}

/// More than an actor remembers of its journal.
const LONG_TEXT_BYTES: usize = 100_000;

/// How often steps read each message from the store, by the number at its beginning.
fn message_reads(store: &FlakyStore, count: usize) -> Vec<usize> {
    let mut reads = vec![0; count];
    for event in store.own_reads.lock().unwrap().iter() {
        if let EventData::UserMsg(user) = &event.data {
            let number: usize = user.message.text().split_once(' ').unwrap().0.parse().unwrap();
            reads[number] += 1;
        }
    }
    reads
}

/// A long text that begins with a number.
fn long_text(number: usize) -> String {
    format!("{number} {}", "x".repeat(LONG_TEXT_BYTES))
}

/// Queues long messages while the first turn runs a tool.
async fn fill_queue(node: &TestNode, count: usize) {
    for number in 0..count {
        node.deliver(ID, user_message(&long_text(number), IfBusy::Queue)).await.unwrap();
        node.wait_for_holds(1).await;
    }
}

fn holding() -> Value {
    json!({
        "name": "a",
        "model": {"provider": "scripted", "script": [
            {"calls": [{"name": "hold", "args": {}}]}, {"text": "Yes."}]},
        "working_budget": 10_000_000,
        "tools": [{"name": "hold", "run": {"native": "hold"}}],
    })
}

#[tokio::test(start_paused = true)]
async fn a_step_reads_no_message_that_still_waits_for_its_turn() {
    let store = Arc::new(FlakyStore::default());
    let node = TestNode::with_store(store.clone(), &holding().to_string()).await;
    fill_queue(&node, 5).await;
    node.tools.release.add_permits(5);
    node.turn_end(ID, 5).await;
    // Each message is read by the two steps of its own turn, and of each turn that follows.
    assert_eq!(message_reads(&store, 5), [10, 8, 6, 4, 2]);
    let texts = node.model.last_texts.lock().unwrap().clone();
    let users = texts.iter().filter(|text| text.len() > LONG_TEXT_BYTES).map(|text| &text[..1]);
    assert_eq!(users.collect::<String>(), "01234");
    node.check(ID).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_that_waits_while_earlier_turns_are_dropped_is_shown_in_its_turn() {
    let mut agent = holding();
    agent["working_budget"] = json!(10_000);
    let node = TestNode::new(&agent.to_string()).await;
    node.model.record_prompts.store(true, Ordering::SeqCst);
    fill_queue(&node, 3).await;
    // The last message is the next to have its turn.
    node.deliver(ID, user_message(&long_text(3), IfBusy::Interrupt)).await.unwrap();
    node.tools.release.add_permits(4);
    node.turn_end(ID, 4).await;
    let own = |prompt: &ModelRequest| {
        let texts = prompt.messages.iter().rev().map(|message| message.text());
        texts.filter(|text| text.len() > LONG_TEXT_BYTES).map(|text| text[..1].to_owned()).next()
    };
    let shown: String = node.model.prompts.lock().unwrap().iter().filter_map(own).collect();
    assert_eq!(shown, "0331122");
    let events = node.journal(ID).await;
    let is_first = |event: &&Event| matches!(event.data, EventData::ContextReduced(_));
    let queued = events.iter().filter(|event| matches!(event.data, EventData::UserMsg(_))).nth(1);
    let reduced = events.iter().find(is_first).unwrap();
    assert!(reduced.turn_id != queued.unwrap().turn_id, "nothing was dropped before its turn");
    node.check(ID).await;
}

#[tokio::test(start_paused = true)]
async fn a_step_reads_its_context_again_if_the_actor_has_rested_a_second() {
    let agent = json!({
        "name": "a",
        "model": {"provider": "scripted", "script": [
            {"calls": [{"id": "c", "name": "echo", "args": {"n": 1}}]}, {"text": "Well."}]},
        "tools": [{"name": "echo", "run": {"native": "echo"}, "approval": "requires_approval"}],
    });
    for (rest_ms, reads) in [(900, 0), (1_100, 1)] {
        let store = Arc::new(FlakyStore::default());
        let node = TestNode::with_store(store.clone(), &agent.to_string()).await;
        node.send(ID, "0 go").await.unwrap();
        node.wait_for_event(ID, |data| matches!(data, EventData::Suspension(_))).await;
        tokio::time::sleep(Duration::from_millis(rest_ms)).await;
        node.approve(ID, "c").await.unwrap();
        assert_eq!(node.turn_end(ID, 1).await, (TurnOutcome::Completed, None));
        assert_eq!(message_reads(&store, 1), [reads], "after {rest_ms} ms");
        node.check(ID).await;
    }
}
