//! Reduces a context that exceeds its budget, starting with what is cheapest to lose.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use abide_conversation::context::{Context, ContextMarks};
use abide_conversation::event::{ContextReduced, Event, EventData, ReductionReason};
use abide_conversation::{Seq, Step, TurnId};

use super::limits::percent_of;
use crate::model::prompt::PromptInput;
use crate::model::prompt::retention::expired_calls;
use crate::model::tokens::TokenCounter;

/// When turns are dropped, the context shrinks to this share of the budget, so that the next steps
/// only append.
const KEEP_PERCENT: u64 = 60;
/// A reduction that frees less of the budget is not worth a prefix that is in no cache.
const MIN_GAIN_PERCENT: u64 = 25;
/// The largest true size of a context, in percent of its estimate. A provider that counts more
/// either counts something else, such as the input of its own tools, or is wrong.
const MAX_OVERCOUNT_PERCENT: u64 = 250;

/// Reduces one context that is too large.
pub(crate) struct ContextReducer<'a> {
    pub(crate) input: PromptInput<'a>,
    /// The first message that waits in the queue.
    pub(crate) first_queued: Option<Seq>,
    pub(crate) step: Step,
    pub(crate) reason: ReductionReason,
    /// The known size of the whole prompt, in tokens.
    pub(crate) tokens: u64,
    /// The estimated size of the system prompt and the tools, in tokens.
    pub(crate) head_tokens: u64,
    /// An estimating counter is enough: only proportions matter here.
    pub(crate) counter: TokenCounter,
}

/// The sizes of the context as shown by some marks.
struct WeighedContext {
    marks: ContextMarks,
    /// Tokens by turn, oldest first.
    turns: Vec<(TurnId, u64)>,
    tokens: u64,
}

