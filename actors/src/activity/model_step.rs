//! One model step: reads the prompt from the journal, streams the reply, and plans its calls.

mod call_pieces;
mod hooks;
mod plan_calls;
mod prompt;

use std::sync::Arc;

use abide_conversation::command::{ModelFailed, ModelReplied};
use abide_conversation::event::AnswerFormat;
use abide_conversation::message::FallbackModel;
use abide_conversation::state::{ConversationStatus, Turn};
use abide_conversation::usage::Usage;
use abide_conversation::{Action, MessageId, Step};
use futures::StreamExt;
use serde_json::Value;

use self::prompt::{Prompt, Weight};
use super::{ActivityContext, load_context, model_call};
use crate::blobs::{self, TenantBlobs};
use crate::definition::Definition;
use crate::expressions::schema::Schema;
use crate::journal::StoreError;
use crate::limits::{cut, encoded_len};
use crate::live::Signal;
use crate::model::big_numbers::{OVER_64_BITS, find_rounded};
use crate::model::tokens::TokenCounter;
use crate::model::{
    ModelError, ModelRequest, ModelSettings, ModelToolCall, Prices, Purpose, ReplyChunk, ReplyEnd,
    ReplyStream, Retry,
};
use crate::streaming::Piece;
use crate::tools::{Gate, Toolbox};

/// The text of one reply. More is a model that never stops.
const MAX_TEXT_BYTES: usize = 4 << 20;
/// The longest path of a field that a mistake names.
const MAX_FIELD_BYTES: usize = 200;

/// A complete reply.
#[derive(Default)]
struct ModelReply {
    content: Vec<Value>,
    text: String,
    calls: Vec<ModelToolCall>,
    end: ReplyEnd,
    /// The prices of the model that wrote it.
    prices: Prices,
    fallback: Option<FallbackModel>,
}

/// A step in progress, and what it is decided by.
struct ModelStep<'a> {
    ctx: &'a ActivityContext,
    turn: Turn,
    step: Step,
    definition: Arc<Definition>,
    schema: Option<Value>,
    /// One toolbox serves the whole step: a call is judged by the tools that the model was shown.
    toolbox: Toolbox,
    counter: TokenCounter,
}

pub(super) async fn model_step(ctx: &ActivityContext, step: Step) -> Result<Action, StoreError> {
    let Some(turn) = ctx.state.turn.clone() else { return Ok(Action::Wake) };
    let Some(definition) = ctx.services.agents.revision(&ctx.id.sibling(&turn.revision)).await?
    else {
        let (turn, reason) = (turn.id, "agent-missing".to_owned());
        return Ok(Action::ModelFailed(ModelFailed { turn, step, reason, partial: None }));
    };
    let schema = match &turn.answer_format {
        AnswerFormat::Agent => {
            definition.response_format.as_ref().map(|schema| schema.source().clone())
        }
        AnswerFormat::Plain => None,
        AnswerFormat::Schema(schema) => Some(schema.clone()),
    };
    let toolbox = ctx.toolbox(definition.clone()).await;
    let counter = TokenCounter::for_model(&definition.model_of(&ctx.state)).await;
    let step = ModelStep { ctx, turn, step, definition, schema, toolbox, counter };
    let context = load_context::load_context(ctx).await?;
    let events = context.all();
    let id = MessageId::new(ctx.services.clock.id("msg"));
    let mut prompt = match step.prompt(&events).await {
        Ok(prompt) => prompt,
        Err(instead) => return Ok(instead),
    };
    let blobs = TenantBlobs::new(&*ctx.services.blobs, &ctx.id);
    prompt.messages = blobs::inline_media(blobs, prompt.messages).await?;
    blobs::restore_base64(blobs, &prompt.messages, &mut prompt.verbatim).await?;
    let weight = prompt.weight;
    match step.call_model(&id, prompt).await {
        Ok(reply) => step.finish(id, reply, weight).await,
        Err(error) => {
            let may_shorten = error.retry == Retry::Shorter && !ctx.stream.has_begun();
            let shorter = may_shorten.then(|| step.shorten(&events, weight)).flatten();
            Ok(shorter.unwrap_or_else(|| step.fail(error.message)))
        }
    }
}

