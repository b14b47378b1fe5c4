//! What the model reads: reduced before a step, summarized between turns.

use super::scenario::*;
use crate::command::{Action, IfBusy, ModelReplied, Send};
use crate::context::{ContextMarks, Summary};
use crate::event::{ContextReduced, ReductionReason, Summarized};
use crate::{Rejection, TurnId};

fn marks(since: u64, expired: u64) -> ContextMarks {
    ContextMarks { read_from: since, shown_from: since, expired_upto: expired, forced_upto: 0 }
}

fn reduced(step: u32, marks: ContextMarks, why: ReductionReason) -> Action {
    let (results, turns, tokens_before, tokens_after) = (1, 1, 900, 500);
    let reduced =
        ContextReduced { step, marks, reason: why, results, turns, tokens_before, tokens_after };
    Action::ContextReduced { turn: TurnId::new("turn_1"), reduced }
}

/// A summary of what ended up to an event, after the one that covered `after`.
fn summarized(after: u64, upto: u64) -> Action {
    let (text, usage) = ("They met.".to_owned(), None);
    let (tokens_before, tokens_after) = (900, 300);
    let marks = marks(upto + 1, 0);
    let summarized = Summarized { upto, marks, text, usage, tokens_before, tokens_after };
    Action::Summarized { after, summarized }
}

fn failed() -> Action {
    Action::SummaryFailed { reason: "no model".to_owned() }
}

/// A turn that ends with a context of so many tokens, of which 800 are worth a summary.
fn turn(story: &mut Scenario, id: &str, tokens: u64) {
    let mut said = message(id, IfBusy::Reject);
    said.settings.summarize_over = Some(800);
    story.then(Action::Send(Send { ..said }));
    let Action::ModelReplied(reply) = story.model_reply(vec![]) else { unreachable!() };
    story.then(Action::ModelReplied(ModelReplied { context_tokens: Some(tokens), ..reply }));
}

fn large() -> Scenario {
    let mut story = Scenario::empty();
    turn(&mut story, "turn_1", 900);
    story
}

#[test]
fn a_reduction_is_journalled_and_the_model_still_asked() {
    let mut story = Scenario::with_turn();
    assert_eq!(
        story.apply(reduced(1, marks(2, 3), ReductionReason::Budget)),
        Ok(vec!["context_reduced"])
    );
    assert_eq!(story.wanted(), ["model step 1 of turn_1"]);
    let context = &story.state.context;
    assert_eq!((context.tokens, context.counted_upto), (500, story.state.seq));
    assert_eq!(context.marks, marks(2, 3));
}

#[test]
fn marks_only_grow() {
    let mut story = Scenario::with_turn();
    story.then(reduced(1, marks(2, 2), ReductionReason::Budget));
    for less in [marks(2, 2), marks(1, 3), marks(3, 1)] {
        let less = story.apply(reduced(1, less, ReductionReason::Budget));
        assert_eq!(less, Err(Rejection::Stale));
    }
    let forced = ContextMarks { forced_upto: 1, ..marks(2, 2) };
    story.then(reduced(1, forced, ReductionReason::Budget));
    assert_eq!(
        story.apply(reduced(2, marks(3, 3), ReductionReason::Budget)),
        Err(Rejection::Stale)
    );
}

#[test]
fn a_context_is_too_long_for_its_provider_once_a_step() {
    let mut story = Scenario::with_turn();
    story.then(reduced(1, marks(1, 1), ReductionReason::TooLong));
    let again = story.apply(reduced(1, marks(2, 2), ReductionReason::TooLong));
    assert_eq!(again, Err(Rejection::Stale));
    story.then(reduced(1, marks(2, 2), ReductionReason::Budget));
    story.reply(vec![server("a")]).unwrap();
    story.then(returned("a", 1)).then(reduced(2, marks(3, 3), ReductionReason::TooLong));
}

