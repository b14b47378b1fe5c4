//! Events of calls, dispatches and children in a state that does not lead to them.

use super::*;
use crate::{ConversationId, DecisionId};

fn no_open_call(id: &str) -> IllegalEvent {
    IllegalEvent::NoOpenCall(CallId::new(id))
}

fn wrong_phase() -> IllegalEvent {
    IllegalEvent::WrongPhase(CallId::new("a"))
}

fn wrong_attempt(id: &str) -> IllegalEvent {
    IllegalEvent::WrongAttempt(CallId::new(id))
}

fn dispatch_running(id: &str) -> IllegalEvent {
    IllegalEvent::DispatchRunning(CallId::new(id))
}

fn unknown_child() -> IllegalEvent {
    IllegalEvent::UnknownChild(ConversationId::new("stranger"))
}

/// A journal whose call `a` is not planned yet.
fn requested() -> Vec<Entry> {
    vec![created(), user_msg("t"), turn_started("t"), assistant_msg(1)]
}

/// A journal whose call `a` runs for the first time; the child `kid` is to answer it.
fn running() -> Vec<Entry> {
    let data = json!({"call_id": "a", "tool": "tool", "args": {}, "executor": "server",
        "started": true, "child": "kid"});
    [requested(), vec![("tool_call", Some("t"), data)]].concat()
}

/// A journal whose dispatch `d` runs for the first time; the child `kid` is to answer it.
fn dispatching() -> Vec<Entry> {
    vec![created(), dispatch_started("d", 1)]
}

fn dispatch_started(call: &str, attempt: u32) -> Entry {
    let data = json!({"call_id": call, "tool": "tool", "input": {}, "principal": "ann",
        "revision": "r", "attempt": attempt, "child": "kid"});
    ("dispatch_started", None, data)
}

fn dispatch_finished(was_refused: bool) -> Entry {
    let verdict = json!({"decision": "deny", "rule": "auto", "phase": "default",
        "fingerprint": "f"});
    let mut data = json!({"call_id": "d", "tool": "tool", "input": {}, "principal": "ann",
        "result": {"ok": true, "result": 1}});
    if was_refused {
        data["gate"] = verdict;
    }
    ("dispatch", None, data)
}

/// An event of one call with nothing but the call's id and these fields.
fn of_call(kind: &'static str, call: &str, fields: Value) -> Entry {
    let turn = (call != "d").then_some("t");
    let mut data = fields;
    data["call_id"] = call.into();
    (kind, turn, data)
}

fn child_started(call: &str, child: &str, attempt: u32) -> Entry {
    let at = "2026-11-23T11:00:00Z";
    let data = json!({"conversation_id": child, "attempt": attempt, "expires_at": at});
    of_call("child_started", call, data)
}

fn child_ended(call: &str, child: &str) -> Entry {
    of_call("child_ended", call, json!({"conversation_id": child}))
}

fn tool_started(attempt: u32) -> Entry {
    let data = json!({"tool": "tool", "executor": "server", "args": {}, "attempt": attempt});
    of_call("tool_started", "a", data)
}

fn input_required(attempt: u32) -> Entry {
    let data = json!({"attempt": attempt, "message": "", "requests": {}});
    of_call("input_required", "a", data)
}

fn remembered(call: &str) -> Entry {
    let decision = json!({"id": "dec", "tool": "tool", "does": "x", "approved": true,
        "match": "tool", "fingerprint": "f", "by": "ann", "expires_at": "2026-11-24T10:00:00Z"});
    let data = json!({"scope": "agent", "agent": "demo", "decision": decision});
    of_call("decision_remembered", call, data)
}

#[test]
fn an_event_of_a_call_needs_its_phase_its_attempt_and_its_child() {
    let planning = json!({"phase": "plan", "planning": true});
    for (journal, next, expected) in [
        (waiting(), tool_call(), wrong_phase()),
        (waiting(), suspension(2), wrong_phase()),
        (waiting(), input_required(1), wrong_phase()),
        (running(), input_required(2), wrong_attempt("a")),
        (running(), tool_started(1), wrong_attempt("a")),
        (requested(), tool_started(1), wrong_phase()),
        (running(), remembered("b"), no_open_call("b")),
        (running(), of_call("phase_changed", "b", planning), no_open_call("b")),
        (running(), of_call("todos_changed", "b", json!({"todos": []})), no_open_call("b")),
        (running(), child_started("a", "kid", 2), wrong_attempt("a")),
        (running(), child_started("a", "stranger", 1), unknown_child()),
        (running(), child_ended("a", "stranger"), unknown_child()),
        (requested(), child_started("a", "kid", 1), wrong_phase()),
        (requested(), child_ended("a", "kid"), wrong_phase()),
    ] {
        let name = next.0;
        assert_eq!(after(journal, [next]), expected, "{name}");
    }
}

