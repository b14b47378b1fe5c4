//! What the model reads: reduced before a step, summarized between turns.

use super::scenario::*;
use crate::command::{Action, IfBusy, ModelReplied, Send};
use crate::context::{ContextMarks, Summary};
use crate::event::{ContextReduced, ReductionReason, Summarized};
use crate::{Rejection, Seq, Step, TurnId};

fn marks(since: u64, expired: u64) -> ContextMarks {
    let [since, expired] = [since, expired].map(Seq::new);
    ContextMarks {
        read_from: since,
        shown_from: since,
        expired_upto: expired,
        forced_upto: Seq::ZERO,
    }
}

fn reduced(step: u32, marks: ContextMarks, why: ReductionReason) -> Action {
    let reduced = ContextReduced {
        step: Step::new(step),
        marks,
        reason: why,
        results: 1,
        turns: 1,
        tokens_before: 900,
        tokens_after: 500,
    };
    Action::ContextReduced { turn: TurnId::new("turn_1"), reduced }
}

/// A summary up to `upto`, made when the last one covered up to `after`.
fn summarized(after: Seq, upto: Seq) -> Action {
    let (text, usage) = ("They met.".to_owned(), None);
    let (tokens_before, tokens_after) = (900, 300);
    let marks = marks(upto.get() + 1, 0);
    let summarized = Summarized { upto, marks, text, usage, tokens_before, tokens_after };
    Action::Summarized { after, summarized }
}

fn failed() -> Action {
    Action::SummaryFailed { reason: "no model".to_owned() }
}

/// A turn that ends with a context of `tokens` tokens; more than 800 are summarized.
fn turn(scenario: &mut Scenario, id: &str, tokens: u64) {
    let mut sent = message(id, IfBusy::Reject);
    sent.settings.summarize_over = Some(800);
    scenario.then(Action::Send(Send { ..sent }));
    let Action::ModelReplied(reply) = scenario.model_reply(vec![]) else { unreachable!() };
    scenario.then(Action::ModelReplied(ModelReplied { context_tokens: Some(tokens), ..reply }));
}

fn large() -> Scenario {
    let mut scenario = Scenario::empty();
    turn(&mut scenario, "turn_1", 900);
    scenario
}

#[test]
fn a_reduction_is_journalled_and_the_model_still_asked() {
    let mut scenario = Scenario::with_turn();
    assert_eq!(
        scenario.apply(reduced(1, marks(2, 3), ReductionReason::Budget)),
        Ok(vec!["context_reduced"])
    );
    assert_eq!(scenario.wanted(), ["model step 1 of turn_1"]);
    let context = &scenario.state.context;
    assert_eq!((context.tokens, context.counted_upto), (500, scenario.state.seq));
    assert_eq!(context.marks, marks(2, 3));
}

#[test]
fn marks_only_grow() {
    let mut scenario = Scenario::with_turn();
    scenario.then(reduced(1, marks(2, 2), ReductionReason::Budget));
    for less in [marks(2, 2), marks(1, 3), marks(3, 1)] {
        let less = scenario.apply(reduced(1, less, ReductionReason::Budget));
        assert_eq!(less, Err(Rejection::Stale));
    }
    let forced = ContextMarks { forced_upto: Seq::FIRST, ..marks(2, 2) };
    scenario.then(reduced(1, forced, ReductionReason::Budget));
    assert_eq!(
        scenario.apply(reduced(2, marks(3, 3), ReductionReason::Budget)),
        Err(Rejection::Stale)
    );
}

#[test]
fn a_context_is_too_long_for_its_provider_once_a_step() {
    let mut scenario = Scenario::with_turn();
    scenario.then(reduced(1, marks(1, 1), ReductionReason::TooLong));
    let again = scenario.apply(reduced(1, marks(2, 2), ReductionReason::TooLong));
    assert_eq!(again, Err(Rejection::Stale));
    scenario.then(reduced(1, marks(2, 2), ReductionReason::Budget));
    scenario.reply(vec![server("a")]).unwrap();
    scenario.then(returned("a", 1)).then(reduced(2, marks(3, 3), ReductionReason::TooLong));
}

#[test]
fn a_large_context_is_summarized_when_its_turn_has_ended_one_at_a_time() {
    let mut scenario = Scenario::empty();
    turn(&mut scenario, "turn_1", 800);
    assert!(scenario.wanted().is_empty());
    turn(&mut scenario, "turn_2", 801);
    let wants = scenario.wanted();
    assert_eq!(wants, [format!("summary up to {}", scenario.state.seq)]);
    turn(&mut scenario, "turn_3", 999);
    assert_eq!(scenario.wanted(), wants, "not another one");
}

