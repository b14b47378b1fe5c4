//! Summarizes the oldest turns, while the open turn goes on.

mod range;

use std::sync::Arc;
use std::time::Duration;

use abide_conversation::event::Summarized;
use abide_conversation::message::text_block;
use abide_conversation::usage::Usage;
use abide_conversation::{Action, Seq};
use futures::StreamExt;
use serde_json::Value;
use tokio::time::timeout;

use self::range::Range;
use super::{ActivityContext, model_call};
use crate::agents::Choice;
use crate::context::limits::percent_of;
use crate::definition::{Definition, HookPoint, SummaryPolicy};
use crate::hooks::HookContext;
use crate::hooks::notifier::{HookOwner, Notification};
use crate::journal::StoreError;
use crate::limits::cut;
use crate::model::tokens::TokenCounter;
use crate::model::{ModelError, ModelRequest, ModelSettings, Purpose, ReplyChunk, prompt};

/// Nobody waits for a summary, but its actor stays in memory. A model that takes longer hangs.
const SUMMARY_TIMEOUT: Duration = Duration::from_secs(600);
/// The part of the token budget that a summary may take: every later step sends it.
const MAX_SUMMARY_PERCENT: u64 = 20;
/// A token has at least this many bytes.
const MIN_TOKEN_BYTES: u64 = 2;
/// The text of one reply. More is a model that never stops.
const MAX_REPLY_BYTES: usize = 4 << 20;

/// Summarizes the oldest of the turns that ended up to `upto`. An error does not fail the
/// conversation: the next attempt comes after a later turn.
pub(super) async fn summarize(ctx: &ActivityContext, upto: Seq) -> Result<Action, StoreError> {
    let failed = |reason: &str| Ok(Action::SummaryFailed { reason: reason.to_owned() });
    let Some(agent) = &ctx.state.agent else { return failed("agent-missing") };
    let Some(Choice { definition, .. }) = ctx.services.agents.choose(agent, &ctx.id).await? else {
        return failed("agent-missing");
    };
    let Some(policy) = &definition.summary else { return failed("no summary is asked for") };
    let settings = policy.model.clone().unwrap_or_else(|| definition.model.clone());
    let Some(range) = Range::read(ctx, &definition, &settings, upto).await? else {
        return failed("there is nothing to cover yet");
    };
    notify_hooks(ctx, &definition);
    match call_model(ctx, &definition, policy, &settings, range.transcript.clone()).await {
        Ok((text, _)) if text.trim().is_empty() => failed("the summary was empty"),
        Ok((text, usage)) => {
            let max_bytes = percent_of(definition.context_budget(), MAX_SUMMARY_PERCENT)
                .saturating_mul(MIN_TOKEN_BYTES);
            let text = cut(text.trim(), usize::try_from(max_bytes).unwrap_or(usize::MAX));
            match summary_action(ctx, &settings, range, text, usage) {
                Some(action) => Ok(action),
                None => failed("the summary is no shorter than what it covers"),
            }
        }
        Err(error) => {
            tracing::warn!(conversation = %ctx.id, content = %error, "summary failed");
            failed(&error.message)
        }
    }
}

/// The action that journals a summary. `None` if the summary saves no tokens.
fn summary_action(
    ctx: &ActivityContext,
    settings: &ModelSettings,
    range: Range,
    text: String,
    usage: Option<Usage>,
) -> Option<Action> {
    let context = &ctx.state.context;
    let summary_tokens =
        TokenCounter::estimating(settings.provider).content(&[text_block(text.as_str())]);
    let tokens_after = context.tokens.saturating_sub(range.tokens).saturating_add(summary_tokens);
    let is_shorter = summary_tokens < range.tokens || context.has_uncovered_drop();
    let after = context.summary.map_or(Seq::ZERO, |summary| summary.upto);
    let summarized = Summarized {
        upto: range.upto,
        marks: range.marks,
        text,
        usage,
        tokens_before: context.tokens,
        tokens_after: tokens_after.min(context.tokens),
    };
    is_shorter.then_some(Action::Summarized { after, summarized })
}

async fn call_model(
    ctx: &ActivityContext,
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
        cache_key: ctx.id.to_string(),
        purpose: Purpose::Summary,
        tools: Vec::new(),
        schema: None,
        call_pieces: Default::default(),
    };
    let reply = async {
        let model_call::Answer { mut chunks, settings, .. } =
            model_call::call(ctx, definition, None, request).await?;
        let mut text = String::new();
        while let Some(chunk) = chunks.next().await {
            match chunk? {
                ReplyChunk::Text(more) => text.push_str(&more),
                ReplyChunk::Done(done) => {
                    let with_cost = |usage| Usage { cost: settings.prices.cost(&usage), ..usage };
                    return Ok((text, done.usage.map(with_cost)));
                }
                ReplyChunk::Thinking(_) | ReplyChunk::Call(_) => {}
            }
            if text.len() > MAX_REPLY_BYTES {
                return Err(ModelError::permanent("the summary is too long"));
            }
        }
        Err(ModelError::permanent("the model's stream ended before its message did"))
    };
    let too_late = |_| ModelError::permanent("the model took too long");
    timeout(SUMMARY_TIMEOUT, reply).await.map_err(too_late)?
}

/// Notifies the `PreCompact` hooks.
fn notify_hooks(ctx: &ActivityContext, definition: &Arc<Definition>) {
    let on = HookPoint::PreCompact;
    if !definition.hooks.iter().any(|hook| hook.concerns(on, None)) {
        return;
    }
    let context = HookContext {
        conversation_id: ctx.id.local(),
        turn_id: None,
        principal: None,
        assigns: ctx.state.assigns.clone(),
    };
    let owner = HookOwner::Definition(definition.clone());
    let conversation = ctx.id.clone();
    let notification =
        Notification { conversation, owner, context, on, tool: None, args: None, event: None };
    ctx.services.hooks.notify(&ctx.services.agents, notification);
}