impl ContextReducer<'_> {
    /// Caps the known size at the largest plausible one.
    pub(crate) fn with_plausible_count(mut self) -> Self {
        let rough = self.weigh(self.input.context.marks, 1, 1).tokens;
        self.tokens = self.tokens.min(percent_of(rough, MAX_OVERCOUNT_PERCENT));
        self
    }

    /// Expires results that are past their retention, then drops the oldest turns. `None` if that
    /// is not worth it.
    pub(crate) fn reduce_within(&self, budget: u64) -> Option<ContextReduced> {
        let freed = |it: &WeighedContext| self.tokens.saturating_sub(it.tokens);
        let is_worth_it = |it: &WeighedContext| {
            freed(it) > 0 && freed(it) >= percent_of(budget, MIN_GAIN_PERCENT)
        };
        let now = self.weigh(self.input.context.marks, 1, 1);
        let aged = self.weigh_relative(self.expire_aged(), &now);
        if aged.tokens <= budget && is_worth_it(&aged) {
            return Some(self.reduction(&aged));
        }
        let dropped = self.drop_turns(&aged, percent_of(budget, KEEP_PERCENT), &now);
        is_worth_it(&dropped).then(|| self.reduction(&dropped))
    }

    /// Reduces the context to at most `tokens`, if necessary by expiring all results but those of
    /// the last step, whatever their retention. `None` if nothing more can be removed.
    pub(crate) fn reduce_to(&self, tokens: u64) -> Option<ContextReduced> {
        let now = self.weigh(self.input.context.marks, 1, 1);
        let aged = self.weigh_relative(self.expire_aged(), &now);
        let dropped = self.drop_turns(&aged, tokens, &now);
        let forced = self.weigh_relative(self.expire_all(dropped.marks), &now);
        let stages = [aged, dropped, forced];
        let reached = stages.iter().find(|it| it.tokens <= tokens).or(stages.last())?;
        (reached.tokens < self.tokens).then(|| self.reduction(reached))
    }

    fn expire_aged(&self) -> ContextMarks {
        let last = self.input.events.last().map_or(Seq::ZERO, |event| event.seq);
        let marks = self.input.context.marks;
        ContextMarks { expired_upto: marks.expired_upto.max(last), ..marks }
    }

    /// Marks all results before the running turn's last step as expired.
    fn expire_all(&self, marks: ContextMarks) -> ContextMarks {
        let starts_step = |data: &EventData| {
            matches!(data, EventData::AssistantMsg(_) | EventData::TurnStarted(_))
        };
        let is_own = |of: &Option<TurnId>| of.as_ref() == Some(self.input.turn);
        let mut events = self.input.events.iter().rev();
        let last = events.find(|event| is_own(&event.turn_id) && starts_step(&event.data));
        ContextMarks {
            forced_upto: marks.forced_upto.max(last.map_or(Seq::ZERO, |event| event.seq)),
            ..marks
        }
    }

    /// Drops the oldest turns, but never the running one, until at most `max_tokens` tokens are left.
    fn drop_turns(
        &self,
        aged: &WeighedContext,
        max_tokens: u64,
        now: &WeighedContext,
    ) -> WeighedContext {
        let ends: HashMap<&TurnId, Seq> = self
            .input
            .events
            .iter()
            .filter_map(|event| {
                let ends = matches!(event.data, EventData::TurnEnded(_));
                event.turn_id.as_ref().filter(|_| ends).map(|turn| (turn, event.seq))
            })
            .collect();
        let (mut marks, mut left) = (aged.marks, aged.tokens);
        for (turn, tokens) in &aged.turns {
            let Some(end) = ends.get(turn).filter(|_| left > max_tokens && turn != self.input.turn)
            else {
                break;
            };
            marks.shown_from = end.saturating_add(1);
            left = left.saturating_sub(*tokens);
        }
        let first_shown = first_shown_event(self.input.events, marks.shown_from, self.first_queued);
        marks.read_from = marks.read_from.max(first_shown);
        self.weigh_relative(marks, now)
    }

    fn weigh_relative(&self, marks: ContextMarks, now: &WeighedContext) -> WeighedContext {
        self.weigh(marks, self.tokens, now.tokens.max(1))
    }

    /// Sizes the context as shown by `marks`. Each count is scaled by `known / rough`, so that the
    /// sum for the present context equals its known size.
    fn weigh(&self, marks: ContextMarks, known: u64, rough: u64) -> WeighedContext {
        let scaled = |tokens: u64| {
            let scaled = u128::from(tokens) * u128::from(known) / u128::from(rough);
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        let context = Context { marks, ..self.input.context.clone() };
        let input = PromptInput { context: &context, ..self.input };
        let mut turns: Vec<(TurnId, u64)> = Vec::new();
        let mut earlier = self.head_tokens;
        for message in input.messages() {
            let tokens = self.counter.message(&message.message);
            match (message.turn, turns.last_mut()) {
                (None, _) => earlier = earlier.saturating_add(tokens),
                (Some(turn), Some(last)) if last.0 == *turn => last.1 += tokens,
                (Some(turn), _) => turns.push((turn.clone(), tokens)),
            }
        }
        let all = turns.iter().fold(earlier, |all, (_, tokens)| all.saturating_add(*tokens));
        let turns = turns.into_iter().map(|(turn, tokens)| (turn, scaled(tokens))).collect();
        WeighedContext { marks, turns, tokens: scaled(all) }
    }

    fn reduction(&self, to: &WeighedContext) -> ContextReduced {
        let PromptInput { events, context, rules, .. } = self.input;
        let results = |marks| expired_calls(events, marks, rules).len();
        let starts = events.iter().filter(|event| {
            let dropped = (context.marks.shown_from..to.marks.shown_from).contains(&event.seq);
            dropped && matches!(event.data, EventData::TurnStarted(_))
        });
        let newly_expired = results(&to.marks).saturating_sub(results(&context.marks));
        ContextReduced {
            step: self.step,
            marks: to.marks,
            reason: self.reason,
            results: u32::try_from(newly_expired).unwrap_or(u32::MAX),
            turns: u32::try_from(starts.count()).unwrap_or(u32::MAX),
            tokens_before: self.tokens,
            tokens_after: to.tokens,
        }
    }
}

/// The first event that must be read if the turns that started at `since` or later are shown: a
/// message precedes its turn, and those that still wait in the queue are not among the events.
pub(crate) fn first_shown_event(events: &[&Event], since: Seq, first_queued: Option<Seq>) -> Seq {
    let dropped: Vec<&TurnId> = events
        .iter()
        .filter_map(|event| {
            let is_dropped = event.seq < since && matches!(event.data, EventData::TurnStarted(_));
            event.turn_id.as_ref().filter(|_| is_dropped)
        })
        .collect();
    let message = events.iter().find(|event| match &event.turn_id {
        Some(turn) => matches!(event.data, EventData::UserMsg(_)) && !dropped.contains(&turn),
        None => false,
    });
    let message = message.map_or(since, |event| event.seq);
    since.min(message).min(first_queued.unwrap_or(since))
}
