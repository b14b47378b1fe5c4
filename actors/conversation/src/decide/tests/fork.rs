//! A fork begins as a prefix of another conversation, which keeps all work under way.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::journal_checker::JournalChecker;
use super::random_driver::{RandomRun, rolls};
use super::remembered::remembering;
use super::scenario::*;
use super::update::update;
use crate::command::{CopiedEvents, IfBusy};
use crate::event::{Event, EventData, Executor, PlannedChildren};
use crate::fork::Fork;
use crate::message::{ErrorType, Outcome};
use crate::remembered_decision::Scope;
use crate::{
    Action, CallId, CheckedFold, ConversationId, Rejection, Seq, State, Timestamp, wanted,
};

fn fork_of(at_seq: Seq) -> Action {
    let fork = Fork { conversation_id: ConversationId::new("first"), at_seq, created_at: None };
    Action::Create(crate::command::Create { fork: Some(fork), ..create() })
}

/// The copy of a journal's first events, read in pages of `page`.
fn forked(journal: &[Event], at_seq: usize, page: usize) -> Scenario {
    let mut copy = Scenario::empty();
    copy.then(fork_of(Seq::new(at_seq as u64)));
    while copy.state.forking.is_some() {
        let after = copy.state.seq;
        let copied = after.get() as usize;
        let events: Vec<Event> = journal[copied..at_seq].iter().take(page).cloned().collect();
        let whole = copied + events.len() == at_seq;
        copy.then(Action::EventsCopied(CopiedEvents { after, events, is_last: whole }));
    }
    copy
}

fn cancelled() -> Outcome {
    Outcome::Err("[cancelled]".to_owned(), ErrorType::Cancelled)
}

#[test]
fn open_calls_are_cancelled_in_the_copy_and_stay_open_in_the_other() {
    let first = Scenario::with_calls(vec![
        call("run", Executor::Server, false),
        call("ask", Executor::Human, false),
    ]);
    let copy = forked(&first.journal, first.journal.len(), 2);
    assert_eq!(first.state.pending_calls().len(), 1);
    assert_eq!(copy.state.pending_calls(), []);
    for call in ["run", "ask"] {
        let result = copy.result(call).map(|result| result.outcome);
        assert_eq!(result, Some(cancelled()), "{call}");
    }
    assert_eq!(copy.turn_ends(), [("cancelled".to_owned(), Some("forked".to_owned()))]);
    assert_eq!(copy.journal.last().map(kind), Some("forked"));
    assert!(copy.wanted().is_empty());
}

#[test]
fn the_prefix_is_the_same_event_by_event() {
    let mut first = Scenario::with_turn();
    first.reply(Vec::new()).unwrap();
    let length = first.journal.len();
    let copy = forked(&first.journal, length, 1);
    assert_eq!(copy.journal[1..length], first.journal[1..]);
    assert_eq!(copy.journal.len(), length + 1, "nothing was open");
}

#[test]
fn a_fork_has_no_children_of_the_original_however_far_it_is_copied() {
    let first = Scenario::with_calls(vec![with_child("a", "x")]);
    let planned = |events: &[Event]| {
        let mut planned = PlannedChildren::default();
        events.chunks(2).for_each(|page| planned.add(page));
        planned.into_ids()
    };
    let kid = BTreeSet::from([ConversationId::new("kid_x")]);
    assert_eq!(planned(&first.journal), kid);
    let length = first.journal.len();
    let mut copy = forked(&first.journal, length, 9);
    for upto in 0..=copy.journal.len() {
        assert_eq!(planned(&copy.journal[..upto]), BTreeSet::new(), "after {upto} events");
    }
    // What the fork itself asks.
    copy.then(Action::Send(message("turn_9", IfBusy::Queue)));
    copy.reply(vec![with_child("b", "y")]).unwrap();
    assert_eq!(planned(&copy.journal), BTreeSet::from([ConversationId::new("kid_y")]));
}

#[test]
fn metadata_is_that_of_the_prefix_and_the_members_are_those_of_the_fork() {
    let mut first = Scenario::empty();
    first.then(Action::Create(create()));
    first.then(update(Some(1), Some("bob"))).then(update(Some(2), Some("eve")));
    let copy = forked(&first.journal, 2, 9);
    assert_eq!(copy.state.metadata["n"], 1);
    assert!(copy.state.participants.is_empty(), "{:?}", copy.state.participants);
}

