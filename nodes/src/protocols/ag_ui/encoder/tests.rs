//! The events of whole runs, as golden files, and the rules that clients enforce on any of them.

use std::collections::BTreeSet;
use std::path::PathBuf;

use abide_actors::live::{Delta, Signal};
use abide_conversation::event::Event;
use abide_conversation::{MessageId, Seq, Step, TurnId};
use proptest::prelude::*;

use super::*;
use crate::protocols::ag_ui::history;
use crate::protocols::feed::sample_events::{
    called, ended, journal, message, resolved, result, started, suspended,
};
use crate::protocols::feed::{Answerable, Feed};

const DIALECTS: [Dialect; 2] = [Dialect::V0, Dialect::V1];

/// One run, and all that happens in its turn.
struct Case {
    answerable: Answerable,
    journal: Vec<Event>,
    events: Vec<Value>,
    feed: Feed,
    encoder: RunEncoder,
}

impl Case {
    /// A run whose client executes these tools.
    fn new(dialect: Dialect, tools: &[&str]) -> Self {
        let tools = RunTools::new(tools.iter().map(|name| (*name).to_owned()));
        let encoder = RunEncoder::new(dialect, "c", "r", tools);
        let events = vec![encoder.begin()];
        let feed = Feed::new(TurnId::new("t"), Seq::ZERO);
        Self { answerable: Answerable::All, journal: Vec::new(), events, feed, encoder }
    }

    fn for_nobody(mut self) -> Self {
        self.answerable = Answerable::Only(Default::default());
        self
    }

    /// Takes these events one by one, as they happen.
    fn live(mut self, events: &[Event]) -> Self {
        for event in events {
            self.journal.push(event.clone());
            let items = self.feed.event(event, &self.answerable);
            self.take(&items);
            let items = self.feed.catch_up(&self.answerable);
            self.take(&items);
        }
        self
    }

    /// Takes these events as what a snapshot has.
    fn primed(mut self, events: &[Event]) -> Self {
        for event in events {
            self.journal.push(event.clone());
            let items = self.feed.event(event, &self.answerable);
            self.encoder.prime(&items);
        }
        let messages = self.messages();
        self.events.extend(self.encoder.snapshot(messages));
        let items = self.feed.catch_up(&self.answerable);
        self.take(&items);
        self
    }

    fn signal(mut self, signal: &Signal) -> Self {
        let items = self.feed.signal(signal);
        self.take(&items);
        self
    }

    fn take(&mut self, items: &[Item]) {
        for item in items {
            self.events.extend(self.encoder.item(item));
            match self.encoder.take_demand() {
                Some(Demand::Interrupt(calls)) => {
                    let snapshot = (json!({"abide": {}}), self.messages());
                    self.events.extend(self.encoder.interrupt(&calls, snapshot));
                }
                Some(Demand::Messages) => {
                    let messages = self.messages();
                    self.events.extend(self.encoder.snapshot(messages));
                }
                None => {}
            }
        }
    }

    fn messages(&self) -> Vec<Value> {
        let words = json!([{"type": "text", "text": "Go."}]);
        let question = json!({"message": {"id": "u", "role": "user", "content": words},
            "message_id": "m-1", "principal": "ada"});
        let mut events = journal(&[("user_msg", question)]);
        events.extend(self.journal.iter().cloned());
        history::messages(&events, self.encoder.tools(), self.encoder.dialect())
    }

    fn of_type(&self, kind: &str) -> Vec<&Value> {
        self.events.iter().filter(|event| event["type"] == kind).collect()
    }

    /// Whether a client knows of this call, by an event or a snapshot.
    fn tells(&self, call: &str) -> bool {
        let in_message = |message: &Value| {
            message["toolCalls"].as_array().is_some_and(|all| all.iter().any(|it| it["id"] == call))
        };
        let in_snapshot = |event: &Value| {
            event["messages"].as_array().is_some_and(|it| it.iter().any(in_message))
        };
        let in_event =
            |event: &Value| event["type"] == "TOOL_CALL_START" && event["toolCallId"] == call;
        self.events.iter().any(|event| in_snapshot(event) || in_event(event))
    }

