//! The chunks of whole responses, as golden files.

use std::path::PathBuf;

use abide_actors::live::{Delta, Signal};
use abide_conversation::event::Event;
use abide_conversation::{Seq, Step};

use super::*;
use crate::protocols::feed::sample_events::{
    called, ended, journal, message, resolved, result, started, suspended,
};
use crate::protocols::feed::{Answerable, Feed};

/// One response: what the page shows before, and what happens.
struct Case {
    version: Version,
    page: Vec<Value>,
    answerable: Answerable,
    chunks: Vec<Value>,
    feed: Feed,
    encoder: Encoder,
}

impl Case {
    fn new(version: Version) -> Self {
        Self::on_page(version, &[])
    }

    fn on_page(version: Version, page: &[Value]) -> Self {
        let turn = TurnId::new("t");
        let encoder =
            Encoder::new(version, ConversationId::new("c"), turn.clone(), Page::of_parts(page));
        let chunks = vec![encoder.begin()];
        let (feed, answerable) = (Feed::new(turn, Seq::ZERO), Answerable::All);
        Self { version, page: page.to_vec(), answerable, chunks, feed, encoder }
    }

    fn for_nobody(mut self) -> Self {
        self.answerable = Answerable::Only(Default::default());
        self
    }

    /// Takes these events at once, and then knows that there are no more.
    fn journalled(mut self, events: &[Event]) -> Self {
        for event in events {
            for item in self.feed.event(event, &self.answerable) {
                self.chunks.extend(self.encoder.item(&item));
            }
        }
        self.caught_up()
    }

    /// Takes these events one by one, as they happen.
    fn live(self, events: &[Event]) -> Self {
        events.iter().fold(self, |case, event| case.journalled(std::slice::from_ref(event)))
    }

    /// Takes the events up to the message that the page shows.
    fn primed(mut self, events: &[Event]) -> Self {
        for event in events {
            let items = self.feed.event(event, &self.answerable);
            self.encoder.prime(&items);
        }
        self
    }

    fn signal(mut self, signal: &Signal) -> Self {
        for item in self.feed.signal(signal) {
            self.chunks.extend(self.encoder.item(&item));
        }
        self
    }

    fn caught_up(mut self) -> Self {
        for item in self.feed.catch_up(&self.answerable) {
            self.chunks.extend(self.encoder.item(&item));
        }
        self
    }

    fn of_type(&self, kind: &str) -> Vec<&Value> {
        self.chunks.iter().filter(|chunk| chunk["type"] == kind).collect()
    }

    /// Compares the chunks with the golden file of this name, which `ABIDE_WRITE_GOLDEN` writes.
    fn equals_golden(&self, name: &str) {
        let name = match self.version {
            Version::V6 => format!("{name}.jsonl"),
            Version::V7 => format!("{name}.v7.jsonl"),
        };
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/src/protocols/ai_sdk/encoder/golden");
        let file = PathBuf::from(golden).join(&name);
        let found: String = self.chunks.iter().map(|chunk| format!("{chunk}\n")).collect();
        if std::env::var_os("ABIDE_WRITE_GOLDEN").is_some() {
            std::fs::write(&file, &found).unwrap();
        }
        let expected = std::fs::read_to_string(&file).unwrap();
        assert_eq!(found, expected, "{name}, for a page with {:?}", self.page);
    }
}

const VERSIONS: [Version; 2] = [Version::V6, Version::V7];

/// A suspension with these members besides.
fn waits(id: &str, kind: &str, number: u32, executor: &str) -> (&'static str, Value) {
    let (event, mut data) = suspended(id, kind, number);
    data["executor"] = json!(executor);
    data["intent"] = json!("action");
    (event, data)
}

fn approval(id: &str, approved: bool) -> (&'static str, Value) {
    let (event, mut data) = resolved(id, "approval", 1);
    data["approved"] = json!(approved);
    data["reason"] = json!("so");
    (event, data)
}

fn failed(id: &str, error: &str, kind: &str) -> (&'static str, Value) {
    let data = json!({"call_id": id, "ok": false, "error": error, "error_type": kind});
    ("tool_result", data)
}

