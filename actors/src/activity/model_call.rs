//! Calls a model with the retries of its definition, and records the call for the audit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use abide_conversation::message::MessageRole;
use abide_conversation::{ConversationId, Scoped, Seq, Step, Timestamp, TurnId};
use async_trait::async_trait;
use futures::StreamExt;
use serde_json::{Value, json};

use super::ActivityContext;
use super::model_call_span::ModelCallSpan;
use crate::audit::{AuditEntry, Excerpt, Omitted, Received};
use crate::definition::Definition;
use crate::model::prompt::EXPIRED_RESULT;
use crate::model::retry::RetryingModel;
use crate::model::{
    Model, ModelError, ModelRequest, ModelSettings, ModelToolCall, ReplyChunk, ReplyEnd,
    ReplyStream,
};
use crate::pending_commit::PendingCommit;
use crate::services::Services;

/// A reply that arrives, and which model it is of.
pub(super) struct Answer {
    pub(super) chunks: ReplyStream,
    pub(super) settings: ModelSettings,
    /// Whether the model is one of the fallbacks.
    pub(super) is_fallback: bool,
}

/// Calls the model for a step, or with `None` for a summary, and if it is overloaded or gone, its
/// fallbacks in turn. If the definition asks for an audit, an entry is recorded of each when its
/// stream ends or is dropped.
pub(super) async fn call(
    ctx: &ActivityContext,
    definition: &Definition,
    step: Option<(TurnId, Step)>,
    mut request: ModelRequest,
) -> Result<Answer, ModelError> {
    let mut fallbacks = std::mem::take(&mut request.settings.fallback).into_iter();
    let mut is_fallback = false;
    loop {
        let span = ModelCallSpan::begin(ctx, &request, step.as_ref());
        let error = match call_with_audit(ctx, definition, step.as_ref(), &request).await {
            Ok(chunks) => {
                let (chunks, settings) = (span.follow(chunks), request.settings);
                return Ok(Answer { chunks, settings, is_fallback });
            }
            Err(error) => error,
        };
        span.fail();
        let next = fallbacks.next().filter(|_| error.is_unavailable());
        let Some(next) = next else { return Err(error) };
        tracing::warn!(
            conversation = %ctx.id, model = request.settings.name, fallback = next.name,
            content = %error, "model unavailable, calling its fallback"
        );
        (request.settings, is_fallback) = (next, true);
    }
}

async fn call_with_audit(
    ctx: &ActivityContext,
    definition: &Definition,
    step: Option<&(TurnId, Step)>,
    request: &ModelRequest,
) -> Result<ReplyStream, ModelError> {
    let services = &ctx.services;
    let model =
        GatedModel { model: services.model.clone(), pending_commit: ctx.pending_commit.clone() };
    let Some(ttl) = definition.audit else {
        let model = RetryingModel::new(model, definition.retry, services.clock.clone());
        return model.call(request).await;
    };
    let mut audit = AuditEntryBuilder::new(ctx, ttl, step.cloned(), request.clone());
    let counting = CountingModel { model, attempts: audit.attempts.clone() };
    let model = RetryingModel::new(counting, definition.retry, services.clock.clone());
    match model.call(request).await {
        Ok(chunks) => Ok(chunks.inspect(move |chunk| audit.record(chunk)).boxed()),
        Err(error) => {
            audit.end(Err(error.message.clone()));
            Err(error)
        }
    }
}

/// A model whose replies are read only once the commit that led to the call is in the journal: nobody
/// sees what follows from something that may be lost.
struct GatedModel {
    model: Arc<dyn Model>,
    pending_commit: PendingCommit,
}

#[async_trait]
impl Model for GatedModel {
    async fn call(&self, request: &ModelRequest) -> Result<ReplyStream, ModelError> {
        let chunks = self.model.call(request).await?;
        self.pending_commit.wait().await;
        Ok(chunks)
    }
}

/// A model that counts its calls.
struct CountingModel<M> {
    model: M,
    attempts: Arc<AtomicU32>,
}

#[async_trait]
impl<M: Model> Model for CountingModel<M> {
    async fn call(&self, request: &ModelRequest) -> Result<ReplyStream, ModelError> {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        self.model.call(request).await
    }
}

/// The audit entry of a model call, as far as it is known. It is recorded on drop, however the call
/// ends.
struct AuditEntryBuilder {
    services: Arc<Services>,
    conversation: Scoped<ConversationId>,
    ttl: Duration,
    attempts: Arc<AtomicU32>,
    at: Timestamp,
    first_chunk_at: Option<Timestamp>,
    ended: Option<(Timestamp, Result<ReplyEnd, String>)>,
    content: Option<CallContent>,
}

