//! Asks a model with its definition's patience, and lets the audit know.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use abide_conversation::message::Role;
use abide_conversation::{ConversationId, Timestamp, TurnId};
use async_trait::async_trait;
use futures::StreamExt;
use serde_json::{Value, json};

use super::ActivityContext;
use super::model_call_span::ModelCallSpan;
use crate::agent::Definition;
use crate::audit::{AuditEntry, Excerpt, Omitted, Received};
use crate::conversation::Services;
use crate::model::prompt::EXPIRED_RESULT;
use crate::model::retry::RetryingModel;
use crate::model::{
    Model, ModelError, ModelRequest, ModelToolCall, ReplyChunk, ReplyEnd, ReplyStream,
};

/// Asks the model of a step, or with `None` of a summary. If the definition says so, the audit gets
/// an entry when the parts have come, or when nobody wants them any more.
pub(super) async fn ask(
    around: &ActivityContext,
    definition: &Definition,
    step: Option<(TurnId, u32)>,
    request: ModelRequest,
) -> Result<ReplyStream, ModelError> {
    let chat = ModelCallSpan::begin(around, &request, step.as_ref());
    match audited(around, definition, step, request).await {
        Ok(parts) => Ok(chat.follow(parts)),
        Err(failure) => {
            chat.fail();
            Err(failure)
        }
    }
}

async fn audited(
    around: &ActivityContext,
    definition: &Definition,
    step: Option<(TurnId, u32)>,
    request: ModelRequest,
) -> Result<ReplyStream, ModelError> {
    let deps = &around.deps;
    let Some(ttl) = definition.audit else {
        let model = RetryingModel::new(deps.model.clone(), definition.retry, deps.clock.clone());
        return model.call(&request).await;
    };
    let mut heard = ModelReply::new(around, ttl, step, request.clone());
    let counted = Counted { model: deps.model.clone(), attempts: heard.attempts.clone() };
    let model = RetryingModel::new(counted, definition.retry, deps.clock.clone());
    match model.call(&request).await {
        Ok(parts) => Ok(parts.inspect(move |part| heard.hear(part)).boxed()),
        Err(failure) => {
            heard.end(Err(failure.message.clone()));
            Err(failure)
        }
    }
}

/// A model that counts how often it is asked.
struct Counted {
    model: Arc<dyn Model>,
    attempts: Arc<AtomicU32>,
}

#[async_trait]
impl Model for Counted {
    async fn call(&self, request: &ModelRequest) -> Result<ReplyStream, ModelError> {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        self.model.call(request).await
    }
}

/// What is known of a call so far. Its end is the entry's beginning, however it comes.
struct ModelReply {
    deps: Arc<Services>,
    conversation: ConversationId,
    ttl: Duration,
    attempts: Arc<AtomicU32>,
    at: Timestamp,
    first: Option<Timestamp>,
    ended: Option<(Timestamp, Result<ReplyEnd, String>)>,
    said: Option<Said>,
}

/// The longer parts, taken out at the end.
struct Said {
    step: Option<(TurnId, u32)>,
    request: ModelRequest,
    summary: Option<u64>,
    evicted: Omitted,
    thinking: String,
    text: String,
    calls: Vec<ModelToolCall>,
}

impl ModelReply {
    fn new(
        around: &ActivityContext,
        ttl: Duration,
        step: Option<(TurnId, u32)>,
        request: ModelRequest,
    ) -> Self {
        let context = &around.state.context;
        let results = request.messages.iter().filter(|message| message.role == Role::Tool);
        let evicted = Omitted {
            marks: context.marks,
            messages: request.messages.len(),
            expired_results: results.filter(|result| result.text() == EXPIRED_RESULT).count(),
        };
        let summary = context.summary.map(|summary| summary.seq);
        let (thinking, text, calls) = Default::default();
        Self {
            deps: around.deps.clone(),
            conversation: around.id.clone(),
            ttl,
            attempts: Arc::default(),
            at: around.deps.clock.now(),
            first: None,
            ended: None,
            said: Some(Said { step, request, summary, evicted, thinking, text, calls }),
        }
    }

    fn hear(&mut self, part: &Result<ReplyChunk, ModelError>) {
        let Some(said) = &mut self.said else { return };
        self.first = self.first.or_else(|| part.is_ok().then(|| self.deps.clock.now()));
        match part {
            Ok(ReplyChunk::Text(text)) => said.text.push_str(text),
            Ok(ReplyChunk::Thinking(text)) => said.thinking.push_str(text),
            Ok(ReplyChunk::Call(call)) => said.calls.push(call.clone()),
            Ok(ReplyChunk::Done(done)) => self.end(Ok(done.clone())),
            Err(failure) => self.end(Err(failure.message.clone())),
        }
    }

    fn end(&mut self, ended: Result<ReplyEnd, String>) {
        self.ended = Some((self.deps.clock.now(), ended));
    }
}

impl Drop for ModelReply {
    fn drop(&mut self) {
        let Some(said) = self.said.take() else { return };
        let cut = || (self.deps.clock.now(), Err("nobody wanted the rest of it".to_owned()));
        let (until, ended) = self.ended.take().unwrap_or_else(cut);
        let since = |at: Timestamp| {
            u64::try_from(at.duration_since(self.at).as_millis()).unwrap_or_default()
        };
        let (done, failure) = match ended {
            Ok(done) => (done, None),
            Err(failure) => (ReplyEnd::default(), Some(failure)),
        };
        let (model, id, at) = (self.deps.model.clone(), self.deps.clock.id("audit"), self.at);
        let (first_part_ms, whole_ms) = (self.first.map(since), since(until));
        let attempts = self.attempts.load(Ordering::Relaxed);
        self.deps.audit.record(&self.conversation, self.ttl, move || {
            let Said { step, request, summary, evicted, thinking, text, calls } = said;
            let (turn_id, step) = step.unzip();
            let came = Received {
                thinking: Excerpt::of(&thinking.into()),
                text: Excerpt::of(&text.into()),
                calls: Excerpt::of(&calls.iter().map(told).collect()),
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

/// What went over the wire; of a model that sends nothing, what it was given.
fn sent(model: &dyn Model, request: &ModelRequest) -> Value {
    match model.request_body(request) {
        Value::Null => json!({"system": request.system, "messages": request.messages}),
        rendered => rendered,
    }
}

fn told(call: &ModelToolCall) -> Value {
    let args = match &call.args {
        Ok(args) => args.clone(),
        Err(raw) => Value::String(raw.clone()),
    };
    json!({"id": call.id, "name": call.name, "args": args, "provided": call.provider_result})
}
