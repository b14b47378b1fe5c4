//! Tests of prompts from journals, including journals that should never occur.
#![allow(clippy::unwrap_used)]

use std::collections::HashSet;

use abide_conversation::event::{
    AnswerFormat, AssistantMsg, DispatchFinished, Event, EventData, RepairRequested, Steered,
    ToolResult, TurnEnded, TurnOutcome, TurnStarted, UserMsg,
};
use abide_conversation::message::{
    CallRef, ErrorType, Message, MessageRole, MessageStatus, Outcome, Ui, text_block,
};
use abide_conversation::{
    AgentName, CallId, MessageId, Principal, Revision, Seq, Step, Timestamp, TurnId,
};
use proptest::prelude::*;
use serde_json::json;

use abide_conversation::context::{Context, ContextMarks, Summary};

use super::result::{MAX_RESULT_BYTES, ResultMedia};
use super::{PromptBuilder, PromptInput, ToolRule, results_by_call};

/// The prompt of a step, from a complete journal.
fn messages(events: &[Event], turn: &TurnId) -> Vec<Message> {
    prompt_messages(events, turn.as_str(), &Context::default())
}

fn message(id: &str, role: MessageRole, text: &str) -> Message {
    Message::new(MessageId::new(id), role, vec![text_block(text)])
}

fn user(text: &str) -> EventData {
    EventData::UserMsg(UserMsg {
        message: message("u", MessageRole::User, text),
        message_id: None,
        scheduled_id: None,
        principal: Principal::new("anna"),
        identity: None,
        assigns: Default::default(),
        answer_format: AnswerFormat::Agent,
        tools: Default::default(),
        context: Vec::new(),
    })
}

fn turn_started() -> EventData {
    let agent = AgentName::new("demo");
    EventData::TurnStarted(TurnStarted {
        agent,
        revision: Revision::new("r"),
        max_steps: 9,
        budget: Default::default(),
        summarize_over: None,
    })
}

fn turn_ended() -> EventData {
    EventData::TurnEnded(TurnEnded { outcome: TurnOutcome::Completed, reason: None, usage: None })
}

fn assistant_event(text: &str, calls: &[&str], status: MessageStatus) -> EventData {
    let call =
        |id: &&str| CallRef { id: CallId::new(*id), name: "t".into(), args: json!({}).into() };
    let tool_calls = calls.iter().map(call).collect();
    let message = Message { tool_calls, ..message("a", MessageRole::Assistant, text) };
    EventData::AssistantMsg(AssistantMsg {
        message,
        status,
        step: Step::FIRST,
        usage: None,
        stop: None,
        verbatim: None,
        fallback: None,
        context_tokens: None,
        read_upto: None,
    })
}

fn result_event(call: &str, outcome: Outcome) -> EventData {
    let ui = Some(Ui { kind: "card".into(), payload: json!("SECRET") });
    EventData::ToolResult(ToolResult {
        call_id: CallId::new(call),
        outcome,
        ui,
        effective_args: None,
    })
}

fn steered(text: &str) -> EventData {
    let EventData::UserMsg(UserMsg { message, .. }) = user(text) else { unreachable!() };
    EventData::Steered(Steered {
        message,
        message_id: None,
        principal: Principal::new("anna"),
        identity: None,
    })
}

fn dispatch() -> EventData {
    EventData::DispatchFinished(DispatchFinished {
        call_id: CallId::new("d"),
        tool: "t".into(),
        input: json!({}).into(),
        principal: Principal::new("anna"),
        result: Outcome::Ok(json!("SECRET")),
        ui: None,
        verdict: None,
        effective_args: None,
    })
}