/// The longer parts of the entry; `Option` in the builder so that `drop` can take them.
struct CallContent {
    step: Option<(TurnId, Step)>,
    request: ModelRequest,
    summary: Option<Seq>,
    evicted: Omitted,
    thinking: String,
    text: String,
    calls: Vec<ModelToolCall>,
}

impl AuditEntryBuilder {
    fn new(
        ctx: &ActivityContext,
        ttl: Duration,
        step: Option<(TurnId, Step)>,
        request: ModelRequest,
    ) -> Self {
        let context = &ctx.state.context;
        let results = request.messages.iter().filter(|message| message.role == MessageRole::Tool);
        let evicted = Omitted {
            marks: context.marks,
            messages: request.messages.len(),
            expired_results: results.filter(|result| result.text() == EXPIRED_RESULT).count(),
        };
        let summary = context.summary.map(|summary| summary.seq);
        let content = CallContent {
            step,
            request,
            summary,
            evicted,
            thinking: String::new(),
            text: String::new(),
            calls: Vec::new(),
        };
        Self {
            services: ctx.services.clone(),
            conversation: ctx.id.clone(),
            ttl,
            attempts: Arc::default(),
            at: ctx.services.clock.now(),
            first_chunk_at: None,
            ended: None,
            content: Some(content),
        }
    }

    fn record(&mut self, chunk: &Result<ReplyChunk, ModelError>) {
        let Some(content) = &mut self.content else { return };
        if self.first_chunk_at.is_none() && chunk.is_ok() {
            self.first_chunk_at = Some(self.services.clock.now());
        }
        match chunk {
            Ok(ReplyChunk::Text(text)) => content.text.push_str(text),
            Ok(ReplyChunk::Thinking(text)) => content.thinking.push_str(text),
            Ok(ReplyChunk::Call(call)) => content.calls.push(call.clone()),
            Ok(ReplyChunk::Done(done)) => self.end(Ok(done.clone())),
            Err(error) => self.end(Err(error.message.clone())),
        }
    }

    fn end(&mut self, ended: Result<ReplyEnd, String>) {
        self.ended = Some((self.services.clock.now(), ended));
    }
}

impl Drop for AuditEntryBuilder {
    fn drop(&mut self) {
        let Some(content) = self.content.take() else { return };
        let dropped =
            || (self.services.clock.now(), Err("the reply was no longer wanted".to_owned()));
        let (until, ended) = self.ended.take().unwrap_or_else(dropped);
        let elapsed_ms = |at: Timestamp| {
            u64::try_from(at.duration_since(self.at).as_millis()).unwrap_or_default()
        };
        let (done, failure) = match ended {
            Ok(done) => (done, None),
            Err(failure) => (ReplyEnd::default(), Some(failure)),
        };
        let model = self.services.model.clone();
        let id = self.services.clock.id("audit");
        let at = self.at;
        let first_part_ms = self.first_chunk_at.map(elapsed_ms);
        let whole_ms = elapsed_ms(until);
        let attempts = self.attempts.load(Ordering::Relaxed);
        self.services.audit.record(&self.conversation, self.ttl, move || {
            let CallContent { step, request, summary, evicted, thinking, text, calls } = content;
            let (turn_id, step) = step.unzip();
            let came = Received {
                thinking: Excerpt::of(&thinking.into()),
                text: Excerpt::of(&text.into()),
                calls: Excerpt::of(&calls.iter().map(call_json).collect()),
                stop: done.stop,
                failure,
            };
            AuditEntry {
                id,
                at,
                purpose: request.purpose,
                turn_id,
                step,
                attempts,
                sent: Excerpt::of(&sent(&*model, &request)),
                received: came,
                usage: done.usage,
                first_part_ms,
                whole_ms,
                summary,
                omitted: evicted,
            }
        });
    }
}

/// The request as the provider got it; for a model without a provider, its input.
fn sent(model: &dyn Model, request: &ModelRequest) -> Value {
    match model.request_body(request) {
        Value::Null => json!({"system": request.system, "messages": request.messages}),
        rendered => rendered,
    }
}

fn call_json(call: &ModelToolCall) -> Value {
    let args = match &call.args {
        Ok(args) => args.clone(),
        Err(raw) => Value::String(raw.clone()),
    };
    json!({"id": call.id, "name": call.name, "args": args, "provided": call.provider_result})
}
