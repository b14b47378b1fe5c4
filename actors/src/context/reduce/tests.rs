//! Tests of reductions of contexts that are too large, built from journals.
#![allow(clippy::unwrap_used)]

use abide_conversation::event::{
    AnswerFormat, AssistantMsg, ToolResult, TurnEnded, TurnOutcome, TurnStarted, UserMsg,
};
use abide_conversation::message::{
    CallRef, Message, MessageRole, MessageStatus, Outcome, text_block,
};
use abide_conversation::{AgentName, CallId, MessageId, Principal, Revision, Timestamp};
use serde_json::json;

use super::*;
use crate::model::Provider;
use crate::model::prompt::ToolRule;
use crate::model::prompt::retention::{Retention, RetentionMode};

/// Builds a journal.
#[derive(Default)]
struct JournalBuilder(Vec<Event>);

impl JournalBuilder {
    fn push(&mut self, turn: &str, data: EventData) {
        let (seq, turn_id) = (self.0.len() as u64 + 1, Some(TurnId::new(turn)));
        self.0.push(Event { seq: Seq::new(seq), at: Timestamp::UNIX_EPOCH, turn_id, data });
    }

    fn user_message(mut self, turn: &str) -> Self {
        let message = message("u", MessageRole::User, "Go on.");
        let user = UserMsg {
            message,
            message_id: Default::default(),
            scheduled_id: None,
            principal: Principal::new("ada"),
            identity: None,
            assigns: Default::default(),
            answer_format: AnswerFormat::Agent,
            tools: Default::default(),
            context: Vec::new(),
        };
        self.push(turn, EventData::UserMsg(user));
        self
    }

    fn turn_started(mut self, turn: &str) -> Self {
        let started = TurnStarted {
            agent: AgentName::new("a"),
            revision: Revision::new("r"),
            max_steps: 9,
            budget: Default::default(),
            summarize_over: None,
        };
        self.push(turn, EventData::TurnStarted(started));
        self
    }

    /// A step that calls a tool, whose result has this many words.
    fn step(mut self, turn: &str, tool: &str, words: usize) -> Self {
        let id = CallId::new(format!("c{}", self.0.len()));
        let call = CallRef { id: id.clone(), name: tool.to_owned(), args: json!({}).into() };
        let message =
            Message { tool_calls: vec![call], ..message("a", MessageRole::Assistant, "") };
        self.push(turn, EventData::AssistantMsg(assistant_message(message)));
        let outcome = Outcome::Ok(json!("word ".repeat(words)));
        self.push(
            turn,
            EventData::ToolResult(ToolResult {
                call_id: id,
                outcome,
                ui: None,
                effective_args: None,
            }),
        );
        self
    }

    fn turn_ended(mut self, turn: &str) -> Self {
        self.push(
            turn,
            EventData::AssistantMsg(assistant_message(message(
                "a",
                MessageRole::Assistant,
                "Done.",
            ))),
        );
        self.push(
            turn,
            EventData::TurnEnded(TurnEnded {
                outcome: TurnOutcome::Completed,
                reason: None,
                usage: None,
            }),
        );
        self
    }

    /// A whole turn of one step.
    fn turn(self, turn: &str, words: usize) -> Self {
        self.user_message(turn).turn_started(turn).step(turn, "kept", words).turn_ended(turn)
    }

    fn events(&self) -> Vec<&Event> {
        self.0.iter().collect()
    }

    fn tokens(&self, turn: &str, context: &Context) -> u64 {
        let (turn, counter) = (TurnId::new(turn), TokenCounter::estimating(Provider::Scripted));
        let events = &*self.events();
        let view = PromptInput { events, turn: &turn, context, rules: &rule };
        view.messages().iter().map(|shown| counter.message(&shown.message)).sum()
    }

    fn crowded<T>(&self, turn: &str, act: impl FnOnce(&ContextReducer<'_>) -> T) -> T {
        let (turn_id, context) = (TurnId::new(turn), Context::default());
        let events = &*self.events();
        act(&ContextReducer {
            input: PromptInput { events, turn: &turn_id, context: &context, rules: &rule },
            first_queued: None,
            step: Step::FIRST,
            reason: ReductionReason::Budget,
            tokens: self.tokens(turn, &context),
            head_tokens: 0,
            counter: TokenCounter::estimating(Provider::Scripted),
        })
    }

    /// The tokens that a reduction leaves.
    fn tokens_left(&self, turn: &str, reduced: &ContextReduced) -> u64 {
        self.tokens(turn, &Context { marks: reduced.marks, ..Context::default() })
    }
}

/// The rules of the tools: `kept` never expires, `brief` keeps its newest result.
fn rule(name: &str) -> ToolRule {
    let keep = if name == "brief" { RetentionMode::Count(1) } else { Retention::default().keep };
    ToolRule { is_builtin: false, retention: Retention { keep, never_evict: name == "kept" } }
}

fn copy<'a>(it: &ContextReducer<'a>) -> ContextReducer<'a> {
    let ContextReducer { input, first_queued, step, reason, tokens, head_tokens, counter } = *it;
    ContextReducer { input, first_queued, step, reason, tokens, head_tokens, counter }
}

fn message(id: &str, role: MessageRole, text: &str) -> Message {
    Message::new(MessageId::new(id), role, vec![text_block(text)])
}

fn assistant_message(message: Message) -> AssistantMsg {
    AssistantMsg {
        message,
        status: MessageStatus::Complete,
        step: Step::FIRST,
        usage: None,
        stop: None,
        verbatim: None,
        fallback: None,
        context_tokens: Default::default(),
        read_upto: None,
    }
}

