//! A summary of the oldest turns, written beside whatever turn runs.

mod range;

use std::sync::Arc;
use std::time::Duration;

use abide_conversation::Action;
use abide_conversation::event::Summarized;
use abide_conversation::message::{Usage, text_block};
use futures::StreamExt;
use serde_json::Value;
use tokio::time::timeout;

use self::range::Span;
use super::{ActivityContext, model_call};
use crate::agent::Definition;
use crate::context::SummaryPolicy;
use crate::context::limits::percent_of;
use crate::hooks::notifier::{HookOwner, Notification};
use crate::hooks::{HookContext, HookPoint};
use crate::journal::StoreError;
use crate::model::tokens::TokenCounter;
use crate::model::{ModelError, ModelRequest, ModelSettings, Purpose, ReplyChunk, prompt};
use crate::tools::limits::cut;

/// Nobody waits for it, but its actor stays in memory: a model that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(600);
/// What is kept of a summary, in percent of the budget: every later step sends it. A token has two
/// bytes or more.
const KEPT: u64 = 20;
const TOKEN_BYTES: u64 = 2;
/// More text than this is a model that never stops.
const HEARD: usize = 4 << 20;

/// Covers the oldest of the turns that ended up to `upto`. Whatever goes wrong is no failure of the
/// conversation: it is summarized after a later turn.
pub(super) async fn summarize(around: &ActivityContext, upto: u64) -> Result<Action, StoreError> {
    let failed = |reason: &str| Ok(Action::SummaryFailed { reason: reason.to_owned() });
    let Some(agent) = &around.state.agent else { return failed("agent-missing") };
    let Some(definition) = around.deps.agents.newest(agent).await? else {
        return failed("agent-missing");
    };
    let Some(policy) = &definition.summary else { return failed("no summary is asked for") };
    let settings = policy.model.clone().unwrap_or_else(|| definition.model.clone());
    let Some(span) = Span::read(around, &definition, &settings, upto).await? else {
        return failed("there is nothing to cover yet");
    };
    tell(around, &definition);
    match ask(around, &definition, policy, &settings, span.transcript.clone()).await {
        Ok((text, _)) if text.trim().is_empty() => failed("the summary was empty"),
        Ok((text, usage)) => {
            let most = percent_of(definition.context_budget(), KEPT).saturating_mul(TOKEN_BYTES);
            let text = cut(text.trim(), usize::try_from(most).unwrap_or(usize::MAX));
            match summarized(around, &settings, span, text, usage) {
                Some(summarized) => Ok(summarized),
                None => failed("the summary is no shorter than what it covers"),
            }
        }
        Err(failure) => {
            tracing::warn!(conversation = %around.id, said = %failure, "no summary was written");
            failed(&failure.message)
        }
    }
}

/// `None` if nothing is won by it.
fn summarized(
    around: &ActivityContext,
    settings: &ModelSettings,
    span: Span,
    text: String,
    usage: Option<Usage>,
) -> Option<Action> {
    let context = &around.state.context;
    let own = TokenCounter::estimating(settings.provider).content(&[text_block(text.as_str())]);
    let tokens_after = context.tokens.saturating_sub(span.tokens).saturating_add(own);
    let is_shorter = own < span.tokens || context.has_dropped();
    let usage = usage.map(|usage| Usage { cost: settings.prices.cost(&usage), ..usage });
    let after = context.summary.map_or(0, |summary| summary.upto);
    let summarized = Summarized {
        upto: span.upto,
        marks: span.marks,
        text,
        usage,
        tokens_before: context.tokens,
        tokens_after: tokens_after.min(context.tokens),
    };
    is_shorter.then_some(Action::Summarized { after, summarized })
}

async fn ask(
    around: &ActivityContext,
    definition: &Definition,
    policy: &SummaryPolicy,
    settings: &ModelSettings,
    transcript: Vec<Value>,
) -> Result<(String, Option<Usage>), ModelError> {
    let request = ModelRequest {
        settings: settings.clone(),
        system: policy.prompt.clone(),
        messages: vec![prompt::generated_message(
            format!("{}part", prompt::CONTEXT_ID),
            transcript,
        )],
        stable_messages: 0,
        verbatim: Default::default(),
        cache_key: around.id.to_string(),
        purpose: Purpose::Summary,
        tools: Vec::new(),
        schema: None,
    };
    let answer = async {
        let parts = model_call::ask(around, definition, None, request).await?;
        let (mut parts, mut text) = (parts, String::new());
        while let Some(part) = parts.next().await {
            match part? {
                ReplyChunk::Text(more) => text.push_str(&more),
                ReplyChunk::Done(done) => return Ok((text, done.usage)),
                ReplyChunk::Thinking(_) | ReplyChunk::Call(_) => {}
            }
            if text.len() > HEARD {
                return Err(ModelError::permanent("the summary is too long"));
            }
        }
        Err(ModelError::permanent("the model's stream ended before its message did"))
    };
    let late = |_| ModelError::permanent("the model took too long");
    timeout(LONGEST, answer).await.map_err(late)?
}

/// Tells the hooks that want to know before.
fn tell(around: &ActivityContext, definition: &Arc<Definition>) {
    let on = HookPoint::PreCompact;
    if !definition.hooks.iter().any(|hook| hook.concerns(on, None)) {
        return;
    }
    let occasion = HookContext {
        conversation_id: around.id.clone(),
        turn_id: None,
        principal: None,
        assigns: around.state.assigns.clone(),
    };
    let whose = HookOwner::Definition(definition.clone());
    let (tool, args, event) = Default::default();
    let note = Notification { whose, occasion, on, tool, args, event };
    around.deps.runner.hooks().teller.tell(&around.deps, note);
}