#[test]
fn a_large_context_is_summarized_when_its_turn_has_ended_one_at_a_time() {
    let mut story = Scenario::empty();
    turn(&mut story, "turn_1", 800);
    assert!(story.wanted().is_empty());
    turn(&mut story, "turn_2", 801);
    let wants = story.wanted();
    assert_eq!(wants, [format!("summary up to {}", story.state.seq)]);
    turn(&mut story, "turn_3", 999);
    assert_eq!(story.wanted(), wants, "not another one");
}

#[test]
fn turns_that_were_dropped_are_summarized_however_little_is_left() {
    let mut story = Scenario::empty();
    turn(&mut story, "turn_1", 700);
    let mut said = message("turn_2", IfBusy::Reject);
    said.settings.summarize_over = Some(800);
    story.then(Action::Send(said));
    let Action::ContextReduced { reduced, .. } = reduced(1, marks(6, 0), ReductionReason::Budget)
    else {
        unreachable!()
    };
    story.then(Action::ContextReduced { turn: TurnId::new("turn_2"), reduced });
    story.reply(vec![]).unwrap();
    let upto = story.state.seq;
    assert_eq!(story.wanted(), [format!("summary up to {upto}")]);
    story.then(summarized(0, upto));
    turn(&mut story, "turn_3", 700);
    assert!(story.wanted().is_empty());
}

#[test]
fn a_summary_is_a_compare_and_set_on_what_was_covered_before() {
    let mut story = large();
    let upto = story.state.seq;
    for (after, upto) in [(1, upto), (0, upto + 1), (0, 0)] {
        assert_eq!(story.apply(summarized(after, upto)), Err(Rejection::Stale));
    }
    assert_eq!(story.apply(summarized(0, upto)), Ok(vec!["summarized"]));
    let seq = story.state.seq;
    let context = &story.state.context;
    assert_eq!((context.summary, context.tokens), (Some(Summary { seq, upto }), 300));
    assert_eq!(context.marks, marks(upto + 1, 0));
    assert!(story.wanted().is_empty());
    assert_eq!(story.apply(summarized(0, upto)), Err(Rejection::Stale), "a second one");
    turn(&mut story, "turn_2", 900);
    let next = story.state.seq;
    assert_eq!(story.apply(summarized(0, next)), Err(Rejection::Stale), "after the same");
    story.then(summarized(upto, next));
}

#[test]
fn a_summary_takes_back_no_mark_that_was_set_meanwhile() {
    let mut story = large();
    let upto = story.state.seq;
    story.then(send("turn_2"));
    let marks = marks(upto + 2, upto + 2);
    let Action::ContextReduced { reduced, .. } = reduced(1, marks, ReductionReason::Budget) else {
        unreachable!()
    };
    story.then(Action::ContextReduced { turn: TurnId::new("turn_2"), reduced });
    story.then(summarized(0, upto));
    assert_eq!(story.state.context.marks, marks);
    assert_eq!(story.wanted(), ["model step 1 of turn_2"]);
}

#[test]
fn a_summary_that_failed_is_tried_again_after_another_turn() {
    let mut story = large();
    assert_eq!(story.apply(failed()), Ok(vec!["summary_failed"]));
    assert!(story.wanted().is_empty());
    assert_eq!(story.apply(failed()), Err(Rejection::Stale));
    let late = story.state.seq;
    assert_eq!(story.apply(summarized(0, late)), Err(Rejection::Stale));
    turn(&mut story, "turn_2", 900);
    assert_eq!(story.wanted().len(), 1);
}

#[test]
fn what_a_step_counted_is_out_of_date_once_a_summary_has_come() {
    for (read_at, tokens) in [(0, 300), (u64::MAX, 950)] {
        let mut story = large();
        let upto = story.state.seq;
        story.then(send("turn_2")).then(summarized(0, upto));
        assert_eq!(story.state.context.tokens, 300);
        let Action::ModelReplied(reply) = story.model_reply(vec![]) else { unreachable!() };
        let context_tokens = Some(950);
        story.then(Action::ModelReplied(ModelReplied {
            context_tokens,
            context_seq: read_at,
            ..reply
        }));
        assert_eq!(story.state.context.tokens, tokens);
    }
}