#[test]
fn a_dispatch_starts_with_a_new_id_and_again_with_a_later_attempt() {
    let delegated = || [dispatching(), vec![child_started("d", "kid", 1)]].concat();
    for (journal, next, expected) in [
        (dispatching(), dispatch_started("d", 1), dispatch_running("d")),
        (vec![created()], dispatch_started("d", 2), dispatch_running("d")),
        (running(), dispatch_started("a", 1), dispatch_running("a")),
        (delegated(), dispatch_started("d", 2), dispatch_running("d")),
        (delegated(), child_started("d", "kid", 1), wrong_attempt("d")),
        (dispatching(), child_started("d", "kid", 2), wrong_attempt("d")),
        (dispatching(), child_started("d", "stranger", 1), unknown_child()),
        (dispatching(), child_ended("d", "stranger"), unknown_child()),
        (vec![created()], dispatch_finished(false), no_open_call("d")),
        (dispatching(), dispatch_finished(true), no_open_call("d")),
    ] {
        let name = next.0;
        assert_eq!(after(journal, [next]), expected, "{name}");
    }
    let whole = [delegated(), vec![child_ended("d", "kid"), dispatch_finished(false)]].concat();
    assert!(fold(&whole).unwrap().dispatches.is_empty());
}

#[test]
fn a_decision_that_is_not_published_yet_is_not_revoked() {
    let revoked = |id: &str| ("decision_revoked", None, json!({"decision_id": id}));
    let unknown = |id: &str| IllegalEvent::UnknownDecision(DecisionId::new(id));
    let journal = || [running(), vec![remembered("a")]].concat();
    assert_eq!(after(journal(), [revoked("dec")]), unknown("dec"));
    assert_eq!(after(journal(), [revoked("other")]), unknown("other"));
}

#[test]
fn a_summary_covers_more_than_the_one_before_it_and_nothing_that_follows() {
    let summarized = |upto: u64| {
        let marks = json!({"from": 0, "since": 0, "expired": 0, "forced": 0});
        let data = json!({"upto": upto, "marks": marks, "text": "", "tokens_before": 2,
            "tokens_after": 1});
        ("summarized", None, data)
    };
    for upto in [0, 2, 3] {
        assert_eq!(after(vec![created()], [summarized(upto)]), IllegalEvent::ContextShrinks);
    }
    let summaries = vec![created(), summarized(1)];
    assert_eq!(after(summaries, [summarized(1)]), IllegalEvent::ContextShrinks);
}

#[test]
fn a_refused_message_ends_the_step_that_is_due() {
    let refused = |step: u32| {
        let message = json!({"id": "m", "role": "assistant", "content": []});
        let data = json!({"step": step, "hook": "h", "reason": "r", "message": message});
        ("message_refused", Some("t"), data)
    };
    let journal = || vec![created(), user_msg("t"), turn_started("t")];
    assert_eq!(
        after(journal(), [refused(2)]),
        IllegalEvent::WrongStep { expected: Step::new(1), found: Step::new(2) }
    );
    assert_eq!(after(running(), [refused(2)]), IllegalEvent::OpenCalls);
}

/// A journal whose call `a` waits until then for an answer of this kind, by these rules.
fn asking(kind: &str, until: &str, rules: &Value) -> Vec<Entry> {
    let mut journal = waiting();
    journal[4].2["waiting_rules"] = rules.clone();
    journal[5].2["kind"] = kind.into();
    journal[5].2["expires_at"] = until.into();
    journal
}

#[test]
fn a_call_that_waits_ends_when_it_is_answered_when_it_expires_or_with_its_turn() {
    let error = |kind: &str| json!({"ok": false, "error": "e", "error_type": kind});
    let (now, later) = ("2026-11-23T10:00:00Z", "2026-11-23T10:00:01Z");
    let (ok, none) = (json!({"ok": true, "result": 1}), json!({}));
    let (deny, given) = (json!({"on_expiry": "deny"}), json!({"on_expiry": {"result": 1}}));
    for (kind, until, rules, outcome, is_legal) in [
        ("approval", now, &none, &ok, false),
        ("approval", now, &given, &ok, false),
        ("elicitation", now, &none, &ok, false),
        ("elicitation", later, &given, &ok, false),
        ("elicitation", now, &given, &ok, true),
        ("client_exec", now, &given, &ok, true),
        ("in_doubt", now, &given, &ok, false),
        ("approval", now, &none, &error("DENIED"), false),
        ("approval", later, &deny, &error("DENIED"), false),
        ("approval", now, &deny, &error("DENIED"), true),
        ("elicitation", now, &deny, &error("DENIED"), false),
        ("elicitation", later, &none, &error("EXPIRED"), false),
        ("elicitation", now, &none, &error("EXPIRED"), true),
        ("in_doubt", now, &none, &error("EXPIRED"), true),
        ("elicitation", later, &none, &error("NO_CLIENT"), false),
        ("client_exec", later, &none, &error("NO_CLIENT"), true),
        ("approval", now, &none, &error("TOOL_ERROR"), false),
        ("in_doubt", now, &none, &error("INTERRUPTED"), false),
        ("approval", later, &none, &error("CANCELLED"), true),
    ] {
        let mut journal = asking(kind, until, rules);
        journal.push(of_call("tool_result", "a", outcome.clone()));
        let unanswered = IllegalEvent::Unanswered(CallId::new("a"));
        let expected = if is_legal { None } else { Some(unanswered) };
        assert_eq!(fold(&journal).err(), expected, "{kind} until {until}, {rules}: {outcome}");
    }
}