#[test]
fn turns_that_were_dropped_are_summarized_however_little_is_left() {
    let mut scenario = Scenario::empty();
    turn(&mut scenario, "turn_1", 700);
    let mut sent = message("turn_2", IfBusy::Reject);
    sent.settings.summarize_over = Some(800);
    scenario.then(Action::Send(sent));
    let Action::ContextReduced { reduced, .. } = reduced(1, marks(6, 0), ReductionReason::Budget)
    else {
        unreachable!()
    };
    scenario.then(Action::ContextReduced { turn: TurnId::new("turn_2"), reduced });
    scenario.reply(vec![]).unwrap();
    let upto = scenario.state.seq;
    assert_eq!(scenario.wanted(), [format!("summary up to {upto}")]);
    scenario.then(summarized(Seq::ZERO, upto));
    turn(&mut scenario, "turn_3", 700);
    assert!(scenario.wanted().is_empty());
}

#[test]
fn a_summary_is_a_compare_and_set_on_what_was_covered_before() {
    let mut scenario = large();
    let upto = scenario.state.seq;
    for (after, upto) in [(Seq::FIRST, upto), (Seq::ZERO, upto.next()), (Seq::ZERO, Seq::ZERO)] {
        assert_eq!(scenario.apply(summarized(after, upto)), Err(Rejection::Stale));
    }
    assert_eq!(scenario.apply(summarized(Seq::ZERO, upto)), Ok(vec!["summarized"]));
    let seq = scenario.state.seq;
    let context = &scenario.state.context;
    assert_eq!((context.summary, context.tokens), (Some(Summary { seq, upto }), 300));
    assert_eq!(context.marks, marks(upto.get() + 1, 0));
    assert!(scenario.wanted().is_empty());
    assert_eq!(scenario.apply(summarized(Seq::ZERO, upto)), Err(Rejection::Stale), "a second one");
    turn(&mut scenario, "turn_2", 900);
    let next = scenario.state.seq;
    assert_eq!(
        scenario.apply(summarized(Seq::ZERO, next)),
        Err(Rejection::Stale),
        "after the same"
    );
    scenario.then(summarized(upto, next));
}

#[test]
fn a_summary_takes_back_no_mark_that_was_set_meanwhile() {
    let mut scenario = large();
    let upto = scenario.state.seq;
    scenario.then(send("turn_2"));
    let marks = marks(upto.get() + 2, upto.get() + 2);
    let Action::ContextReduced { reduced, .. } = reduced(1, marks, ReductionReason::Budget) else {
        unreachable!()
    };
    scenario.then(Action::ContextReduced { turn: TurnId::new("turn_2"), reduced });
    scenario.then(summarized(Seq::ZERO, upto));
    assert_eq!(scenario.state.context.marks, marks);
    assert_eq!(scenario.wanted(), ["model step 1 of turn_2"]);
}

#[test]
fn a_summary_that_failed_is_tried_again_after_another_turn() {
    let mut scenario = large();
    assert_eq!(scenario.apply(failed()), Ok(vec!["summary_failed"]));
    assert!(scenario.wanted().is_empty());
    assert_eq!(scenario.apply(failed()), Err(Rejection::Stale));
    let late = scenario.state.seq;
    assert_eq!(scenario.apply(summarized(Seq::ZERO, late)), Err(Rejection::Stale));
    turn(&mut scenario, "turn_2", 900);
    assert_eq!(scenario.wanted().len(), 1);
}

#[test]
fn what_a_step_counted_is_out_of_date_once_a_summary_has_come() {
    for (read_at, tokens) in [(Seq::ZERO, 300), (Seq::MAX, 950)] {
        let mut scenario = large();
        let upto = scenario.state.seq;
        scenario.then(send("turn_2")).then(summarized(Seq::ZERO, upto));
        assert_eq!(scenario.state.context.tokens, 300);
        let Action::ModelReplied(reply) = scenario.model_reply(vec![]) else { unreachable!() };
        let context_tokens = Some(950);
        scenario.then(Action::ModelReplied(ModelReplied {
            context_tokens,
            context_seq: read_at,
            ..reply
        }));
        assert_eq!(scenario.state.context.tokens, tokens);
    }
}
