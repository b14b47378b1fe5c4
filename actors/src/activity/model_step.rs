//! One model call: the prompt is read from the journal, the reply streams, the calls are planned.

mod hooks;
mod plan_calls;
mod prompt;

use std::sync::Arc;

use abide_conversation::command::{ModelFailed, ModelReplied};
use abide_conversation::event::AnswerFormat;
use abide_conversation::message::Usage;
use abide_conversation::state::{ConversationStatus, Turn};
use abide_conversation::{Action, MessageId};
use futures::StreamExt;
use serde_json::Value;

use self::prompt::{Prompt, Weight};
use super::{ActivityContext, load_context, model_call};
use crate::agent::Definition;
use crate::blobs;
use crate::journal::StoreError;
use crate::live::Signal;
use crate::model::tokens::TokenCounter;
use crate::model::{
    ModelError, ModelRequest, ModelToolCall, Purpose, ReplyChunk, ReplyEnd, ReplyStream, Retry,
};
use crate::streaming::Piece;
use crate::tools::limits::encoded_len;
use crate::tools::schema::Schema;
use crate::tools::{Gate, Toolbox};

/// More text than this is a model that never stops.
const TEXT_BYTES: usize = 4 << 20;

/// A whole reply.
#[derive(Default)]
struct Heard {
    content: Vec<Value>,
    text: String,
    calls: Vec<ModelToolCall>,
    done: ReplyEnd,
}

/// What a step goes by.
struct Step<'a> {
    around: &'a ActivityContext,
    turn: Turn,
    step: u32,
    definition: Arc<Definition>,
    schema: Option<Value>,
    /// One for the whole step: a call is judged by what the model was told.
    toolbox: Toolbox,
    counter: TokenCounter,
}

pub(super) async fn model_step(around: &ActivityContext, step: u32) -> Result<Action, StoreError> {
    let Some(turn) = around.state.turn.clone() else { return Ok(Action::Wake) };
    let Some(definition) = around.deps.agents.revision(&turn.revision).await? else {
        let (turn, reason) = (turn.id, "agent-missing".to_owned());
        return Ok(Action::ModelFailed(ModelFailed { turn, step, reason, partial: None }));
    };
    let schema = match &turn.shape {
        AnswerFormat::Agent => {
            definition.response_format.as_ref().map(|schema| schema.source().clone())
        }
        AnswerFormat::Plain => None,
        AnswerFormat::Schema(schema) => Some(schema.clone()),
    };
    let toolbox = around.toolbox(definition.clone()).await;
    let counter = TokenCounter::for_model(&definition.model).await;
    let step = Step { around, turn, step, definition, schema, toolbox, counter };
    let events = load_context::context(around).await?;
    let id = MessageId::new(around.deps.clock.id("msg"));
    let mut prompt = match step.prompt(&events).await {
        Ok(prompt) => prompt,
        Err(instead) => return Ok(instead),
    };
    prompt.messages = blobs::filled(&*around.deps.blobs, prompt.messages).await?;
    blobs::restored(&*around.deps.blobs, &prompt.messages, &mut prompt.verbatim).await?;
    let weight = prompt.weight;
    match step.speak(&id, prompt).await {
        Ok(heard) => step.replied(id, heard, weight).await,
        Err(failure) => {
            let is_unheard = failure.retry == Retry::Shorter && !around.stream.speaks();
            let shorter = is_unheard.then(|| step.shorter(&events, weight)).flatten();
            Ok(shorter.unwrap_or_else(|| step.failed(failure.message)))
        }
    }
}