fn runs(id: &str, executor: &str) -> (&'static str, Value) {
    let data = json!({"call_id": id, "tool": id, "executor": executor, "intent": "compute",
        "args": {}, "attempt": 1});
    ("tool_started", data)
}

fn text(message: &str, number: u64, text: &str) -> Signal {
    Signal::Text(Delta {
        turn: TurnId::new("t"),
        step: Step::new(1),
        message: MessageId::new(message),
        text: text.to_owned(),
        delta_seq: number,
    })
}

#[test]
fn a_plain_turn_streams_its_text() {
    let events = journal(&[started(), message("m", 1, "one two", &[]), ended()]);
    Case::new(Version::V6)
        .live(&events[..1])
        .signal(&text("m", 1, "one "))
        .live(&events[1..])
        .equals_golden("plain");
}

#[test]
fn an_approved_call_of_the_server_runs() {
    for version in VERSIONS {
        let events = journal(&[
            started(),
            message("m", 1, "", &["a"]),
            called("a", "server", false),
            waits("a", "approval", 1, "server"),
            approval("a", true),
            runs("a", "server"),
            result("a"),
            message("n", 2, "Done.", &[]),
            ended(),
        ]);
        let asked = Case::new(version).journalled(&events[..4]);
        assert!(asked.encoder.is_over());
        asked.equals_golden("approval_asked");
        let page = [json!({"type": "tool-a", "toolCallId": "a", "state": "approval-responded",
            "input": {}, "approval": {"id": "a/1", "approved": true}})];
        Case::on_page(version, &page)
            .primed(&events[..2])
            .journalled(&events[2..5])
            .live(&events[5..])
            .equals_golden("approval_given");
        // For a page that is loaded anew, nothing is asked that was answered.
        let anew = Case::new(version).journalled(&events);
        assert!(anew.of_type("tool-approval-request").is_empty());
        anew.equals_golden("approval_told_anew");
    }
}

#[test]
fn a_denied_call_has_the_approval_that_was_denied() {
    for version in VERSIONS {
        let events = journal(&[
            started(),
            message("m", 1, "", &["a"]),
            called("a", "server", false),
            waits("a", "approval", 1, "server"),
            approval("a", false),
            failed("a", "denied by approver: so", "DENIED"),
            message("n", 2, "Well.", &[]),
            ended(),
        ]);
        Case::new(version).journalled(&events).equals_golden("denied");
        // Somebody else denied what the page has just approved.
        let page = [json!({"type": "tool-a", "toolCallId": "a", "state": "approval-responded",
            "input": {}, "approval": {"id": "a/1", "approved": true}})];
        let late = Case::on_page(version, &page).primed(&events[..2]).journalled(&events[2..]);
        assert_eq!(late.of_type("tool-output-denied").len(), 1, "{:?}", late.chunks);
        late.equals_golden("denied_elsewhere");
    }
}

#[test]
fn the_input_of_a_gated_call_of_a_page_is_not_there_before_the_approval() {
    let events = journal(&[
        started(),
        message("m", 1, "", &["a"]),
        called("a", "client", false),
        waits("a", "approval", 1, "client"),
        approval("a", true),
        runs("a", "client"),
        waits("a", "client_exec", 2, "client"),
        resolved("a", "client_exec", 2),
        result("a"),
        message("n", 2, "Done.", &[]),
        ended(),
    ]);
    let asked = Case::new(Version::V6).live(&events[..4]);
    assert!(asked.of_type("tool-input-available").is_empty(), "{:?}", asked.chunks);
    asked.equals_golden("gated_client_asked");
    let page = [json!({"type": "tool-a", "toolCallId": "a", "state": "approval-responded",
        "input": {}, "approval": {"id": "a/1", "approved": true}})];
    let approved = Case::on_page(Version::V6, &page).primed(&events[..2]).journalled(&events[2..7]);
    approved.equals_golden("gated_client_approved");
    // A page that is loaded anew does not execute what is done.
    let anew = Case::new(Version::V6).journalled(&events);
    assert!(anew.of_type("tool-input-available").is_empty(), "{:?}", anew.chunks);
}

