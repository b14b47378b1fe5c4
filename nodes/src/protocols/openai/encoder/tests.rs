//! The events of whole responses, as golden files, and what is left of them after any cut.

mod cuts;

use std::path::PathBuf;

use abide_actors::live::{Delta, Signal};
use abide_conversation::event::Event;
use abide_conversation::{AgentName, ConversationId, Step, TurnId};

use super::*;
use crate::protocols::feed::sample_events::{
    called, ended, journal, message, resolved, result, started, suspended,
};
use crate::protocols::feed::{Answerable, Feed};
use crate::protocols::openai::response::ResponseId;

pub(super) fn head(from: u64) -> ResponseHead {
    ResponseHead {
        id: ResponseId {
            from: Seq::new(from),
            turn: TurnId::new("t"),
            conversation: ConversationId::new("c"),
        },
        model: AgentName::new("a"),
        created_at: "2026-01-01T00:00:00.000Z".parse().unwrap(),
    }
}

/// The events as clients read them.
fn values(events: Vec<ResponseEvent>) -> Vec<Value> {
    events.iter().map(|event| serde_json::to_value(event).unwrap()).collect()
}

/// One response: what happens, and the events that tell it.
pub(super) struct Case {
    answerable: Answerable,
    pub(super) events: Vec<Value>,
    feed: Feed,
    pub(super) encoder: ResponseEncoder,
}

impl Case {
    /// A response that begins with this event, told to a client that has events up to a number.
    pub(super) fn new(from: u64, after: u64) -> Self {
        let mut encoder = ResponseEncoder::new(head(from), from > 1).after(after);
        let events = values(encoder.begin());
        let feed = Feed::new(TurnId::new("t"), Seq::ZERO);
        Self { answerable: Answerable::All, events, feed, encoder }
    }

    fn for_nobody(mut self) -> Self {
        self.answerable = Answerable::Only(Default::default());
        self
    }

    /// Takes events that each are a commit, as they happen.
    pub(super) fn live(mut self, events: &[Event]) -> Self {
        for event in events {
            for item in self.feed.event(event, &self.answerable) {
                self.events.extend(values(self.encoder.item(Some(event.seq), &item)));
            }
            for item in self.feed.catch_up(&self.answerable) {
                // A response begins when its event is journalled, and not before.
                if item == Item::CaughtUp && event.seq < self.encoder.head.id.from {
                    continue;
                }
                self.events.extend(values(self.encoder.item(None, &item)));
            }
        }
        self
    }

    pub(super) fn signal(mut self, signal: &Signal) -> Self {
        for item in self.feed.signal(signal) {
            self.events.extend(values(self.encoder.item(None, &item)));
        }
        self
    }

    fn of_type(&self, kind: &str) -> Vec<&Value> {
        self.events.iter().filter(|event| event["type"] == kind).collect()
    }

    /// Compares the events with the golden file of this name, which `ABIDE_WRITE_GOLDEN` writes.
    fn equals_golden(&self, name: &str) {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/src/protocols/openai/encoder/golden");
        let file = PathBuf::from(golden).join(format!("{name}.jsonl"));
        let found: String = self.events.iter().map(|event| format!("{event}\n")).collect();
        if std::env::var_os("ABIDE_WRITE_GOLDEN").is_some() {
            std::fs::write(&file, &found).unwrap();
        }
        assert_eq!(found, std::fs::read_to_string(&file).unwrap(), "{name}");
        let numbers: Vec<u64> =
            self.events.iter().map(|it| it["sequence_number"].as_u64().unwrap()).collect();
        assert!(numbers.is_sorted_by(|one, other| one < other), "{numbers:?}");
    }
}

pub(super) fn text(message: &str, number: u64, text: &str) -> Signal {
    Signal::Text(delta(message, number, text))
}

pub(super) fn thinking(message: &str, number: u64, text: &str) -> Signal {
    Signal::Thinking(delta(message, number, text))
}