    /// Compares the events with the golden file of this name, which `ABIDE_WRITE_GOLDEN` writes.
    fn equals_golden(&self, name: &str) {
        check_rules(&self.events);
        let name = match self.encoder.dialect() {
            Dialect::V0 => format!("{name}.v0.jsonl"),
            Dialect::V1 => format!("{name}.jsonl"),
        };
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/src/protocols/ag_ui/encoder/golden");
        let file = PathBuf::from(golden).join(&name);
        let found: String = self.events.iter().map(|event| format!("{event}\n")).collect();
        if std::env::var_os("ABIDE_WRITE_GOLDEN").is_some() {
            std::fs::write(&file, &found).unwrap();
        }
        assert_eq!(found, std::fs::read_to_string(&file).unwrap(), "{name}");
    }
}

/// Asserts what the clients require of any run.
fn check_rules(events: &[Value]) {
    assert_eq!(events[0]["type"], "RUN_STARTED");
    let mut open: BTreeSet<(String, String)> = BTreeSet::new();
    for (index, event) in events.iter().enumerate() {
        let kind = event["type"].as_str().unwrap();
        let is_last = index + 1 == events.len();
        assert!(index == 0 || kind != "RUN_STARTED", "{events:#?}");
        assert!(!event.as_object().unwrap().values().any(Value::is_null), "a null: {event}");
        let id = ["toolCallId", "messageId", "stepName"].iter().find_map(|id| event[*id].as_str());
        let id = id.unwrap_or_default().to_owned();
        match kind {
            "RUN_ERROR" => assert!(is_last, "events after an error: {events:#?}"),
            "RUN_FINISHED" => assert!(is_last && open.is_empty(), "open: {open:?}"),
            "TOOL_CALL_RESULT" => {}
            "TOOL_CALL_ARGS" => assert!(open.contains(&("TOOL_CALL".into(), id)), "{event}"),
            kind => {
                if let Some(what) = kind.strip_suffix("_START").or(kind.strip_suffix("_STARTED")) {
                    let is_new = what == "RUN" || open.insert((what.to_owned(), id));
                    assert!(is_new, "{event} in {events:#?}");
                } else if let Some(what) = kind.strip_suffix("_CONTENT") {
                    assert!(open.contains(&(what.to_owned(), id)), "{event}");
                } else if let Some(what) =
                    kind.strip_suffix("_END").or(kind.strip_suffix("_FINISHED"))
                {
                    assert!(open.remove(&(what.to_owned(), id)), "{event}");
                }
            }
        }
    }
}

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

fn delta(message: &str, number: u64, text: &str) -> Delta {
    Delta {
        turn: TurnId::new("t"),
        step: Step::new(1),
        message: MessageId::new(message),
        text: text.to_owned(),
        delta_seq: number,
    }
}

fn approved_call() -> Vec<Event> {
    journal(&[
        started(),
        message("m", 1, "", &["a"]),
        called("a", "server", false),
        waits("a", "approval", 1, "server"),
        approval("a", true),
        runs("a", "server"),
        result("a"),
        message("n", 2, "Done.", &[]),
        ended(),
    ])
}

/// A call of the client that needs an approval.
fn gated_client_call(approved: bool) -> Vec<Event> {
    let asks = [
        started(),
        message("m", 1, "", &["a"]),
        called("a", "client", false),
        waits("a", "approval", 1, "client"),
        approval("a", approved),
    ];
    let then = if approved {
        vec![
            runs("a", "client"),
            waits("a", "client_exec", 2, "client"),
            resolved("a", "client_exec", 2),
            result("a"),
        ]
    } else {
        vec![failed("a", "denied by approver", "DENIED")]
    };
    let end = [message("n", 2, "Done.", &[]), ended()];
    journal(&asks.into_iter().chain(then).chain(end).collect::<Vec<_>>())
}

#[test]
fn a_plain_turn_streams_its_thinking_and_its_text() {
    for dialect in DIALECTS {
        let events = journal(&[started(), message("m", 1, "one two", &[]), ended()]);
        Case::new(dialect, &[])
            .live(&events[..1])
            .signal(&Signal::Thinking(delta("m", 1, "Hm.")))
            .signal(&Signal::Text(delta("m", 2, "one ")))
            .live(&events[1..])
            .equals_golden("plain");
    }
}