impl Step<'_> {
    async fn speak(&self, id: &MessageId, prompt: Prompt) -> Result<Heard, ModelError> {
        let request = ModelRequest {
            settings: self.definition.model.clone(),
            system: self.definition.system_prompt.clone(),
            stable_messages: prompt.stable,
            verbatim: prompt.verbatim,
            cache_key: self.around.id.to_string(),
            purpose: Purpose::Step,
            messages: prompt.messages,
            tools: self.toolbox.specs(&self.gate()),
            schema: self.schema.clone(),
        };
        let step = Some((self.turn.id.clone(), self.step));
        let parts = model_call::ask(self.around, &self.definition, step, request).await?;
        self.listen(id, self.filtered(parts)).await
    }

    async fn listen(&self, id: &MessageId, mut parts: ReplyStream) -> Result<Heard, ModelError> {
        let around = self.around;
        let live = &*around.deps.live;
        let mut heard = Heard::default();
        let mut bytes = 0_usize;
        while let Some(part) = parts.next().await {
            let part = part?;
            if !around.stream.speaks() {
                around.stream.begin(id.clone(), self.turn.id.clone(), self.step);
                let (state, seq) = (ConversationStatus::Streaming, around.state.seq);
                live.publish(&around.id, Signal::State { state, seq });
            }
            match part {
                ReplyChunk::Text(text) => {
                    bytes += text.len();
                    around.stream.add(live, &around.id, Piece::Text(&text));
                }
                ReplyChunk::Thinking(text) => {
                    bytes += text.len();
                    around.stream.add(live, &around.id, Piece::Thinking(&text));
                }
                ReplyChunk::Call(call) => heard.calls.push(call),
                ReplyChunk::Done(done) => {
                    heard.done = done;
                    if let Some(message) = around.stream.message() {
                        heard.content = message.content();
                        heard.text = message.text;
                    }
                    return Ok(heard);
                }
            }
            if bytes > TEXT_BYTES {
                return Err(ModelError::permanent("the model's message is too long"));
            }
        }
        Err(ModelError::permanent("the model's stream ended before its message did"))
    }

    async fn replied(
        self,
        id: MessageId,
        heard: Heard,
        weight: Weight,
    ) -> Result<Action, StoreError> {
        // What the provider ran by itself is part of the answer.
        let answers = heard.calls.iter().all(|call| call.provider_result.is_some());
        let object = self.schema.as_ref().filter(|_| answers);
        let object = match object.cloned() {
            Some(schema) => Some(judged(schema, heard.text.clone()).await),
            None => None,
        };
        let context_tokens = Some(self.counted(&heard, weight).await);
        let mut judged = self.judged(&heard).await;
        let prices = self.definition.model.prices;
        let priced = |usage: Usage| Usage { cost: prices.cost(&usage), ..usage };
        Ok(match self.planned(heard.calls, &mut judged).await? {
            Some(calls) => Action::ModelReplied(ModelReplied {
                turn: self.turn.id,
                step: self.step,
                id,
                calls,
                content: heard.content,
                usage: heard.done.usage.map(priced),
                stop: heard.done.stop,
                verbatim: heard.done.verbatim,
                context_tokens,
                read_at: self.around.state.seq,
                object,
                judged,
            }),
            None => self.failed("the model's calls could not be planned".to_owned()),
        })
    }

    /// The tokens of the context with the reply. The input is the provider's count, if it gave one
    /// and read nothing but what it was sent; of the output, only what is sent again counts.
    async fn counted(&self, heard: &Heard, weight: Weight) -> u64 {
        let looped = heard.calls.iter().any(|call| call.provider_result.is_some());
        let read = heard.done.usage.map(|usage| usage.input_tokens);
        let read = read.filter(|tokens| *tokens > 0 && !looped);
        let before = read.map_or(weight.tokens, |read| read.saturating_sub(weight.passing));
        let counter = self.counter;
        let (content, calls) = (heard.content.clone(), heard.calls.clone());
        let bytes = calls
            .iter()
            .map(ModelToolCall::encoded_bytes)
            .fold(encoded_len(&content), usize::saturating_add);
        let quick = counter.is_quick(bytes);
        let said = self.aside(quick, move || counter.reply(&content, &calls)).await;
        before.saturating_add(said.unwrap_or_default())
    }

    fn gate(&self) -> Gate {
        Gate::new(self.definition.clone(), &self.around.state)
    }

    fn failed(self, reason: String) -> Action {
        let partial = self.around.stream.partial();
        let (turn, step) = (self.turn.id, self.step);
        Action::ModelFailed(ModelFailed { turn, step, reason, partial })
    }
}

/// Judges a structured answer aside: schemas may be large.
async fn judged(schema: Value, text: String) -> Result<Value, String> {
    let judged = tokio::task::spawn_blocking(move || judge(&schema, &text)).await;
    judged.unwrap_or_else(|error| Err(format!("the answer could not be judged: {error}")))
}

/// A structured answer's value, or what is wrong with it.
fn judge(schema: &Value, text: &str) -> Result<Value, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    Schema::compile(schema)?.check(&value)?;
    Ok(value)
}