#[test]
fn aged_results_expire_first_and_that_may_be_enough() {
    let journal = JournalBuilder::default().user_message("t1").turn_started("t1");
    let journal = (0..4).fold(journal, |journal, _| journal.step("t1", "brief", 200));
    let reduced = journal.crowded("t1", |it| it.reduce_within(600)).unwrap();
    assert_eq!((reduced.results, reduced.turns), (3, 0));
    assert_eq!((reduced.marks.shown_from, reduced.marks.expired_upto), (Seq::ZERO, Seq::new(10)));
    assert_eq!(reduced.tokens_after, journal.tokens_left("t1", &reduced));
    assert!(reduced.tokens_after < 600 && reduced.tokens_before > 800);
}

#[test]
fn the_oldest_turns_are_dropped_down_to_three_fifths_of_the_budget() {
    let journal = ["t1", "t2", "t3", "t4"]
        .iter()
        .fold(JournalBuilder::default(), |it, turn| it.turn(turn, 200));
    let journal = journal.user_message("t5").turn_started("t5");
    let whole = journal.tokens("t5", &Context::default());
    let reduced = journal.crowded("t5", |it| it.reduce_within(whole - 1)).unwrap();
    assert_eq!((reduced.results, reduced.turns), (0, 2));
    // A turn has six events; the third turn's message is event 13.
    assert_eq!((reduced.marks.read_from, reduced.marks.shown_from), (Seq::new(13), Seq::new(13)));
    assert!(reduced.tokens_after * 5 <= whole * 3);
    // The note about dropped turns is in the prompt, too.
    assert!(reduced.tokens_after.abs_diff(journal.tokens_left("t5", &reduced)) <= 1);
}

#[test]
fn the_running_turn_is_never_dropped() {
    let journal = JournalBuilder::default()
        .turn("t1", 10)
        .user_message("t2")
        .turn_started("t2")
        .step("t2", "look", 900);
    let reduced = journal.crowded("t2", |it| it.reduce_to(10)).unwrap();
    assert_eq!(reduced.turns, 1);
    let context = Context { marks: reduced.marks, ..Context::default() };
    assert!(journal.tokens("t2", &context) > 900, "nor is the result of its last step");
}

#[test]
fn a_small_gain_is_not_worth_another_prefix() {
    let journal = JournalBuilder::default().user_message("t1").turn_started("t1");
    let journal = (0..9)
        .fold(journal, |journal, at| journal.step("t1", "look", if at < 2 { 5 } else { 300 }));
    assert_eq!(journal.crowded("t1", |it| it.reduce_within(1_000)), None);
    assert!(journal.crowded("t1", |it| it.reduce_to(1_000)).is_some());
}

#[test]
fn under_pressure_all_results_expire_but_the_last_steps_and_those_never_evicted() {
    let journal = JournalBuilder::default().user_message("t1").turn_started("t1");
    let journal = journal.step("t1", "kept", 100).step("t1", "look", 100).step("t1", "look", 100);
    let reduced = journal.crowded("t1", |it| it.reduce_to(250)).unwrap();
    assert_eq!((reduced.results, reduced.marks.forced_upto), (1, Seq::new(7)));
    assert_eq!(journal.crowded("t1", |it| it.reduce_within(250)), None, "a budget is no need");
    let context = Context { marks: reduced.marks, ..Context::default() };
    let turn = TurnId::new("t1");
    let events = &*journal.events();
    let view = PromptInput { events, turn: &turn, context: &context, rules: &rule };
    let again = journal
        .crowded("t1", |it| ContextReducer { input: view, tokens: 230, ..copy(it) }.reduce_to(100));
    assert_eq!(again, None, "nothing is left to take");
}

#[test]
fn a_message_that_was_queued_before_is_still_read() {
    let journal = JournalBuilder::default()
        .user_message("t1")
        .turn_started("t1")
        .user_message("t2")
        .step("t1", "look", 900);
    let journal = journal.turn_ended("t1").turn_started("t2");
    let reduced = journal.crowded("t2", |it| it.reduce_within(100)).unwrap();
    assert_eq!((reduced.marks.read_from, reduced.marks.shown_from), (Seq::new(3), Seq::new(8)));
}

#[test]
fn percentages_are_of_the_providers_own_count() {
    let journal = ["t1", "t2", "t3", "t4"]
        .iter()
        .fold(JournalBuilder::default(), |it, turn| it.turn(turn, 200));
    let journal = journal.user_message("t5").turn_started("t5");
    let ours = journal.tokens("t5", &Context::default());
    let reduced = journal
        .crowded("t5", |it| {
            ContextReducer { tokens: ours * 10, ..copy(it) }.reduce_within(ours * 9)
        })
        .unwrap();
    assert_eq!((reduced.turns, reduced.tokens_before), (2, ours * 10));
    assert!(reduced.tokens_after * 5 <= ours * 9 * 3);
}

#[test]
fn a_count_that_cannot_be_true_drops_nothing() {
    let journal = JournalBuilder::default()
        .turn("t1", 100)
        .turn("t2", 100)
        .user_message("t3")
        .turn_started("t3");
    let rough = journal.crowded("t3", |it| it.tokens);
    let believed = |tokens| {
        journal
            .crowded("t3", |it| ContextReducer { tokens, ..copy(it) }.with_plausible_count().tokens)
    };
    assert_eq!(believed(rough * 2), rough * 2);
    assert_eq!(believed(1_000_000), rough * 5 / 2);
}
