//! What whole streams tell, as golden files, and what is the same wherever a stream begins.

mod same;

use std::path::PathBuf;

use abide_actors::live::{Delta, Signal};
use abide_conversation::event::Event;
use abide_conversation::{ConversationId, Seq, Step, TurnId};

use super::*;
use crate::protocols::feed::sample_events::{
    called, ended, journal, message as says, resolved, result, started, suspended,
};
use crate::protocols::feed::{Answerable, Feed};

pub(super) fn head() -> TaskHead {
    let id = TaskId { turn: TurnId::new("turn_t"), conversation: ConversationId::new("c") };
    let parts = vec![json!({"text": "hello"})];
    let message = Some(message(&id, "ROLE_USER", "m-1", parts));
    TaskHead { id, message, submitted_at: "2025-12-31T23:59:59.000Z".parse().unwrap() }
}

/// One stream: what happens, and what is told of it.
struct Case {
    answerable: Answerable,
    events: Vec<Value>,
    feed: Feed,
    encoder: TaskEncoder,
}

impl Case {
    fn new(until: TellUntil) -> Self {
        Self {
            answerable: Answerable::All,
            events: Vec::new(),
            feed: Feed::new(TurnId::new("t"), Seq::ZERO),
            encoder: TaskEncoder::new(head(), until),
        }
    }

    fn for_nobody(mut self) -> Self {
        self.answerable = Answerable::Only(Default::default());
        self
    }

    /// Takes events that the journal has already.
    fn journalled(mut self, events: &[Event]) -> Self {
        for event in events {
            for item in self.feed.event(event, &self.answerable) {
                self.events.extend(self.encoder.item(Some(event.at), &item));
            }
        }
        self.catch_up()
    }

    fn catch_up(mut self) -> Self {
        for item in self.feed.catch_up(&self.answerable) {
            self.events.extend(self.encoder.item(None, &item));
        }
        self
    }

    /// Takes events that each are a commit, as they happen.
    fn live(mut self, events: &[Event]) -> Self {
        for event in events {
            self = self.journalled(std::slice::from_ref(event));
        }
        self
    }

    fn text(mut self, message: &str, number: u64, text: &str) -> Self {
        let signal = Signal::Text(Delta {
            turn: TurnId::new("t"),
            step: Step::new(1),
            message: MessageId::new(message),
            text: text.to_owned(),
            delta_seq: number,
        });
        for item in self.feed.signal(&signal) {
            self.events.extend(self.encoder.item(None, &item));
        }
        self
    }

    fn last_state(&self) -> &str {
        let status = self.events.iter().rev().find_map(|event| {
            let of_task = event["task"]["status"]["state"].as_str();
            of_task.or_else(|| event["statusUpdate"]["status"]["state"].as_str())
        });
        status.unwrap()
    }

    /// Compares the events, and the task, with the golden file of this name, which
    /// `ABIDE_WRITE_GOLDEN` writes.
    fn equals_golden(&self, name: &str) {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/src/protocols/a2a/encoder/golden");
        let file = PathBuf::from(golden).join(format!("{name}.jsonl"));
        let task = self.encoder.task(None);
        let lines = self.events.iter().chain([&task]);
        let found: String = lines.map(|event| format!("{event}\n")).collect();
        if std::env::var_os("ABIDE_WRITE_GOLDEN").is_some() {
            std::fs::write(&file, &found).unwrap();
        }
        assert_eq!(found, std::fs::read_to_string(&file).unwrap(), "{name}");
    }
}

fn approval() -> Vec<Event> {
    journal(&[
        started(),
        says("m", 1, "May I?", &["a"]),
        called("a", "server", false),
        suspended("a", "approval", 1),
        resolved("a", "approval", 1),
        called("a", "server", true),
        result("a"),
        says("n", 2, "Done.", &[]),
        ended(),
    ])
}