impl ModelStep<'_> {
    async fn call_model(&self, id: &MessageId, prompt: Prompt) -> Result<ModelReply, ModelError> {
        let request = ModelRequest {
            settings: self.definition.model_of(&self.ctx.state),
            system: self.definition.system_prompt.clone(),
            stable_messages: prompt.stable,
            verbatim: prompt.verbatim,
            cache_key: self.ctx.id.to_string(),
            purpose: Purpose::Step,
            messages: prompt.messages,
            tools: self.toolbox.specs(&self.gate()),
            schema: self.schema.clone(),
            call_pieces: self.call_pieces(id),
        };
        let step = Some((self.turn.id.clone(), self.step));
        let answer = model_call::call(self.ctx, &self.definition, step, request).await?;
        let reply = self.read_reply(id, self.filter(answer.chunks)).await?;
        let ModelSettings { provider, name, prices, .. } = answer.settings;
        let fallback = FallbackModel { provider: provider.name().to_owned(), name };
        Ok(ModelReply { prices, fallback: answer.is_fallback.then_some(fallback), ..reply })
    }

    async fn read_reply(
        &self,
        id: &MessageId,
        mut chunks: ReplyStream,
    ) -> Result<ModelReply, ModelError> {
        let ctx = self.ctx;
        let live = &*ctx.services.live;
        let mut reply = ModelReply::default();
        let mut bytes = 0_usize;
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk?;
            if !ctx.stream.has_begun() {
                ctx.stream.begin(id.clone(), self.turn.id.clone(), self.step);
                let status = ConversationStatus::Streaming;
                live.publish(&ctx.id, Signal::Status { status, seq: ctx.state.seq });
            }
            match chunk {
                ReplyChunk::Text(text) => {
                    bytes += text.len();
                    ctx.stream.add(live, &ctx.id, Piece::Text(&text));
                }
                ReplyChunk::Thinking(text) => {
                    bytes += text.len();
                    ctx.stream.add(live, &ctx.id, Piece::Thinking(&text));
                }
                ReplyChunk::Call(call) => reply.calls.push(call),
                ReplyChunk::Done(end) => {
                    reply.end = end;
                    if let Some(message) = ctx.stream.message() {
                        reply.content = message.content();
                        reply.text = message.text;
                    }
                    return Ok(reply);
                }
            }
            if bytes > MAX_TEXT_BYTES {
                return Err(ModelError::permanent("the model's message is too long"));
            }
        }
        Err(ModelError::permanent("the model's stream ended before its message did"))
    }

    /// The action that a complete reply becomes.
    async fn finish(
        &self,
        id: MessageId,
        reply: ModelReply,
        weight: Weight,
    ) -> Result<Action, StoreError> {
        // Calls that the provider ran by itself are part of the answer.
        let is_answer = reply.calls.iter().all(|call| call.provider_result.is_some());
        let object = match self.schema.clone().filter(|_| is_answer) {
            Some(schema) => Some(validate_answer(schema, reply.text.clone()).await),
            None => None,
        };
        let context_tokens = Some(self.context_tokens(&reply, weight).await);
        let mut verdict = self.judge_message(&reply).await;
        let prices = reply.prices;
        let with_cost = |usage: Usage| Usage { cost: prices.cost(&usage), ..usage };
        Ok(match self.plan_calls(reply.calls, &mut verdict).await? {
            Some(calls) => Action::ModelReplied(ModelReplied {
                turn: self.turn.id.clone(),
                step: self.step,
                id,
                calls,
                content: reply.content,
                usage: reply.end.usage.map(with_cost),
                stop: reply.end.stop,
                verbatim: reply.end.verbatim,
                fallback: reply.fallback,
                context_tokens,
                context_seq: self.ctx.state.seq,
                object,
                verdict,
            }),
            None => self.fail("the model's calls could not be planned".to_owned()),
        })
    }

    /// The tokens of the context including the reply. The input is the provider's count, if it gave
    /// a plausible one and read only what it was sent; of the output, only what is sent again counts.
    async fn context_tokens(&self, reply: &ModelReply, weight: Weight) -> u64 {
        let has_provider_calls = reply.calls.iter().any(|call| call.provider_result.is_some());
        let input_tokens = reply.end.usage.map(|usage| usage.input_tokens);
        let believed = input_tokens.filter(|tokens| *tokens > 0 && !has_provider_calls);
        let before = believed.map_or(weight.tokens, |tokens| {
            tokens.saturating_sub(weight.transient).max(weight.least)
        });
        let counter = self.counter;
        let bytes = reply
            .calls
            .iter()
            .map(ModelToolCall::encoded_bytes)
            .fold(encoded_len(&reply.content), usize::saturating_add);
        if counter.is_quick(bytes) {
            return before.saturating_add(counter.reply(&reply.content, &reply.calls));
        }
        let (content, calls) = (reply.content.clone(), reply.calls.clone());
        let added = self.run_blocking(move || counter.reply(&content, &calls)).await;
        before.saturating_add(added.unwrap_or_default())
    }

    fn gate(&self) -> Gate {
        Gate::new(self.definition.clone(), &self.ctx.state)
    }

    fn fail(&self, reason: String) -> Action {
        let partial = self.ctx.stream.partial();
        Action::ModelFailed(ModelFailed {
            turn: self.turn.id.clone(),
            step: self.step,
            reason,
            partial,
        })
    }
}

/// Validates a structured answer on a blocking thread, since schemas may be large.
async fn validate_answer(schema: Value, text: String) -> Result<Value, String> {
    let validation = tokio::task::spawn_blocking(move || parse_answer(&schema, &text)).await;
    validation.unwrap_or_else(|error| Err(format!("the answer could not be validated: {error}")))
}

/// The value of a structured answer, or what is wrong with it.
fn parse_answer(schema: &Value, text: &str) -> Result<Value, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    if let Some(field) = find_rounded(text) {
        return Err(format!("{}: {OVER_64_BITS}", cut(&field, MAX_FIELD_BYTES)));
    }
    Schema::compile(schema)?.check(&value)?;
    Ok(value)
}
