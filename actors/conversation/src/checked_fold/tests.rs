//! Events that no command can have led to, each refused for its reason.
#![allow(clippy::unwrap_used)]

mod calls;
mod past;

use serde_json::{Value, json};

use super::{IllegalEvent, checked_fold};
use crate::{CallId, Event, Seq, State, Step, from_json};

/// Folds events, given as type, turn and data, and numbers them from 1.
fn fold(events: &[(&str, Option<&str>, Value)]) -> Result<State, IllegalEvent> {
    let mut numbered = events.iter().zip(1_u64..);
    numbered.try_fold(State::default(), |state, ((kind, turn, data), seq)| {
        checked_fold(state, &event(seq, kind, *turn, data))
    })
}

fn event(seq: u64, kind: &str, turn: Option<&str>, data: &Value) -> Event {
    let at = "2026-11-23T10:00:00Z";
    let event = json!({"seq": seq, "at": at, "turn_id": turn, "type": kind, "data": data});
    from_json(event.to_string().as_bytes()).unwrap()
}

type Entry = (&'static str, Option<&'static str>, Value);

fn created() -> Entry {
    ("created", None, json!({"agent": "demo"}))
}

fn user_msg(turn: &'static str) -> Entry {
    let message = json!({"id": "m", "role": "user", "content": []});
    ("user_msg", Some(turn), json!({"message": message, "principal": "ann"}))
}

fn turn_started(turn: &'static str) -> Entry {
    ("turn_started", Some(turn), json!({"agent": "demo", "revision": "r", "max_steps": 5}))
}

/// The message of step 1, with one call.
fn assistant_msg(step: u32) -> Entry {
    let calls = json!([{"id": "a", "name": "tool", "args": {}}]);
    let message = json!({"id": "m", "role": "assistant", "content": [], "tool_calls": calls});
    ("assistant_msg", Some("t"), json!({"message": message, "status": "complete", "step": step}))
}

fn tool_call() -> Entry {
    let data =
        json!({"call_id": "a", "tool": "tool", "args": {}, "executor": "human", "started": true});
    ("tool_call", Some("t"), data)
}

fn suspension(number: u32) -> Entry {
    let data = json!({"call_id": "a", "kind": "elicitation", "suspension": number,
        "expires_at": "2026-11-23T11:00:00Z", "tool": "tool", "executor": "human", "args": {},
        "message": ""});
    ("suspension", Some("t"), data)
}

fn resolution(number: u32) -> Entry {
    let data = json!({"call_id": "a", "kind": "elicitation", "suspension": number, "by": "ann"});
    ("resolution", Some("t"), data)
}

fn tool_result(call: &str) -> Entry {
    ("tool_result", Some("t"), json!({"call_id": call, "ok": true, "result": 1}))
}

fn turn_ended(turn: &'static str) -> Entry {
    ("turn_ended", Some(turn), json!({"outcome": "completed"}))
}

/// A journal whose call `a` waits for a person.
fn waiting() -> Vec<Entry> {
    vec![created(), user_msg("t"), turn_started("t"), assistant_msg(1), tool_call(), suspension(1)]
}

fn after(mut journal: Vec<Entry>, more: impl IntoIterator<Item = Entry>) -> IllegalEvent {
    assert_eq!(fold(&journal).err(), None, "the journal before it is legal");
    journal.extend(more);
    fold(&journal).unwrap_err()
}

#[test]
fn a_whole_turn_is_legal() {
    let mut journal = waiting();
    journal.extend([resolution(1), tool_result("a"), turn_ended("t")]);
    let state = fold(&journal).unwrap();
    assert_eq!((state.seq, state.turn), (Seq::new(9), None));
}

#[test]
fn a_gap_in_seq_is_illegal() {
    let (kind, turn, data) = user_msg("t");
    let state = fold(&[created()]).unwrap();
    let folded = checked_fold(state, &event(3, kind, turn, &data));
    assert_eq!(folded.unwrap_err(), IllegalEvent::Gap { last: Seq::FIRST, found: Seq::new(3) });
}

#[test]
fn a_conversation_is_created_once_and_first() {
    assert_eq!(after(vec![], [user_msg("t")]), IllegalEvent::NotCreated);
    assert_eq!(after(vec![created()], [created()]), IllegalEvent::CreatedTwice);
}

#[test]
fn a_result_for_an_unknown_call_or_a_second_one_is_illegal() {
    let no_open_call = |id: &str| IllegalEvent::NoOpenCall(CallId::new(id));
    assert_eq!(after(waiting(), [tool_result("b")]), no_open_call("b"));
    let answered = [resolution(1), tool_result("a"), tool_result("a")];
    assert_eq!(after(waiting(), answered), no_open_call("a"));
}

#[test]
fn a_resolution_of_a_closed_suspension_is_illegal() {
    let wrong = IllegalEvent::WrongSuspension(CallId::new("a"));
    assert_eq!(after(waiting(), [resolution(1), resolution(1)]), wrong);
    assert_eq!(after(waiting(), [resolution(2)]), wrong);
    assert_eq!(after(waiting(), [resolution(1), suspension(1)]), wrong);
}

#[test]
fn an_event_of_a_turn_needs_that_turn_to_be_open() {
    let (kind, _, data) = tool_result("a");
    assert_eq!(after(waiting(), [(kind, None, data.clone())]), IllegalEvent::NoTurn);
    assert_eq!(after(waiting(), [(kind, Some("u"), data)]), IllegalEvent::NotTheOpenTurn);
    assert_eq!(after(vec![created()], [turn_ended("t")]), IllegalEvent::NotTheOpenTurn);
    assert_eq!(
        after(vec![created()], [("abandoned", Some("t"), json!({}))]),
        IllegalEvent::UnexpectedTurn
    );
}

#[test]
fn turns_start_one_at_a_time_each_with_its_one_message() {
    assert_eq!(after(vec![created()], [turn_started("t")]), IllegalEvent::NotQueuedOnce);
    assert_eq!(after(waiting(), [user_msg("t")]), IllegalEvent::NotQueuedOnce);
    assert_eq!(after(waiting(), [user_msg("u"), turn_started("u")]), IllegalEvent::TurnOpen);
}

#[test]
fn neither_a_step_nor_a_turn_ends_while_a_call_is_open() {
    assert_eq!(after(waiting(), [turn_ended("t")]), IllegalEvent::OpenCalls);
    assert_eq!(after(waiting(), [assistant_msg(2)]), IllegalEvent::OpenCalls);
    assert_eq!(
        after(waiting(), [resolution(1), tool_result("a"), assistant_msg(3)]),
        IllegalEvent::WrongStep { expected: Step::new(2), found: Step::new(3) }
    );
}

#[test]
fn a_call_that_waits_cannot_start() {
    let started = json!({"call_id": "a", "tool": "tool", "executor": "human", "args": {},
        "attempt": 1});
    let wrong = IllegalEvent::WrongPhase(CallId::new("a"));
    assert_eq!(after(waiting(), [("tool_started", Some("t"), started)]), wrong);
}

#[test]
fn the_error_names_what_is_impossible() {
    let error = after(waiting(), [tool_result("b")]).to_string();
    assert_eq!(error, "there is no open call b");
}