#[test]
fn an_approval_is_an_interrupt_and_its_answer_is_told_after_a_snapshot() {
    for dialect in DIALECTS {
        let events = approved_call();
        let asked = Case::new(dialect, &[]).live(&events[..4]);
        assert!(asked.encoder.is_over());
        asked.equals_golden("approval_asked");
        let given = Case::new(dialect, &[]).primed(&events[..4]);
        assert!(given.encoder.is_over(), "a run that only attaches rests, too");
        let mut given = Case::new(dialect, &[]);
        given.answerable = Answerable::Only(Default::default());
        given.primed(&events[..4]).live(&events[4..]).equals_golden("approval_given");
    }
}

#[test]
fn a_gated_call_of_the_client_is_unknown_to_it_before_its_approval() {
    for (dialect, tools) in DIALECTS.into_iter().flat_map(|it| [(it, &["a"][..]), (it, &[])]) {
        let events = gated_client_call(true);
        for count in 0..=5 {
            let live = Case::new(dialect, tools).live(&events[..count]);
            assert!(!live.tells("a"), "{:#?}", live.events);
            let snapshot = Case::new(dialect, tools).primed(&events[..count]);
            assert!(!snapshot.tells("a"), "after {count}: {:#?}", snapshot.events);
        }
        let after = Case::new(dialect, tools).for_nobody().primed(&events[..4]).live(&events[4..7]);
        assert!(after.of_type("TOOL_CALL_START")[0]["parentMessageId"].is_null());
        let before = Case::new(dialect, tools).primed(&events[..4]).messages();
        assert_eq!(before.len(), 3, "the question, the thinking and the message: {before:#?}");
        // Whoever attaches after the approval is to execute it, too.
        let attached = Case::new(dialect, tools).primed(&events[..7]);
        assert_eq!(attached.of_type("TOOL_CALL_START").len(), 1, "{:#?}", attached.events);
        let denied = gated_client_call(false);
        let denied = Case::new(dialect, tools).for_nobody().live(&denied);
        assert!(denied.of_type("TOOL_CALL_START").is_empty(), "{:#?}", denied.events);
        assert!(denied.tells("a"), "a snapshot tells it with its result");
        check_rules(&denied.events);
    }
    for dialect in DIALECTS {
        let events = gated_client_call(true);
        Case::new(dialect, &["a"]).live(&events[..4]).equals_golden("gated_client_asked");
        Case::new(dialect, &["a"])
            .for_nobody()
            .primed(&events[..4])
            .live(&events[4..5])
            .equals_golden("gated_client_answered");
        Case::new(dialect, &["a"]).primed(&events[..7]).equals_golden("gated_client_approved");
    }
}

#[test]
fn a_server_call_with_the_name_of_a_clients_tool_is_hidden_as_well() {
    let events = approved_call();
    let asked = Case::new(Dialect::V1, &["a"]).live(&events[..4]);
    assert!(!asked.tells("a"), "{:#?}", asked.events);
}

#[test]
fn the_clients_calls_come_first_and_then_the_interrupts() {
    for dialect in DIALECTS {
        let events = journal(&[
            started(),
            message("m", 1, "", &["a", "b", "d"]),
            called("a", "client", true),
            waits("a", "client_exec", 1, "client"),
            called("b", "server", false),
            waits("b", "approval", 1, "server"),
            called("d", "human", true),
            waits("d", "elicitation", 1, "human"),
            resolved("a", "client_exec", 1),
            result("a"),
        ]);
        let first = Case::new(dialect, &["a"]).live(&events[..8]);
        assert!(first.encoder.is_over());
        first.equals_golden("client_first");
        let mut then = Case::new(dialect, &["a"]).for_nobody().primed(&events[..8]);
        then.answerable = Answerable::All;
        then.live(&events[8..]).equals_golden("then_interrupts");
    }
}

#[test]
fn interrupts_that_the_caller_may_not_answer_are_not_listed() {
    for dialect in DIALECTS {
        let mut case = Case::new(dialect, &["a"]).for_nobody().live(&approved_call()[..4]);
        assert!(!case.encoder.is_over(), "the run waits for others");
        let events = case.encoder.succeed();
        case.events.extend(events);
        assert!(case.events.iter().all(|event| event["outcome"]["interrupts"].is_null()));
        case.equals_golden("waits_for_others");
    }
}

