//! What the model reads in one step, within its budget.

use std::collections::BTreeMap;

use abide_conversation::event::{Event, ReductionReason};
use abide_conversation::message::{Message, ProviderMessage};
use abide_conversation::{Action, MessageId};

use super::Step;
use crate::context::limits::{sendable, window};
use crate::context::reduce::ContextReducer;
use crate::model::ToolSpec;
use crate::model::prompt::{PromptInput, PromptMessage, ToolRule};
use crate::model::tokens::TokenCounter;
use crate::tools::limits::encoded_len;

/// The messages of a request.
pub(super) struct Prompt {
    pub(super) messages: Vec<Message>,
    /// How many of them the next step sends again.
    pub(super) stable: usize,
    pub(super) verbatim: BTreeMap<MessageId, ProviderMessage>,
    pub(super) weight: Weight,
}

/// What a prompt costs, in tokens.
#[derive(Clone, Copy)]
pub(super) struct Weight {
    /// All that the next step sends again.
    pub(super) tokens: u64,
    /// What hooks added to this step only.
    pub(super) passing: u64,
}

impl Step<'_> {
    /// What the model reads; or what is to be journalled first, or instead.
    pub(super) async fn prompt(&self, events: &[Event]) -> Result<Prompt, Action> {
        let rules = |name: &str| self.rule(name);
        let view = self.view(events, &rules);
        let shown = view.messages();
        let tokens = self.estimate(&shown).await;
        if let Some(first) = self.make_room(view, tokens) {
            return Err(first);
        }
        let verbatim = shown.iter().filter_map(|shown| {
            shown.verbatim.map(|verbatim| (shown.message.id.clone(), verbatim.clone()))
        });
        let verbatim = verbatim.collect();
        let mut messages: Vec<Message> = shown.into_iter().map(|shown| shown.message).collect();
        let stable = messages.len();
        let added = self.prepare(events, &messages).await?;
        let passing = added.iter().map(|message| self.counter.message(message)).sum();
        messages.extend(added);
        Ok(Prompt { messages, stable, verbatim, weight: Weight { tokens, passing } })
    }

    /// Half of what was too long for the provider, once a step.
    pub(super) fn shorter(&self, events: &[Event], sent: Weight) -> Option<Action> {
        let rules = |name: &str| self.rule(name);
        let crowded =
            self.crowded(self.view(events, &rules), sent.tokens, ReductionReason::TooLong);
        let reduced = crowded.reduce_to(sent.tokens / 2)?;
        let is_first = self.turn.too_long < self.step;
        is_first.then(|| Action::ContextReduced { turn: self.turn.id.clone(), reduced })
    }

    fn view<'a>(
        &'a self,
        events: &'a [Event],
        rules: &'a crate::model::prompt::ToolRules<'a>,
    ) -> PromptInput<'a> {
        PromptInput { events, turn: &self.turn.id, context: &self.around.state.context, rules }
    }

    /// What the provider counted last, and what has come since; all of it only where nothing was
    /// counted yet.
    async fn estimate(&self, shown: &[PromptMessage<'_>]) -> u64 {
        let context = &self.around.state.context;
        let since =
            |shown: &&PromptMessage<'_>| context.counted == 0 || shown.seq > context.counted;
        let new: Vec<Message> =
            shown.iter().filter(since).map(|shown| shown.message.clone()).collect();
        let (counter, definition) = (self.counter, self.definition.clone());
        let tools =
            if context.counted == 0 { self.toolbox.specs(&self.gate()) } else { Vec::new() };
        let is_first = context.counted == 0;
        let told = |tool: &ToolSpec| tool.description.len() + encoded_len(&tool.parameters);
        let bytes = encoded_len(&new).saturating_add(tools.iter().map(told).sum());
        let quick = counter.is_quick(bytes);
        let count = move || {
            let head = || counter.head(&definition.system_prompt, &tools);
            let head = if is_first { head() } else { 0 };
            new.iter().map(|message| counter.message(message)).fold(head, u64::saturating_add)
        };
        context.tokens.saturating_add(self.aside(quick, count).await.unwrap_or_default())
    }

    /// What must happen before a prompt that is over its budget is sent; `None` also if nothing can
    /// be left out, as long as the model reads it.
    fn make_room(&self, view: PromptInput<'_>, tokens: u64) -> Option<Action> {
        let (budget, window) = (self.definition.context_budget(), window(&self.definition.model));
        if tokens <= budget {
            return None;
        }
        let crowded = self.crowded(view, tokens, ReductionReason::Budget).with_plausible_count();
        if crowded.tokens <= budget {
            return None;
        }
        let too_many = crowded.tokens > window;
        let reduced = crowded
            .reduce_within(budget)
            .or_else(|| too_many.then(|| crowded.reduce_to(sendable(window))).flatten());
        let turn = self.turn.id.clone();
        match reduced {
            Some(reduced) => Some(Action::ContextReduced { turn, reduced }),
            None if too_many => {
                let reason = "context_window".to_owned();
                Some(Action::Halt { turn, step: self.step, reason })
            }
            None => None,
        }
    }

    fn crowded<'a>(
        &self,
        view: PromptInput<'a>,
        tokens: u64,
        why: ReductionReason,
    ) -> ContextReducer<'a> {
        let counter = TokenCounter::estimating(self.definition.model.provider);
        let tools = self.toolbox.specs(&self.gate());
        let head = counter.head(&self.definition.system_prompt, &tools);
        ContextReducer {
            input: view,
            step: self.step,
            reason: why,
            tokens,
            head_tokens: head,
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