fn delta(message: &str, number: u64, text: &str) -> Delta {
    Delta {
        turn: TurnId::new("t"),
        step: Step::new(1),
        message: MessageId::new(message),
        text: text.to_owned(),
        delta_seq: number,
    }
}

fn waits(id: &str, kind: &str, number: u32, executor: &str) -> (&'static str, Value) {
    let (event, mut data) = suspended(id, kind, number);
    data["executor"] = json!(executor);
    (event, data)
}

fn approval(id: &str, approved: bool) -> (&'static str, Value) {
    let (event, mut data) = resolved(id, "approval", 1);
    data["approved"] = json!(approved);
    (event, data)
}

fn runs(id: &str) -> (&'static str, Value) {
    let data = json!({"call_id": id, "tool": id, "executor": "server", "intent": "compute",
        "args": {}, "attempt": 1});
    ("tool_started", data)
}

#[test]
fn a_plain_turn_streams_its_thinking_and_its_text() {
    let events = journal(&[started(), message("m", 1, "one two", &[]), ended()]);
    let case = Case::new(1, 0)
        .live(&events[..1])
        .signal(&thinking("m", 1, "Hm."))
        .signal(&text("m", 2, "one "))
        .live(&events[1..]);
    case.equals_golden("plain");
    let done = &case.events.last().unwrap()["response"];
    assert_eq!(done["output"][1]["phase"], "final_answer");
}

#[test]
fn the_number_of_a_delta_is_the_event_before_it_and_its_characters() {
    let events = journal(&[started()]);
    let case =
        Case::new(1, 0).live(&events).signal(&text("m", 1, "né ")).signal(&text("m", 2, "two"));
    let numbers: Vec<u64> = case
        .of_type("response.output_text.delta")
        .iter()
        .map(|event| event["sequence_number"].as_u64().unwrap())
        .collect();
    let base = (1 << 20) + 1_024;
    assert_eq!(numbers, [base + 3, base + 6]);
}

#[test]
fn an_approval_ends_a_response_and_the_next_one_has_the_call() {
    let events = journal(&[
        started(),
        message("m", 1, "", &["a", "b"]),
        called("a", "server", false),
        waits("a", "approval", 1, "server"),
        called("b", "server", true),
        result("b"),
        approval("a", true),
        runs("a"),
        result("a"),
        message("n", 2, "Done.", &[]),
        ended(),
    ]);
    let first = Case::new(1, 0).live(&events);
    first.equals_golden("approval_asked");
    let response = first.encoder.response();
    assert_eq!(response["status"], "completed");
    let kinds: Vec<&Value> =
        response["output"].as_array().unwrap().iter().map(|item| &item["type"]).collect();
    assert_eq!(kinds, ["reasoning", "mcp_approval_request", "mcp_call"]);
    let second = Case::new(7, 0).live(&events);
    second.equals_golden("approval_given");
    let output = second.encoder.response()["output"].clone();
    assert_eq!((&output[0]["id"], &output[0]["output"]), (&json!("mcp_a"), &json!("1")));
    assert_eq!(output[2]["content"][0]["text"], "Done.");
}

#[test]
fn a_call_of_the_client_that_needs_an_approval_is_asked_for_only_after_it() {
    let events = journal(&[
        started(),
        message("m", 1, "", &["a"]),
        called("a", "client", false),
        waits("a", "approval", 1, "client"),
        approval("a", true),
        waits("a", "client_exec", 2, "client"),
    ]);
    let first = Case::new(1, 0).live(&events);
    assert!(!json!(first.events).to_string().contains("function_call"), "{:?}", first.events);
    let second = Case::new(5, 0).live(&events);
    second.equals_golden("function");
    assert_eq!(second.encoder.response()["output"][0]["call_id"], "a");
}

#[test]
fn a_call_that_waited_before_is_asked_about_again() {
    let events = journal(&[
        started(),
        message("m", 1, "", &["a", "b"]),
        waits("a", "approval", 1, "server"),
        waits("b", "approval", 1, "server"),
        approval("a", false),
        result("a"),
    ]);
    let response = Case::new(5, 0).live(&events).encoder.response();
    let ids: Vec<&Value> =
        response["output"].as_array().unwrap().iter().map(|item| &item["id"]).collect();
    assert_eq!(ids, ["mcp_a", "mcpr_b.1"]);
}