#[test]
fn approvals_do_not_carry_over() {
    let mut first = Scenario::with_calls(vec![call("send", Executor::Server, true)]);
    first.then(approve("send", None));
    let copy = forked(&first.journal, first.journal.len(), 9);
    assert!(copy.wanted().is_empty() && copy.state.decisions.is_empty());
    assert_eq!(copy.result("send").map(|result| result.outcome), Some(cancelled()));
}

#[test]
fn nothing_else_happens_while_the_prefix_is_copied() {
    let first = Scenario::with_calls(vec![call("ask", Executor::Human, false)]);
    let mut copy = Scenario::empty();
    copy.then(fork_of(first.state.seq));
    let events = first.journal[1..3].to_vec();
    copy.then(Action::EventsCopied(CopiedEvents {
        after: Seq::FIRST,
        events: events.clone(),
        is_last: false,
    }));
    assert_eq!(copy.wanted(), ["copying after 3"]);
    let sent = Action::Send(message("turn_9", IfBusy::Queue));
    for action in [sent, cancel(), answer("ask", None, serde_json::json!(1))] {
        assert_eq!(copy.apply(action), Err(Rejection::Forking));
    }
    assert_eq!(copy.apply(Action::Revive), Ok(vec![]));
    let again = Action::EventsCopied(CopiedEvents { after: Seq::FIRST, events, is_last: false });
    assert_eq!(copy.apply(again), Err(Rejection::Stale), "a page comes once");
    assert_eq!(copy.apply(fork_of(first.state.seq)), Err(Rejection::ConversationExists));
}

#[test]
fn a_page_with_a_gap_or_with_more_than_the_prefix_is_stale() {
    let first = Scenario::with_calls(vec![call("ask", Executor::Human, false)]);
    let mut copy = Scenario::empty();
    copy.then(fork_of(Seq::new(3)));
    for events in [&first.journal[2..3], &first.journal[1..4]] {
        let copied = CopiedEvents { after: Seq::FIRST, events: events.to_vec(), is_last: false };
        assert_eq!(copy.apply(Action::EventsCopied(copied)), Err(Rejection::Stale));
    }
}

/// A journal that is legal as a whole.
fn checked(journal: &[Event]) -> CheckedFold {
    let mut checked = CheckedFold::default();
    for event in journal {
        checked.fold(event).unwrap_or_else(|error| panic!("{error}: {event:?}"));
    }
    assert_eq!(checked.check_end(), Ok(()));
    checked
}

/// The calls of the journal's `tool_call` events, and those of its results, each in order.
fn calls_and_results(journal: &[Event]) -> (Vec<CallId>, Vec<CallId>) {
    let planned = |event: &Event| match &event.data {
        EventData::ToolCall(call) => Some(call.call_id.clone()),
        _ => None,
    };
    let finished = |event: &Event| match &event.data {
        EventData::ToolResult(result) => Some(result.call_id.clone()),
        _ => None,
    };
    let mut calls: Vec<_> = journal.iter().filter_map(planned).collect();
    let mut results: Vec<_> = journal.iter().filter_map(finished).collect();
    calls.sort();
    results.sort();
    (calls, results)
}

/// The message, its calls and their suspensions are one commit, and the prefix may end anywhere.
#[test]
fn every_result_has_its_call_wherever_the_prefix_ends() {
    let first = Scenario::with_calls(vec![
        call("run", Executor::Server, false),
        call("send", Executor::Server, true),
        call("ask", Executor::Human, false),
    ]);
    for at_seq in 1..=first.journal.len() {
        let copy = forked(&first.journal, at_seq, 2);
        let (calls, results) = calls_and_results(&copy.journal);
        assert_eq!(calls, results, "cut after {at_seq}");
        let state = checked(&copy.journal).state().clone();
        assert_eq!(state, copy.state, "cut after {at_seq}");
    }
}

#[test]
fn a_prefix_that_turns_out_shorter_than_asked_for_says_where_it_ends() {
    let first = Scenario::with_turn();
    let mut copy = Scenario::empty();
    copy.then(fork_of(Seq::new(9)));
    let (after, events) = (Seq::FIRST, first.journal[1..2].to_vec());
    copy.then(Action::EventsCopied(CopiedEvents { after, events, is_last: true }));
    let Some(EventData::Forked(fork)) = copy.journal.last().map(|event| &event.data) else {
        panic!("the copy is complete");
    };
    assert_eq!(fork.at_seq, Seq::new(2));
}