#[test]
fn a_plain_turn_is_a_task_with_its_text_in_pieces() {
    let events = journal(&[started(), says("m", 1, "one two", &[]), ended()]);
    let case = Case::new(TellUntil::Rest).catch_up().live(&events[..1]).text("m", 1, "one ");
    let case = case.live(&events[1..]);
    case.equals_golden("plain");
    assert_eq!((case.last_state(), case.encoder.is_over()), ("TASK_STATE_COMPLETED", true));
    assert!(!format!("{:?}", case.events).contains("Hm."), "what the model thinks is its own");
}

#[test]
fn a_task_that_waits_for_its_caller_asks_and_its_response_ends() {
    let events = approval();
    let case = Case::new(TellUntil::Question).catch_up().live(&events[..4]);
    case.equals_golden("asks");
    assert_eq!((case.last_state(), case.encoder.is_over()), ("TASK_STATE_INPUT_REQUIRED", true));
    let after = case.live(&events[4..]);
    assert_eq!(after.last_state(), "TASK_STATE_INPUT_REQUIRED", "the response has ended");
}

#[test]
fn a_subscriber_sees_the_answer_and_what_comes_of_it() {
    let case = Case::new(TellUntil::End).live(&approval());
    case.equals_golden("subscribed");
    assert_eq!(case.last_state(), "TASK_STATE_COMPLETED");
}

#[test]
fn a_caller_who_may_not_answer_is_asked_nothing_and_sees_no_arguments() {
    let until = |until| Case::new(until).for_nobody().catch_up().live(&approval()[..4]);
    assert!(until(TellUntil::Rest).encoder.is_over(), "nobody waits for others unless streaming");
    let case = until(TellUntil::Question);
    case.equals_golden("for_others");
    assert_eq!((case.last_state(), case.encoder.is_over()), ("TASK_STATE_WORKING", false));
    assert!(!format!("{:?}", case.events).contains("call_id"));
}

#[test]
fn a_text_that_was_begun_anew_is_taken_back() {
    let events = journal(&[started(), says("n", 1, "two", &[]), ended()]);
    let case = Case::new(TellUntil::Rest).live(&events[..1]).text("m", 1, "one").text("n", 1, "tw");
    let case = case.live(&events[1..]);
    case.equals_golden("begun_anew");
    let artifacts = case.encoder.task(None)["artifacts"].as_array().unwrap().len();
    assert_eq!(artifacts, 1);
}

#[test]
fn a_task_fails_with_its_reason_and_is_canceled() {
    for (outcome, state) in [
        ("failed", "TASK_STATE_FAILED"),
        ("halted", "TASK_STATE_FAILED"),
        ("cancelled", "TASK_STATE_CANCELED"),
    ] {
        let end = ("turn_ended", json!({"outcome": outcome, "reason": "so it is"}));
        let case = Case::new(TellUntil::Rest).journalled(&journal(&[started(), end]));
        assert_eq!(case.events.len(), 1, "a task that is over is told at once");
        let status = &case.events[0]["task"]["status"];
        assert_eq!(status["state"], state);
        assert_eq!(status["message"]["parts"][0]["text"], "so it is");
    }
}

#[test]
fn a_history_of_no_messages_is_absent() {
    let task = |length| Case::new(TellUntil::Rest).encoder.task(length);
    assert_eq!(task(Some(0)).get("history"), None);
    for length in [None, Some(1), Some(9)] {
        assert_eq!(task(length)["history"][0]["messageId"], "m-1");
    }
    assert_eq!(task(None)["status"]["state"], "TASK_STATE_SUBMITTED");
}

#[test]
fn arguments_that_an_approver_edits_are_asked_about_anew() {
    let mut case = Case::new(TellUntil::End).live(&approval()[..4]);
    let mut asked = case.encoder.waits_for[0].clone();
    asked.args = json!({"amount": 3}).into();
    let told = case.encoder.item(None, &Item::Suspended(Box::new(asked)));
    let part = &told[0]["statusUpdate"]["status"]["message"]["parts"][1];
    assert_eq!(part["data"]["abide"]["args"], json!({"amount": 3}));
}
