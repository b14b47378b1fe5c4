//! The prompt of one step, within its token budget.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use abide_conversation::event::{Event, EventData, ReductionReason};
use abide_conversation::message::{Message, ProviderMessage};
use abide_conversation::{Action, MessageId, Seq};

use super::ModelStep;
use crate::context::limits::{sendable, window};
use crate::context::reduce::ContextReducer;
use crate::definition::Definition;
use crate::limits::encoded_len;
use crate::model::ToolSpec;
use crate::model::prompt::{CONTEXT_ID, PromptInput, PromptMessage, ToolRule, generated_message};
use crate::model::tokens::{TokenCounter, plausible_minimum};

/// The messages of a request.
pub(super) struct Prompt {
    pub(super) messages: Vec<Message>,
    /// The number of leading messages that the next step sends again.
    pub(super) stable: usize,
    pub(super) verbatim: BTreeMap<MessageId, ProviderMessage>,
    pub(super) weight: Weight,
}

/// The tokens of a prompt.
#[derive(Clone, Copy)]
pub(super) struct Weight {
    /// The tokens of everything that the next step sends again.
    pub(super) tokens: u64,
    /// The fewest tokens that it can plausibly have.
    pub(super) least: u64,
    /// The tokens that hooks added to this step only.
    pub(super) transient: u64,
}