#[test]
fn what_was_told_of_a_message_that_was_begun_anew_is_taken_back() {
    for dialect in DIALECTS {
        let events = journal(&[started(), message("n", 1, "whole", &[]), ended()]);
        Case::new(dialect, &[])
            .live(&events[..1])
            .signal(&Signal::Text(delta("m", 1, "half")))
            .signal(&Signal::Text(delta("n", 1, "who")))
            .live(&events[1..])
            .equals_golden("begun_anew");
    }
}

#[test]
fn each_end_of_a_turn_has_its_events() {
    for dialect in DIALECTS {
        for outcome in ["completed", "cancelled", "halted", "failed"] {
            let reason = (outcome == "halted").then_some("max_steps");
            let usage = json!({"input_tokens": 3, "output_tokens": 2});
            let events = journal(&[
                started(),
                message("m", 1, "", &["a"]),
                called("a", "server", true),
                failed("a", "[cancelled]", "CANCELLED"),
                ("turn_ended", json!({"outcome": outcome, "reason": reason, "usage": usage})),
            ]);
            let case = Case::new(dialect, &[]).live(&events);
            assert!(case.encoder.is_over());
            case.equals_golden(outcome);
        }
    }
}

#[test]
fn a_run_that_breaks_says_why_and_ends() {
    for dialect in DIALECTS {
        let events = journal(&[started()]);
        let mut case =
            Case::new(dialect, &[]).live(&events).signal(&Signal::Text(delta("m", 1, "half")));
        let events = case.encoder.fail("moved", "the node shuts down");
        case.events.extend(events);
        case.equals_golden("moved");
        assert!(case.encoder.item(&Item::CaughtUp).is_empty());
    }
}

/// Something that may happen to the calls `a` and `b` of a step, or to its message.
#[derive(Clone, Debug)]
enum Happening {
    Event(&'static str, Value),
    Text(&'static str, u64),
    Thinking(&'static str, u64),
}

fn happening() -> impl Strategy<Value = Happening> {
    let call = prop_oneof![Just("a"), Just("b")];
    let executor = prop_oneof![Just("server"), Just("client"), Just("human")];
    let kind = prop_oneof![Just("approval"), Just("client_exec"), Just("elicitation")];
    let event =
        (call, executor, kind, 1..3_u32, 0..8_u8).prop_map(|(id, executor, kind, n, what)| {
            let (kind, data) = match what {
                0 => message("m", n, "text", &["a", "b"]),
                1 => called(id, executor, true),
                2 => waits(id, kind, n, executor),
                3 => resolved(id, kind, n),
                4 => runs(id, executor),
                5 => result(id),
                6 => failed(id, "no", "DENIED"),
                _ => message("n", n, "more", &[]),
            };
            Happening::Event(kind, data)
        });
    let id = || prop_oneof![Just("m"), Just("n"), Just("o")];
    prop_oneof![
        4 => event,
        1 => (id(), 1..4_u64).prop_map(|(id, n)| Happening::Text(id, n)),
        1 => (id(), 1..4_u64).prop_map(|(id, n)| Happening::Thinking(id, n)),
    ]
}

proptest! {
    #[test]
    fn any_sequence_obeys_the_rules_of_the_clients(
        happenings in prop::collection::vec(happening(), 0..30),
        is_v1: bool,
        has_tool: bool,
        may_answer: bool,
        ends: bool,
    ) {
        let dialect = if is_v1 { Dialect::V1 } else { Dialect::V0 };
        let mut case = Case::new(dialect, if has_tool { &["a"] } else { &[] });
        if !may_answer {
            case = case.for_nobody();
        }
        let mut all = vec![started()];
        for happening in &happenings {
            if let Happening::Event(kind, data) = happening {
                all.push((*kind, data.clone()));
            }
        }
        all.push(ended());
        let events = journal(&all);
        case = case.live(&events[..1]);
        let mut next = 1;
        for happening in happenings {
            case = match happening {
                Happening::Event(..) => {
                    next += 1;
                    case.live(&events[next - 1..next])
                }
                Happening::Text(id, n) => case.signal(&Signal::Text(delta(id, n, "x"))),
                Happening::Thinking(id, n) => case.signal(&Signal::Thinking(delta(id, n, "y"))),
            };
        }
        if ends {
            case = case.live(&events[next..]);
        }
        let end = case.encoder.succeed();
        case.events.extend(end);
        check_rules(&case.events);
    }
}