/// Journals of earlier versions do not say when the original was created, and a node of one may end a
/// copy that this one has begun.
#[test]
fn an_event_of_another_life_of_the_original_ends_no_copy() {
    let of = |created_at: Option<i64>| Fork {
        conversation_id: ConversationId::new("first"),
        at_seq: Seq::new(9),
        created_at: created_at.map(|second| Timestamp::from_second(second).unwrap()),
    };
    let ends = |own, seq, other| of(own).is_ended_by(Seq::new(seq), &of(other));
    assert!(ends(Some(1), 4, Some(1)) && ends(None, 4, None));
    assert!(!ends(Some(1), 10, Some(2)) && !ends(None, 10, Some(1)));
    assert!(ends(Some(1), 10, None) && !ends(Some(1), 9, None));
    let other = Fork { conversation_id: ConversationId::new("other"), ..of(None) };
    assert!(!of(None).is_ended_by(Seq::new(10), &other));
}

#[test]
fn a_fork_of_a_fork_is_copied_to_its_end() {
    let first = Scenario::with_turn();
    let second = forked(&first.journal, first.journal.len(), 2);
    let at_seq = second.state.seq;
    let fork = Fork { conversation_id: ConversationId::new("second"), at_seq, created_at: None };
    let mut third = Scenario::empty();
    third.then(Action::Create(crate::command::Create { fork: Some(fork), ..create() }));
    while third.state.forking.is_some() {
        let after = third.state.seq;
        let event = second.journal[after.get() as usize].clone();
        let is_last = event.seq == at_seq;
        third.then(Action::EventsCopied(CopiedEvents { after, events: vec![event], is_last }));
    }
    assert_eq!(third.state.seq, at_seq.next());
    assert_eq!(third.journal[1..at_seq.get() as usize], second.journal[1..]);
}

/// The calls and the results of every prefix's copy are the same.
fn assert_each_call_is_planned_once(journal: &[Event]) {
    for at_seq in 1..=journal.len() {
        let copy = forked(journal, at_seq, 9);
        let (calls, results) = calls_and_results(&copy.journal);
        assert_eq!(calls, results, "cut after {at_seq}");
    }
}

/// Older builds journalled no verdict with a call, and the first ones no timeout.
#[test]
fn a_call_that_an_older_build_planned_is_not_planned_again() {
    let mut first = Scenario::with_calls(vec![gated("send")]);
    first.then(remembering(deny("send", None), Scope::Conversation, 1_000));
    for event in &mut first.journal {
        if let EventData::ToolCall(planned) = &mut event.data {
            (planned.gate, planned.timeout_ms) = (None, 0);
        }
    }
    assert_each_call_is_planned_once(&first.journal);
}

/// The first builds gave a provider's call that came without a result none either.
#[test]
fn a_providers_call_that_an_older_build_left_open_is_not_planned_again() {
    let providers = call("find", Executor::Provider, false);
    let mut first = Scenario::with_calls(vec![providers, server("run")]);
    first.journal.retain(|event| kind(event) != "tool_result");
    for (event, seq) in first.journal.iter_mut().zip(1..) {
        event.seq = Seq::new(seq);
        if let EventData::ToolCall(planned) = &mut event.data {
            planned.gate = None;
        }
    }
    assert_each_call_is_planned_once(&first.journal);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_copy_of_any_prefix_is_at_rest(
        rolls in rolls(60), cut in any::<prop::sample::Index>(), page in 1_usize..20,
    ) {
        let run = RandomRun::from_rolls(&rolls);
        if run.journal.is_empty() {
            return Ok(());
        }
        let at_seq = cut.index(run.journal.len()) + 1;
        let copy = forked(&run.journal, at_seq, page);
        checked(&run.journal);
        checked(&copy.journal);
        JournalChecker::check(&copy.journal).assert_all_ended();
        let (calls, results) = calls_and_results(&copy.journal);
        let (old_calls, old_results) = calls_and_results(&run.journal);
        // A hook that halts a turn leaves calls that were never planned.
        if old_results.iter().all(|id| old_calls.contains(id)) {
            prop_assert_eq!(calls, results);
        }
        let State { turn, queue, dispatches, orphans, owed_report, unpublished, .. } = &copy.state;
        prop_assert!(turn.is_none() && queue.is_empty() && dispatches.is_empty());
        prop_assert!(orphans.is_empty() && owed_report.is_none() && unpublished.is_empty());
        prop_assert_eq!(wanted(&copy.state).len(), 0);
        let results = copy.journal.iter().filter(|event| matches!(event.data, EventData::Forked(_)));
        prop_assert_eq!(results.count(), 1);
    }
}
