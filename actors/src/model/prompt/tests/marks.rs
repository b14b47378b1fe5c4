//! Tests of what is left out of long journals, and of what replaces it.

use abide_conversation::Seq;
use abide_conversation::event::{CallKind, Intent, Summarized, ToolCall};
use abide_conversation::message::ProviderMessage;
use abide_conversation::usage::Usage;

use super::*;
use crate::model::prompt::retention::{Retention, RetentionMode};

/// The rules of the tools: `age` keeps one step, `count` two results, `all` everything; others have
/// the default.
pub(super) fn rule(name: &str) -> ToolRule {
    let keep = |keep| Retention { keep, never_evict: false };
    let retention = match name {
        "age" => keep(RetentionMode::Age(1)),
        "count" => keep(RetentionMode::Count(2)),
        "all" => Retention { never_evict: true, ..keep(RetentionMode::Count(1)) },
        _ => Retention::default(),
    };
    ToolRule { is_builtin: false, retention }
}

pub(super) fn provided(id: &str) -> EventData {
    EventData::ToolCall(ToolCall {
        call_id: CallId::new(id),
        tool: "web".to_owned(),
        args: json!({}).into(),
        kind: CallKind::Provider,
        intent: Intent::Compute,
        started: true,
        message: String::new(),
        timeout_ms: 0,
        gate: None,
        answer_schema: None,
        waiting_rules: None,
    })
}

fn tool_call_event(tool: &str, id: &str) -> EventData {
    let EventData::AssistantMsg(mut spoken) = assistant_event("", &[id], MessageStatus::Complete)
    else {
        panic!()
    };
    spoken.message.tool_calls[0].name = tool.to_owned();
    EventData::AssistantMsg(spoken)
}

fn summary(upto: Seq, text: &str) -> EventData {
    let marks = ContextMarks::default();
    let (tokens_before, tokens_after) = (0, 0);
    let (text, usage) = (text.to_owned(), None::<Usage>);
    EventData::Summarized(Summarized { upto, marks, text, usage, tokens_before, tokens_after })
}

/// Three turns of one message and one answer each; the third one is running.
fn three_turns() -> Vec<Event> {
    journal([
        ("t1", user("one")),
        ("t1", turn_started()),
        ("t1", assistant_event("first", &[], MessageStatus::Complete)),
        ("t1", turn_ended()),
        ("t3", user("three")),
        ("t2", user("two")),
        ("t2", turn_started()),
        ("t2", assistant_event("second", &[], MessageStatus::Complete)),
        ("t2", turn_ended()),
        ("t3", turn_started()),
        ("", summary(Seq::new(4), "They counted.")),
    ])
}

fn lines_with_marks(
    events: &[Event],
    marks: ContextMarks,
    summary: Option<Summary>,
) -> Vec<String> {
    let context = Context { marks, summary, ..Context::default() };
    let events: Vec<Event> = events
        .iter()
        .filter(|event| {
            event.seq >= marks.read_from || summary.is_some_and(|it| it.seq == event.seq)
        })
        .cloned()
        .collect();
    lines_of(&prompt_messages(&events, "t3", &context))
}

#[test]
fn a_summary_replaces_the_turns_that_it_covers() {
    let summary = Some(Summary { seq: Seq::new(11), upto: Seq::new(4) });
    let marks =
        ContextMarks { read_from: Seq::new(5), shown_from: Seq::new(5), ..ContextMarks::default() };
    let earlier = "user Summary of the conversation before this:\nThey counted. ";
    let prompt = lines_with_marks(&three_turns(), marks, summary);
    assert_eq!(prompt, [earlier, "user two ", "assistant second ", "user three "]);
}

#[test]
fn dropped_turns_that_no_summary_covers_are_mentioned() {
    let marks = ContextMarks {
        read_from: Seq::new(5),
        shown_from: Seq::new(10),
        ..ContextMarks::default()
    };
    let dropped = "[Earlier turns of this conversation are not shown.]";
    assert_eq!(
        lines_with_marks(&three_turns(), marks, None),
        [&format!("user {dropped} "), "user three "]
    );
    let summary = Some(Summary { seq: Seq::new(11), upto: Seq::new(4) });
    let both = format!("user Summary of the conversation before this:\nThey counted.{dropped} ");
    assert_eq!(lines_with_marks(&three_turns(), marks, summary), [&both, "user three "]);
}

#[test]
fn notes_about_earlier_turns_are_not_from_a_person() {
    let context = Context {
        marks: ContextMarks { shown_from: Seq::new(10), ..ContextMarks::default() },
        summary: Some(Summary { seq: Seq::new(11), upto: Seq::new(4) }),
        ..Context::default()
    };
    let prompt = prompt_messages(&three_turns(), "t3", &context);
    let persons: Vec<bool> = prompt.iter().map(crate::model::prompt::is_from_person).collect();
    assert_eq!(persons, [false, true]);
}