fn journal(events: impl IntoIterator<Item = (&'static str, EventData)>) -> Vec<Event> {
    let at = Timestamp::UNIX_EPOCH;
    let event = |(n, (turn, data)): (usize, (&str, EventData))| {
        let turn_id = (!turn.is_empty()).then(|| TurnId::new(turn));
        Event { seq: Seq::new(n as u64 + 1), at, turn_id, data }
    };
    events.into_iter().enumerate().map(event).collect()
}

fn prompt_messages(events: &[Event], turn: &str, context: &Context) -> Vec<Message> {
    let (turn, rules) = (&TurnId::new(turn), |name: &str| rule(name));
    let events: Vec<&Event> = events.iter().collect();
    let view = PromptInput { events: &events, turn, context, rules: &rules };
    view.messages().into_iter().map(|prompt| prompt.message).collect()
}

/// One line per message: its role, its text, and the ids of its calls.
fn prompt_lines(events: &[Event], turn: &str) -> Vec<String> {
    lines_of(&prompt_messages(events, turn, &Context::default()))
}

fn lines_of(messages: &[Message]) -> Vec<String> {
    let line = |message: &Message| {
        let role = match message.role {
            MessageRole::User => "user",
            MessageRole::Assistant => "assistant",
            MessageRole::Tool => "tool",
        };
        let calls: Vec<&str> = message.tool_calls.iter().map(|call| call.id.as_str()).collect();
        let of = message.tool_call_id.as_ref().map_or("", |id| id.as_str());
        format!("{role} {} {}{of}", message.text(), calls.join(","))
    };
    messages.iter().map(line).collect()
}

mod marks;

use marks::{provided, rule};

#[test]
fn a_journal_is_rendered_turn_by_turn() {
    let denied = Outcome::Err("denied by approver".into(), ErrorType::Denied);
    let events = journal([
        ("t1", user("one")),
        ("t1", turn_started()),
        ("t2", user("two")),
        ("t1", assistant_event("look", &["a", "b"], MessageStatus::Complete)),
        ("", dispatch()),
        ("t1", result_event("b", Outcome::Ok(json!({"z": 1, "a": 2})))),
        ("t3", user("three")),
        ("t1", result_event("a", denied)),
        ("t1", assistant_event("done", &[], MessageStatus::Complete)),
        ("t1", turn_ended()),
        ("t2", turn_started()),
        ("t2", assistant_event("half", &[], MessageStatus::Cancelled)),
    ]);
    let denied = r#"{"ok":false,"error":"denied by approver","error_type":"DENIED"}"#;
    let first = [
        "user one ",
        "assistant look a,b",
        &format!("tool {denied} a"),
        r#"tool {"ok":true,"result":{"z":1,"a":2}} b"#,
        "assistant done ",
    ];
    let second = ["user two ", "assistant half "];
    assert_eq!(prompt_lines(&events, "t2"), [first.as_slice(), &second].concat());
    assert_eq!(prompt_lines(&events, "t1"), first);
    let last = messages(&events, &TurnId::new("t2")).pop().unwrap();
    assert_eq!(last.status, Some(MessageStatus::Cancelled));
}

#[test]
fn a_call_without_a_result_counts_as_interrupted() {
    let events = journal([
        ("t1", user("one")),
        ("t1", turn_started()),
        ("t1", assistant_event("look", &["a", "b"], MessageStatus::Complete)),
        ("t1", result_event("b", Outcome::Ok(json!(1)))),
    ]);
    let interrupted = r#"{"ok":false,"error":"tool call interrupted","error_type":"INTERRUPTED"}"#;
    let expected = format!("tool {interrupted} a");
    assert_eq!(
        prompt_lines(&events, "t1")[2..],
        [expected, r#"tool {"ok":true,"result":1} b"#.into()]
    );
}

#[test]
fn a_message_that_steers_stands_before_the_first_message_that_was_written_with_it() {
    let late = |text: &str, read: u64, calls: &[&str]| {
        let EventData::AssistantMsg(it) = assistant_event(text, calls, MessageStatus::Complete)
        else {
            unreachable!()
        };
        let read_upto = Some(Seq::new(read));
        EventData::AssistantMsg(AssistantMsg { read_upto, ..it })
    };
    let events = journal([
        ("t1", user("one")),
        ("t1", turn_started()),
        ("t1", steered("early")),
        ("t1", steered("late")),
        ("t1", late("look", 3, &["a"])),
        ("t1", result_event("a", Outcome::Ok(json!(1)))),
        ("t1", steered("later")),
        ("t1", assistant_event("done", &[], MessageStatus::Complete)),
    ]);
    let expected = [
        "user one ",
        "user early ",
        "assistant look a",
        r#"tool {"ok":true,"result":1} a"#,
        "user late ",
        "user later ",
        "assistant done ",
    ];
    assert_eq!(prompt_lines(&events, "t1"), expected);
    assert_eq!(prompt_lines(&events[..4], "t1"), ["user one ", "user early ", "user late "]);
}

#[test]
fn a_repair_request_stands_where_it_was_made() {
    let events = journal([
        ("t1", user("one")),
        ("t1", turn_started()),
        ("t1", assistant_event("{}", &[], MessageStatus::Complete)),
        ("t1", EventData::RepairRequested(RepairRequested { reason: "name: is missing".into() })),
    ]);
    let message = messages(&events, &TurnId::new("t1")).pop().unwrap();
    assert_eq!(message.role, MessageRole::User);
    assert!(message.text().contains("name: is missing"));
    assert_eq!(message.id.as_str(), "repair_4");
}

#[test]
fn a_large_result_is_cut_between_characters() {
    for (size, whole) in [(10, true), (MAX_RESULT_BYTES, false), (MAX_RESULT_BYTES + 1, false)] {
        let text = "ä".repeat(size);
        let events = journal([
            ("t1", turn_started()),
            ("t1", assistant_event("", &["a"], MessageStatus::Complete)),
            ("t1", result_event("a", Outcome::Ok(json!(text)))),
        ]);
        let message = messages(&events, &TurnId::new("t1")).pop().unwrap().text();
        assert_eq!(message.ends_with("ä\"}"), whole);
        assert_eq!(message.ends_with("ä[...truncated...]"), !whole);
        assert!(message.len() <= MAX_RESULT_BYTES + super::TRUNCATED.len());
    }
}

fn image() -> serde_json::Value {
    json!({"type": "image",
        "source": {"type": "base64", "mimeType": "image/png", "data": "SECRET=="}})
}

#[test]
fn media_are_shown_after_all_results_and_the_prompt_only_grows() {
    let events = journal([
        ("t1", user("one")),
        ("t1", turn_started()),
        ("t1", assistant_event("look", &["a", "b"], MessageStatus::Complete)),
        ("t1", result_event("a", Outcome::Ok(json!([image()])))),
        ("t1", result_event("b", Outcome::Ok(json!(1)))),
        ("t1", assistant_event("more", &["c"], MessageStatus::Complete)),
        ("t1", result_event("c", Outcome::Ok(json!(2)))),
        ("t1", assistant_event("done", &[], MessageStatus::Complete)),
        ("t1", turn_ended()),
        ("t2", user("two")),
        ("t2", turn_started()),
    ]);
    let named = r#"[{"type":"text","text":"[image/png, 4 B]"}]"#;
    let expected = [
        "user one ".to_owned(),
        "assistant look a,b".to_owned(),
        format!(r#"tool {{"ok":true,"result":{named}}} a"#),
        r#"tool {"ok":true,"result":1} b"#.to_owned(),
        "user Media in the result of a (t): ".to_owned(),
    ];
    assert_eq!(prompt_lines(&events, "t2")[..5], expected);
    let read = |events: &[Event], turn| json!(messages(events, &TurnId::new(turn)));
    let whole = read(&events, "t2");
    for (events, turn) in [(&events[..5], "t1"), (&events[..7], "t1"), (&events[..9], "t1")] {
        let earlier = read(events, turn);
        let prompt = earlier.as_array().unwrap();
        assert!(prompt.len() >= 5 && whole.as_array().unwrap().starts_with(prompt), "{earlier}");
    }
}

fn any_event() -> impl Strategy<Value = (&'static str, EventData)> {
    let turn = prop::sample::select(vec!["t1", "t2", "t3", ""]);
    let id = prop::sample::select(vec!["a", "b", "c", "d", "e", "f"]);
    let ids = prop::collection::vec(id.clone(), 0..4);
    let id2 = id.clone();
    let status = prop::sample::select(vec![
        MessageStatus::Complete,
        MessageStatus::Cancelled,
        MessageStatus::Error,
    ]);
    let data = prop_oneof![
        2 => Just(turn_started()),
        2 => Just(user("hello")),
        1 => Just(steered("hello")),
        4 => (ids, status).prop_map(|(ids, status)| assistant_event("so", &ids, status)),
        4 => id.clone().prop_map(|id| result_event(id, Outcome::Ok(json!(id)))),
        2 => id.prop_map(|id| result_event(id, Outcome::Ok(json!([id, image()])))),
        1 => Just(turn_ended()),
        1 => Just(dispatch()),
        1 => id2.prop_map(provided),
        1 => Just(EventData::RepairRequested(RepairRequested { reason: "no".into() })),
    ];
    (turn, data)
}

fn any_context() -> impl Strategy<Value = Context> {
    let summary = prop::option::of((0..40_u64, 0..40_u64));
    let marks = (0..40_u64, 0..40_u64, 0..40_u64, 0..40_u64);
    (marks, summary).prop_map(|((from, since, expired, forced), summary)| Context {
        marks: ContextMarks {
            read_from: Seq::new(from),
            shown_from: Seq::new(since),
            expired_upto: Seq::new(expired),
            forced_upto: Seq::new(forced),
        },
        summary: summary.map(|(seq, upto)| Summary { seq: Seq::new(seq), upto: Seq::new(upto) }),
        ..Context::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn every_call_is_followed_by_its_one_result(
        events in prop::collection::vec(any_event(), 0..40),
        turn in prop::sample::select(vec!["t1", "t2", "t3"]),
        context in any_context(),
    ) {
        let mut due = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for message in prompt_messages(&journal(events), turn, &context) {
            let hidden = |block: &serde_json::Value| {
                *block == image() || !block.to_string().contains("SECRET")
            };
            prop_assert!(message.content.iter().all(hidden));
            prop_assert!(message.role == MessageRole::User || !message.content.contains(&image()));
            if let Some(id) = message.tool_call_id {
                prop_assert_eq!(message.role, MessageRole::Tool);
                prop_assert!(!due.is_empty());
                prop_assert_eq!(due.remove(0), id);
                continue;
            }
            prop_assert!(message.role != MessageRole::Tool && due.is_empty());
            due = message.tool_calls.into_iter().map(|call| call.id).collect();
            for id in &due {
                prop_assert!(seen.insert(id.clone()), "{} twice", id);
            }
        }
        prop_assert!(due.is_empty());
    }
}

#[test]
fn a_built_in_tools_own_error_is_read_as_such_and_no_other() {
    let read = |error_type| {
        let call = CallRef { id: CallId::new("a"), name: "read".into(), args: json!({}).into() };
        let outcome = Outcome::Err("enoent: x".into(), error_type);
        let events = [result_at("a", outcome)];
        let results = results_by_call(&events.each_ref());
        let rules = |name: &str| ToolRule { is_builtin: name == "read", ..ToolRule::default() };
        PromptBuilder {
            results,
            expired_calls: HashSet::new(),
            provider_calls: HashSet::new(),
            seen_calls: HashSet::new(),
            messages: Vec::new(),
            unread: Vec::new(),
            turn: None,
            rules: &rules,
        }
        .result_message(&call, &mut ResultMedia::default())
        .text()
    };
    assert_eq!(read(ErrorType::ToolError), "error: enoent: x");
    let timed_out = r#"{"ok":false,"error":"enoent: x","error_type":"TIMEOUT"}"#;
    assert_eq!(read(ErrorType::Timeout), timed_out);
}

fn result_at(call: &str, outcome: Outcome) -> Event {
    let data = result_event(call, outcome);
    Event { seq: Seq::FIRST, at: Timestamp::UNIX_EPOCH, turn_id: None, data }
}