impl ModelStep<'_> {
    /// The prompt, or the action that must be journalled first or instead.
    pub(super) async fn prompt(&self, events: &[&Event]) -> Result<Prompt, Action> {
        let rules = |name: &str| self.rule(name);
        let input = self.input(events, &rules);
        let shown = input.messages();
        let least = shown.iter().map(|shown| plausible_minimum(&shown.message)).sum();
        let tokens = self.estimate(&shown).await.max(least);
        if let Some(first) = self.make_room(input, tokens) {
            return Err(first);
        }
        let verbatim = shown.iter().filter_map(|shown| {
            shown.verbatim.map(|verbatim| (shown.message.id.clone(), verbatim.clone()))
        });
        let verbatim = verbatim.collect();
        let mut messages: Vec<Message> = shown.into_iter().map(|shown| shown.message).collect();
        let stable = messages.len();
        let mut added: Vec<Message> = self.turn_context(events).into_iter().collect();
        added.extend(self.run_pre_hooks(events, &messages).await?);
        let transient = added.iter().map(|message| self.counter.message(message)).sum();
        messages.extend(added);
        Ok(Prompt { messages, stable, verbatim, weight: Weight { tokens, least, transient } })
    }

    /// What the client gave with the turn's message for the end of the turn's prompts.
    fn turn_context(&self, events: &[&Event]) -> Option<Message> {
        let own = |event: &&&Event| event.turn_id.as_ref() == Some(&self.turn.id);
        let context = events.iter().filter(own).find_map(|event| match &event.data {
            EventData::UserMsg(message) => Some(message.context.clone()),
            _ => None,
        });
        let context = context.filter(|context| !context.is_empty())?;
        Some(generated_message(format!("{CONTEXT_ID}turn"), context))
    }

    /// Halves a prompt that was too long for the provider; at most once a step.
    pub(super) fn shorten(&self, events: &[&Event], sent: Weight) -> Option<Action> {
        let rules = |name: &str| self.rule(name);
        let input = self.input(events, &rules);
        let reducer = self.reducer(input, sent.tokens, ReductionReason::TooLong);
        let reduced = reducer.reduce_to(sent.tokens / 2)?;
        let is_first = self.turn.overflowed_step < self.step;
        is_first.then(|| Action::ContextReduced { turn: self.turn.id.clone(), reduced })
    }

    fn input<'a>(
        &'a self,
        events: &'a [&'a Event],
        rules: &'a crate::model::prompt::ToolRules<'a>,
    ) -> PromptInput<'a> {
        PromptInput { events, turn: &self.turn.id, context: &self.ctx.state.context, rules }
    }

    /// The provider's last count, plus an estimate of what has come since. Everything is estimated
    /// where the provider has counted nothing yet.
    async fn estimate(&self, shown: &[PromptMessage<'_>]) -> u64 {
        let context = &self.ctx.state.context;
        let is_first = context.counted_upto == Seq::ZERO;
        let head = if is_first { self.head_tokens().await } else { 0 };
        let is_new = |shown: &&PromptMessage<'_>| is_first || shown.seq > context.counted_upto;
        let new = shown.iter().filter(is_new).map(|shown| &shown.message);
        let bytes = new.clone().map(encoded_len).fold(0, usize::saturating_add);
        let counter = self.counter;
        let message = move |message: &Message| counter.message(message);
        // What is counted at once need not be copied.
        let added = if counter.is_quick(bytes) {
            new.map(message).fold(0, u64::saturating_add)
        } else {
            let new: Vec<Message> = new.cloned().collect();
            let count = move || new.iter().map(message).fold(0, u64::saturating_add);
            self.run_blocking(count).await.unwrap_or_default()
        };
        context.tokens.saturating_add(head).saturating_add(added)
    }

    /// The tokens of the system prompt and of the tools, which are counted for one conversation and kept
    /// for the others that begin with the same.
    async fn head_tokens(&self) -> u64 {
        let tools = self.toolbox.specs(&self.gate());
        let is_kept = self.sends_all_of_definition(&tools)
            && self.counter.is_best_for(&self.definition.model);
        let kept = is_kept.then_some(&self.definition.head_tokens);
        if let Some(tokens) = kept.and_then(OnceLock::get) {
            return *tokens;
        }
        let tool_bytes = |tool: &ToolSpec| tool.description.len() + encoded_len(&tool.parameters);
        let bytes = tools.iter().map(tool_bytes).fold(0, usize::saturating_add);
        let (counter, definition) = (self.counter, self.definition.clone());
        let count = move || counter.head(&definition.system_prompt, &tools);
        let counted =
            if counter.is_quick(bytes) { Some(count()) } else { self.run_blocking(count).await };
        if let (Some(kept), Some(tokens)) = (kept, counted) {
            // Another conversation may have counted the same meanwhile.
            let _ = kept.set(tokens);
        }
        counted.unwrap_or_default()
    }

    /// Whether these are all tools of the definition, for its own model.
    fn sends_all_of_definition(&self, tools: &[ToolSpec]) -> bool {
        let Definition { tools: all, model, .. } = &*self.definition;
        let for_model = all.iter().filter(|tool| tool.is_for_model()).count();
        self.toolbox.is_of_definition()
            && tools.len() == for_model
            && self.definition.model_of(&self.ctx.state).name == model.name
    }

    /// The action that must come before a prompt that is over its budget. `None` also if nothing
    /// can be left out, as long as the prompt fits the model's context window.
    fn make_room(&self, input: PromptInput<'_>, tokens: u64) -> Option<Action> {
        let budget = self.definition.context_budget();
        let window = window(&self.definition.model);
        if tokens <= budget {
            return None;
        }
        let reducer = self.reducer(input, tokens, ReductionReason::Budget).with_plausible_count();
        if reducer.tokens <= budget {
            return None;
        }
        let exceeds_window = reducer.tokens > window;
        let reduced = reducer
            .reduce_within(budget)
            .or_else(|| exceeds_window.then(|| reducer.reduce_to(sendable(window))).flatten());
        let turn = self.turn.id.clone();
        match reduced {
            Some(reduced) => Some(Action::ContextReduced { turn, reduced }),
            None if exceeds_window => {
                let reason = "context_window".to_owned();
                Some(Action::Halt { turn, step: self.step, reason })
            }
            None => None,
        }
    }

    fn reducer<'a>(
        &self,
        input: PromptInput<'a>,
        tokens: u64,
        reason: ReductionReason,
    ) -> ContextReducer<'a> {
        let counter = TokenCounter::estimating(self.definition.model.provider);
        let tools = self.toolbox.specs(&self.gate());
        let head_tokens = counter.head(&self.definition.system_prompt, &tools);
        let first_queued = self.ctx.state.queued_messages().next();
        ContextReducer {
            input,
            first_queued,
            step: self.step,
            reason,
            tokens,
            head_tokens,
            counter,
        }
    }

    fn rule(&self, name: &str) -> ToolRule {
        let tool = self.toolbox.tool(name);
        let rule = tool.map(|tool| ToolRule {
            is_builtin: tool.builtin().is_some(),
            retention: tool.retention,
        });
        rule.unwrap_or_default()
    }
}