#[test]
fn whoever_may_not_answer_is_asked_nothing() {
    let events = journal(&[
        started(),
        message("m", 1, "", &["a", "b"]),
        waits("a", "approval", 1, "server"),
        waits("b", "client_exec", 1, "client"),
    ]);
    let mut case = Case::new(1, 0).for_nobody().live(&events);
    assert!(!case.encoder.is_over(), "the response waits for others");
    let told = json!(case.events).to_string();
    assert!(!told.contains("mcpr_") && !told.contains("function_call"), "{told}");
    let last = values(case.encoder.finish(None));
    assert_eq!(last[0]["type"], "response.incomplete");
    assert_eq!(last[0]["response"]["incomplete_details"]["reason"], "waiting_for_others");
}

#[test]
fn each_end_of_a_turn_is_a_status() {
    for (outcome, kind, status) in [
        ("completed", "response.completed", "completed"),
        ("halted", "response.incomplete", "incomplete"),
        ("cancelled", "response.incomplete", "cancelled"),
        ("failed", "response.failed", "failed"),
    ] {
        let end = ("turn_ended", json!({"outcome": outcome, "reason": "max_steps"}));
        let case = Case::new(1, 0).live(&journal(&[started(), end]));
        let last = case.events.last().unwrap();
        assert_eq!((&last["type"], &last["response"]["status"]), (&json!(kind), &json!(status)));
        let response = &last["response"];
        assert_eq!(response["error"]["message"] == "max_steps", outcome == "failed");
        let halted = response["incomplete_details"]["reason"] == "max_steps";
        assert_eq!(halted, outcome == "halted");
    }
}

#[test]
fn a_call_that_failed_and_a_question_of_a_tool_have_their_items() {
    let failed = json!({"call_id": "a", "ok": false, "error": "no", "error_type": "TOOL_ERROR"});
    let events = journal(&[
        started(),
        message("m", 1, "", &["a", "b"]),
        called("a", "server", true),
        ("tool_result", failed),
        called("b", "server", true),
        waits("b", "elicitation", 1, "server"),
    ]);
    let case = Case::new(1, 0).live(&events);
    case.equals_golden("failed_call");
    let output = case.encoder.response()["output"].clone();
    assert_eq!((&output[1]["status"], &output[1]["output"]), (&json!("failed"), &Value::Null));
    assert_eq!(output[2]["call_id"], "b.1", "it may ask again");
}

#[test]
fn what_a_dead_node_wrote_of_a_message_is_no_part_of_the_response() {
    let events = journal(&[started(), message("n", 1, "whole", &[]), ended()]);
    let case = Case::new(1, 0)
        .live(&events[..1])
        .signal(&text("m", 1, "half"))
        .signal(&text("n", 1, "who"))
        .live(&events[1..]);
    case.equals_golden("begun_anew");
    let output = case.encoder.response()["output"].clone();
    assert_eq!(output.as_array().unwrap().len(), 1, "{output:#}");
    assert_eq!(output[0]["content"][0]["text"], "whole");
}

#[test]
fn a_stream_that_breaks_says_why() {
    let mut case = Case::new(1, 0).live(&journal(&[started()])).signal(&text("m", 1, "half"));
    let output = &case.encoder.response()["output"];
    assert_eq!(output[0]["content"][0]["text"], "half", "as far as it is");
    let last = values(case.encoder.finish(Some("the node shuts down")));
    assert_eq!(
        (&last[0]["type"], &last[0]["message"]),
        (&json!("error"), &json!("the node shuts down"))
    );
    let told = case.events.last().unwrap();
    assert_eq!(last[0]["sequence_number"], told["sequence_number"], "a client goes on from there");
    assert!(case.encoder.is_over());
}