/// A turn in which every step calls one tool.
fn turn_of_steps(tool: &str, steps: usize) -> Vec<Event> {
    let ids = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let call = |id: &&'static str| {
        [("t1", tool_call_event(tool, id)), ("t1", result_event(id, Outcome::Ok(json!("data"))))]
    };
    let calls = ids.iter().take(steps).flat_map(call);
    journal([("t1", user("go")), ("t1", turn_started())].into_iter().chain(calls))
}

/// Whether each result is expired by the marks.
fn expired(events: &[Event], expired: u64, forced: u64) -> Vec<bool> {
    let marks = ContextMarks {
        expired_upto: Seq::new(expired),
        forced_upto: Seq::new(forced),
        ..ContextMarks::default()
    };
    let prompt = prompt_messages(events, "t1", &Context { marks, ..Context::default() });
    let results = prompt.iter().filter(|message| message.role == MessageRole::Tool);
    results.map(|message| message.text() == super::super::EXPIRED_RESULT).collect()
}

#[test]
fn results_expire_by_their_tools_retention_as_of_the_mark() {
    let [t, f] = [true, false];
    // The result of the nth call is event 2n + 2.
    for (tool, mark, prompt) in [
        ("age", 0, [f, f, f, f, f]),
        ("age", 12, [t, t, t, f, f]),
        ("age", 10, [t, t, f, f, f]),
        ("count", 12, [t, t, t, f, f]),
        ("count", 9, [t, f, f, f, f]),
        ("all", 12, [f, f, f, f, f]),
        ("other", 12, [f, f, f, f, f]),
    ] {
        assert_eq!(expired(&turn_of_steps(tool, 5), mark, 0), prompt, "{tool} at {mark}");
    }
    let prompt = expired(&turn_of_steps("other", 10), 22, 0);
    assert_eq!(prompt, [t, t, t, f, f, f, f, f, f, f], "after six steps");
}

#[test]
fn a_mark_shows_the_same_whatever_follows_it() {
    for tool in ["age", "count", "other"] {
        let at_once = expired(&turn_of_steps(tool, 5), 12, 0);
        let later = expired(&turn_of_steps(tool, 10), 12, 0);
        assert_eq!((&later[..5], &later[5..]), (&at_once[..], &[false; 5][..]), "{tool}");
    }
}

#[test]
fn forced_results_expire_whatever_their_retention_unless_never_evicted() {
    assert_eq!(expired(&turn_of_steps("other", 4), 10, 7), [true, true, false, false]);
    assert_eq!(expired(&turn_of_steps("all", 4), 10, 7), [false; 4]);
}

#[test]
fn the_media_of_an_expired_result_are_not_shown() {
    let mut events = turn_of_steps("age", 5);
    events[3].data = result_event("a", Outcome::Ok(json!([image()])));
    let prompt = |mark| {
        let marks = ContextMarks { expired_upto: mark, ..ContextMarks::default() };
        json!(prompt_messages(&events, "t1", &Context { marks, ..Context::default() })).to_string()
    };
    assert!(prompt(Seq::ZERO).contains("SECRET") && !prompt(Seq::new(12)).contains("SECRET"));
}

#[test]
fn a_run_of_the_provider_is_a_text_and_not_a_call() {
    let events = journal([
        ("t1", user("one")),
        ("t1", turn_started()),
        ("t1", assistant_event("found", &["w", "a"], MessageStatus::Complete)),
        ("t1", provided("w")),
        ("t1", result_event("w", Outcome::Ok(json!("x".repeat(20_000))))),
        ("t1", result_event("a", Outcome::Ok(json!(1)))),
    ]);
    let lines = prompt_lines(&events, "t1");
    let run = "assistant found[t was run with {}: {\"ok\":true,\"result\":\"xxx";
    assert!(
        lines[1].starts_with(run) && lines[1].ends_with("[...truncated...]] a"),
        "{}",
        lines[1]
    );
    assert!(lines[1].len() < 9_000);
    assert_eq!(lines[2..], [r#"tool {"ok":true,"result":1} a"#]);
}

#[test]
fn only_a_whole_message_goes_back_as_its_provider_wrote_it() {
    for (status, expected) in [
        (MessageStatus::Complete, true),
        (MessageStatus::Cancelled, false),
        (MessageStatus::Error, false),
    ] {
        let EventData::AssistantMsg(mut assistant) = assistant_event("so", &[], status) else {
            panic!()
        };
        let (provider, model) = ("anthropic".to_owned(), "m".to_owned());
        assistant.verbatim =
            Some(ProviderMessage { provider, model, items: vec![json!({"signed": 1})] });
        let events = journal([("t1", turn_started()), ("t1", EventData::AssistantMsg(assistant))]);
        let turn = TurnId::new("t1");
        let context = Context::default();
        let rules = |tool: &str| rule(tool);
        let events: Vec<&Event> = events.iter().collect();
        let view = PromptInput { events: &events, turn: &turn, context: &context, rules: &rules };
        assert_eq!(view.messages()[0].verbatim.is_some(), expected, "{status:?}");
    }
}
