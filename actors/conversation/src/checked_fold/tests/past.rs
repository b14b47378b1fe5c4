//! Whole journals that no commands can have led to, although each event fits the state before it.

use super::*;
use crate::CheckedFold;

fn whole(events: &[Entry]) -> Result<CheckedFold, IllegalEvent> {
    let mut checked = CheckedFold::default();
    for ((kind, turn, data), seq) in events.iter().zip(1_u64..) {
        checked.fold(&event(seq, kind, *turn, data))?;
    }
    Ok(checked)
}

/// The journal without its only event of this type.
fn without(kind: &str, journal: &[Entry]) -> Vec<Entry> {
    let left: Vec<Entry> = journal.iter().filter(|entry| entry.0 != kind).cloned().collect();
    assert_eq!(left.len() + 1, journal.len(), "{kind}");
    left
}

fn refused(journal: &[Entry]) -> IllegalEvent {
    whole(journal).unwrap_err()
}

fn cancelled() -> Entry {
    let data =
        json!({"call_id": "a", "ok": false, "error": "[cancelled]", "error_type": "CANCELLED"});
    ("tool_result", Some("t"), data)
}

fn ended(outcome: &str, reason: &str) -> Entry {
    ("turn_ended", Some("t"), json!({"outcome": outcome, "reason": reason}))
}

/// A turn whose model made the call `a`, which is not planned yet.
fn requested() -> Vec<Entry> {
    vec![created(), user_msg("t"), turn_started("t"), assistant_msg(1)]
}

fn then(mut journal: Vec<Entry>, more: impl IntoIterator<Item = Entry>) -> Vec<Entry> {
    journal.extend(more);
    journal
}

fn not_planned() -> IllegalEvent {
    IllegalEvent::NotPlanned(CallId::new("a"))
}

#[test]
fn nothing_happens_to_a_call_before_its_plan() {
    let journal = then(waiting(), [resolution(1), tool_result("a"), turn_ended("t")]);
    assert!(whole(&journal).is_ok());
    assert_eq!(refused(&without("tool_call", &journal)), not_planned());
    let closed = without("resolution", &without("suspension", &journal));
    assert_eq!(refused(&without("tool_call", &closed)), not_planned());
    assert_eq!(refused(&without("tool_call", &waiting())), not_planned());
    // The plan of an earlier step is none of a later call with the same id.
    let again = [tool_call(), tool_result("a"), assistant_msg(2), tool_result("a")];
    assert_eq!(refused(&then(requested(), again)), not_planned());
}

#[test]
fn no_turn_ends_with_a_call_that_has_no_result() {
    let journal = then(waiting(), [resolution(1), tool_result("a"), turn_ended("t")]);
    assert_eq!(refused(&without("tool_result", &journal)), IllegalEvent::OpenCalls);
    let unplanned = without("tool_call", &then(requested(), [tool_call(), turn_ended("t")]));
    assert_eq!(refused(&unplanned), IllegalEvent::OpenCalls);
}

#[test]
fn no_event_is_of_a_call_that_no_message_made() {
    let no_open_call = IllegalEvent::NoOpenCall(CallId::new("a"));
    for kind in ["tool_call", "suspension"] {
        let mut journal = waiting();
        journal.retain(|entry| entry.0 == kind || !["tool_call", "suspension"].contains(&entry.0));
        let message = json!({"id": "m", "role": "assistant", "content": []});
        journal[3].2["message"] = message;
        assert_eq!(refused(&journal), no_open_call, "{kind}");
    }
}

#[test]
fn a_call_is_cancelled_before_its_plan_by_a_hook_or_at_the_end_of_a_fork_only() {
    for end in [ended("halted", "enough"), ended("cancelled", "forked")] {
        assert!(whole(&then(requested(), [cancelled(), end])).is_ok());
    }
    let not_halted = IllegalEvent::NotHalted(CallId::new("a"));
    for next in [ended("cancelled", "by ann"), turn_ended("t"), assistant_msg(2)] {
        assert_eq!(refused(&then(requested(), [cancelled(), next])), not_halted);
    }
}

#[test]
fn a_hook_halts_a_turn_before_any_of_its_calls_is_planned() {
    let mut journal = then(requested(), [tool_call(), cancelled()]);
    let second = json!({"id": "b", "name": "tool", "args": {}});
    journal[3].2["message"]["tool_calls"].as_array_mut().unwrap().push(second);
    let (kind, turn, mut data) = cancelled();
    data["call_id"] = "b".into();
    journal.push((kind, turn, data));
    journal.push(ended("halted", "enough"));
    assert_eq!(refused(&journal), IllegalEvent::NotHalted(CallId::new("b")));
}

#[test]
fn a_call_that_waits_is_cancelled_with_its_turn_only() {
    let goes_on = IllegalEvent::TurnGoesOn(CallId::new("a"));
    assert_eq!(refused(&then(waiting(), [cancelled(), assistant_msg(2)])), goes_on);
    assert!(whole(&then(waiting(), [cancelled(), ended("cancelled", "by ann")])).is_ok());
    let answered = then(waiting(), [resolution(1), cancelled(), assistant_msg(2)]);
    assert!(whole(&answered).is_ok(), "the answer may be that it was cancelled elsewhere");
}

#[test]
fn a_journal_ends_with_a_commit() {
    let missing = IllegalEvent::EndsBeforePlan(CallId::new("a"));
    assert_eq!(whole(&requested()).unwrap().check_end(), Err(missing));
    assert_eq!(whole(&waiting()).unwrap().check_end(), Ok(()));
    let denied = then(waiting(), [resolution(1)]);
    assert_eq!(whole(&denied).unwrap().check_end(), Ok(()), "it was planned");
}

#[test]
fn a_turn_has_an_id_of_its_own_and_a_rewind_goes_back_to_where_none_was_open() {
    let turn = || then(requested(), [tool_call(), tool_result("a"), turn_ended("t")]);
    assert_eq!(refused(&then(turn(), [user_msg("t")])), IllegalEvent::TurnTwice);
    let rewound = |to: u64| {
        let data = json!({"to_seq": to, "by": "ann", "point": {"context": {}}});
        ("rewound", None, data)
    };
    assert_eq!(refused(&then(turn(), [rewound(4)])), IllegalEvent::WithinTurn);
    assert!(whole(&then(turn(), [rewound(1)])).is_ok());
}

#[test]
fn the_member_that_is_wrong_is_named() {
    let gap = IllegalEvent::Gap { last: Seq::FIRST, found: Seq::new(3) };
    assert_eq!((gap.member(), not_planned().member()), ("seq", "data.call_id"));
}