#[test]
fn a_question_has_its_schema_and_an_answer_that_is_shown_is_not_told() {
    let (kind, mut asks) = waits("a", "elicitation", 1, "human");
    asks["answer_schema"] = json!({"type": "string"});
    let events = journal(&[
        started(),
        message("m", 1, "", &["a"]),
        called("a", "human", true),
        (kind, asks),
        resolved("a", "elicitation", 1),
        result("a"),
        message("n", 2, "Done.", &[]),
        ended(),
    ]);
    Case::new(Version::V6).live(&events[..4]).equals_golden("question");
    for (output, is_told) in [(json!(1), false), (json!(2), true)] {
        let page = [json!({"type": "tool-a", "toolCallId": "a", "state": "output-available",
            "input": {}, "output": output,
            "toolMetadata": {"abide": {"suspension": 1}}})];
        let case = Case::on_page(Version::V6, &page).primed(&events[..2]).journalled(&events[2..]);
        assert_eq!(!case.of_type("tool-output-available").is_empty(), is_told, "{output}");
    }
}

#[test]
fn a_page_whose_caller_may_not_answer_has_nothing_to_answer() {
    let events = journal(&[
        started(),
        message("m", 1, "", &["a", "b", "d"]),
        called("a", "server", false),
        waits("a", "approval", 1, "server"),
        called("b", "client", false),
        waits("b", "approval", 1, "client"),
        called("d", "human", true),
        waits("d", "elicitation", 1, "human"),
    ]);
    let mut case = Case::new(Version::V6).for_nobody().live(&events);
    assert!(!case.encoder.is_over(), "the response waits for others");
    assert!(case.of_type("tool-approval-request").is_empty(), "{:?}", case.chunks);
    let chunks = case.encoder.finish(None);
    case.chunks.extend(chunks);
    case.equals_golden("waits_for_others");
}

#[test]
fn what_was_told_of_a_message_that_was_begun_anew_is_taken_back() {
    for version in VERSIONS {
        let events = journal(&[started(), message("n", 1, "whole", &[]), ended()]);
        Case::new(version)
            .live(&events[..1])
            .signal(&text("m", 1, "half"))
            .signal(&text("n", 1, "who"))
            .live(&events[1..])
            .equals_golden("begun_anew");
    }
}

#[test]
fn each_end_of_a_turn_has_its_chunks() {
    for (outcome, name) in [("cancelled", "cancelled"), ("halted", "halted"), ("failed", "failed")]
    {
        let reason = (outcome != "cancelled").then_some("max_steps");
        let events = journal(&[
            started(),
            message("m", 1, "", &["a"]),
            called("a", "server", true),
            failed("a", "[cancelled]", "CANCELLED"),
            ("turn_ended", json!({"outcome": outcome, "reason": reason})),
        ]);
        let case = Case::new(Version::V6).live(&events);
        assert!(case.encoder.is_over());
        case.equals_golden(name);
    }
}

#[test]
fn calls_that_never_ran_and_what_tools_show_have_their_chunks() {
    let (kind, mut shown) = result("b");
    shown["ui"] = json!({"kind": "map", "payload": {"zoom": 3}});
    let todos = json!({"call_id": "b", "todos": [{"content": "pack", "status": "pending"}]});
    let events = journal(&[
        started(),
        message("m", 1, "", &["a", "b", "d", "e"]),
        called("a", "server", false),
        failed("a", "unknown tool: a", "TOOL_NOT_FOUND"),
        called("b", "server", true),
        (kind, shown),
        ("todos_changed", todos),
        // A page executes it, and nobody waits for its answer.
        called("d", "client", true),
        result("d"),
        called("e", "provider", true),
        result("e"),
    ]);
    let progress = Signal::Progress { call: "b".into(), payload: json!({"percent": 40}) };
    Case::new(Version::V6)
        .live(&events[..5])
        .signal(&progress)
        .live(&events[5..])
        .equals_golden("results");
}

#[test]
fn a_response_that_breaks_says_why_and_ends() {
    let mut case =
        Case::new(Version::V6).live(&journal(&[started()])).signal(&text("m", 1, "half"));
    let chunks = case.encoder.finish(Some("the node shuts down"));
    case.chunks.extend(chunks);
    assert!(case.encoder.is_over());
    case.equals_golden("broken");
    assert!(case.encoder.item(&Item::CaughtUp).is_empty());
}
