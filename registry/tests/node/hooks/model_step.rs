//! Hooks before a model call, on its stream, and on its message.

use std::sync::atomic::Ordering;

use abide_actors::live::Signal;
use abide_actors::request::Request;
use abide_conversation::event::{Event, EventData, TurnOutcome};
use abide_registry::live::StreamItem;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{ID, agent, echoes, hook, hook_fields, start_node, talks, with};
use crate::test_node::{TestNode, connect_client};

fn halted(reason: &str) -> (TurnOutcome, Option<String>) {
    (TurnOutcome::Halted, Some(reason.to_owned()))
}

fn count(events: &[Event], matches: impl Fn(&EventData) -> bool) -> usize {
    events.iter().filter(|event| matches(&event.data)).count()
}

/// The texts of the assistant's messages, thinking included.
fn reply_contents(events: &[Event]) -> Vec<Value> {
    let text = |event: &Event| match &event.data {
        EventData::AssistantMsg(reply) => Some(json!(reply.message.content)),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

#[tokio::test(start_paused = true)]
async fn what_pre_hooks_add_is_read_in_the_order_declared_and_is_no_part_of_the_journal() {
    let group = |name| with(hook("pre", name, "nap"), "parallel", "docs");
    let hooks =
        vec![hook("pre", "one", "add"), group("two"), group("three"), hook("pre", "four", "add")];
    let node = start_node(talks(), hooks).await;
    let before = Instant::now();
    node.send(ID, "hello").await.unwrap();
    node.turn_end(ID, 1).await;
    assert!(before.elapsed().as_millis() < 1_900, "the hooks of a group ran one after the other");
    assert_eq!(*node.model.last_texts.lock().unwrap(), ["hello", "one", "two", "three", "four"]);
    let events = node.journal(ID).await;
    assert_eq!(count(&events, |data| matches!(data, EventData::ContextAdded(_))), 0);
    assert_eq!(hook_fields(&node, "messages")[0][0]["content"][0]["text"], "hello");
    node.check(ID).await;
}

#[tokio::test(start_paused = true)]
async fn a_pre_hook_is_asked_before_every_step() {
    let node = start_node(echoes(1), vec![hook("pre", "known", "add")]).await;
    node.send(ID, "hello").await.unwrap();
    node.turn_end(ID, 1).await;
    assert_eq!(hook_fields(&node, "step"), [1, 2]);
    let read = node.model.last_texts.lock().unwrap().clone();
    assert_eq!(read.iter().filter(|text| *text == "known").count(), 1, "{read:?}");
    assert_eq!(read.last().unwrap(), "known", "the added text is not at the end of the context");
    node.check(ID).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_durable_hook_adds_is_journalled_once_a_step_and_survives_a_kill() {
    let durable = with(hook("pre", "drip", "add"), "durable", true);
    let node = start_node(talks(), vec![durable]).await;
    node.send(ID, "hello").await.unwrap();
    let added = |data: &EventData| matches!(data, EventData::ContextAdded(_));
    node.poll_for_event(ID, added).await;
    // The text `drip`, which the hook added, makes the model stream half a sentence and then
    // nothing.
    for times in [1, 2] {
        while node.model.call_count.load(Ordering::SeqCst) < times {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert_eq!(*node.model.last_texts.lock().unwrap(), ["hello", "drip"]);
        if times == 1 {
            node.kill(ID).await;
        }
    }
    assert_eq!(hook_fields(&node, "hook"), ["drip"]);
    assert_eq!(count(&node.journal(ID).await, added), 1);
    node.deliver(ID, Request::Cancel).await.unwrap();
    node.check(ID).await;
}

#[tokio::test(start_paused = true)]
async fn a_pre_hook_that_halts_fails_or_adds_too_much_halts_the_turn_before_the_model_is_asked() {
    let group = |native| vec![with(hook("pre", "h", native), "parallel", "g")];
    let durable = |native| vec![with(hook("pre", "h", native), "durable", true)];
    let plain = |native| vec![hook("pre", "h", native)];
    let over_reserve = "hook h went over the injection reserve of 4000 tokens";
    let mut twice = durable("add");
    twice[0]["name"] = json!("x".repeat(60));
    twice.push(hook("pre", "h", "flood"));
    for (hooks, reason) in [
        (plain("halt"), "hook h: enough"),
        (plain("hang"), "hook h failed"),
        (plain("panic"), "hook h failed"),
        (plain("deny"), "hook h failed"),
        (plain("flood"), over_reserve),
        (durable("halt"), "hook h: enough"),
        (durable("flood"), over_reserve),
        (twice, over_reserve),
        (group("halt"), "hook h failed"),
    ] {
        let node = start_node(talks(), hooks).await;
        node.send(ID, "hello").await.unwrap();
        assert_eq!(node.turn_end(ID, 1).await, halted(reason));
        assert_eq!(node.model.call_count.load(Ordering::SeqCst), 0);
        node.check(ID).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_larger_reserve_lets_more_be_added() {
    let mut agent = agent(talks(), vec![hook("pre", "h", "flood")]);
    agent["injection_reserve"] = json!(4_250);
    let node = TestNode::new(&agent.to_string()).await;
    node.send(ID, "hello").await.unwrap();
    assert_eq!(node.turn_end(ID, 1).await, (TurnOutcome::Completed, None));
}

#[tokio::test(start_paused = true)]
async fn a_post_hook_refuses_a_message_once_and_then_the_turn_is_halted() {
    let node = start_node(echoes(1), vec![hook("post", "h", "refuse")]).await;
    node.send(ID, "hello").await.unwrap();
    assert_eq!(node.turn_end(ID, 1).await, halted("hook h refused a second message: rude"));
    let events = node.journal(ID).await;
    assert_eq!(count(&events, |data| matches!(data, EventData::MessageRefused(_))), 2);
    assert_eq!(count(&events, |data| matches!(data, EventData::ToolCall(_))), 0);
    assert_eq!(node.model.call_count.load(Ordering::SeqCst), 2);
    let read = node.model.last_texts.lock().unwrap().clone();
    assert!(read.last().unwrap().contains("was not accepted: rude"), "{read:?}");
    assert_eq!(hook_fields(&node, "tool_calls")[0][0]["args"], json!({"n": 1}));
    node.check(ID).await;
}

#[tokio::test(start_paused = true)]
async fn a_post_hook_halts_the_turn_and_its_failure_does_only_if_it_fails_closed() {
    for (hook, ended) in [
        (hook("post", "h", "halt"), halted("hook h: enough")),
        (hook("post", "h", "hang"), (TurnOutcome::Completed, None)),
        (hook("post", "h", "panic"), (TurnOutcome::Completed, None)),
        (with(hook("post", "h", "panic"), "fail_closed", true), halted("hook h failed")),
    ] {
        let node = start_node(talks(), vec![hook]).await;
        node.send(ID, "hello").await.unwrap();
        assert_eq!(node.turn_end(ID, 1).await, ended);
        assert_eq!(reply_contents(&node.journal(ID).await).len(), 1);
        node.check(ID).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_stream_hook_let_through_is_what_is_shown_and_what_is_stored() {
    let node = start_node(talks(), vec![hook("stream", "h", "shout")]).await;
    let mut signals = connect_client(&node, ID);
    node.send(ID, "hello").await.unwrap();
    let (mut text, mut thinking) = (String::new(), String::new());
    loop {
        let StreamItem::Signal(shared) = signals.next().await else { continue };
        match &shared.signal {
            Signal::Text(delta) => text.push_str(&delta.text),
            Signal::Thinking(delta) => thinking.push_str(&delta.text),
            Signal::Committed(events)
                if events.iter().any(|event| matches!(event.data, EventData::TurnEnded(_))) =>
            {
                break;
            }
            _ => {}
        }
    }
    assert_eq!((text.as_str(), thinking.as_str()), ("WELL WELL", "SO IT IS"));
    let stored =
        json!([{"type": "reasoning", "text": "SO IT IS"}, {"type": "text", "text": "WELL WELL"}]);
    assert_eq!(reply_contents(&node.journal(ID).await), [stored]);
    node.check(ID).await;
}

#[tokio::test(start_paused = true)]
async fn a_structured_answer_is_judged_as_the_stream_hook_let_it_through() {
    let mut agent = agent(json!([{"text": "{\"n\": 1}"}]), vec![hook("stream", "h", "shout")]);
    agent["response_format"] = json!({"type": "object", "required": ["N"]});
    let node = TestNode::new(&agent.to_string()).await;
    node.send(ID, "hello").await.unwrap();
    assert_eq!(node.turn_end(ID, 1).await, (TurnOutcome::Completed, None));
    let object = node.journal(ID).await.into_iter().find_map(|event| match event.data {
        EventData::AssistantMsg(reply) => reply.message.object,
        _ => None,
    });
    assert_eq!(object, Some(json!({"N": 1})));
}

#[tokio::test(start_paused = true)]
async fn a_stream_hook_that_fails_is_left_out_and_one_that_fails_closed_fails_the_turn() {
    for native in ["hang", "panic", "deny"] {
        let node =
            start_node(talks(), vec![hook("stream", "h", native), hook("stream", "s", "shout")])
                .await;
        node.send(ID, "hello").await.unwrap();
        assert_eq!(node.turn_end(ID, 1).await, (TurnOutcome::Completed, None));
        let contents = reply_contents(&node.journal(ID).await);
        assert_eq!(contents[0][1]["text"], "WELL WELL", "{contents:?}");
        assert_eq!(hook_fields(&node, "hook").iter().filter(|hook| *hook == "h").count(), 1);
    }
    let closed = with(hook("stream", "h", "hang"), "fail_closed", true);
    let node = start_node(talks(), vec![closed]).await;
    node.send(ID, "hello").await.unwrap();
    assert_eq!(node.turn_end(ID, 1).await, (TurnOutcome::Failed, Some("hook h failed".to_owned())));
    assert!(
        reply_contents(&node.journal(ID).await).is_empty(),
        "text got past the failed stream hook"
    );
    node.check(ID).await;
}
