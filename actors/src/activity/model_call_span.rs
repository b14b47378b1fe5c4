//! The metrics and the span of a model call.

use abide_conversation::message::{Message, MessageRole, StopReason};
use abide_conversation::usage::Usage;
use abide_conversation::{Step, Timestamp, TurnId};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::ActivityContext;
use crate::limits::cut;
use crate::metric;
use crate::model::{ModelError, ModelRequest, ModelSettings, Purpose, ReplyChunk, ReplyStream};
use crate::trace::{self, Attribute, Span, SpanContext, SpanKind, Tracer};

/// The bytes of each text that a span shows, if it shows content: collectors refuse large spans.
const MAX_CONTENT_BYTES: usize = 32 << 10;

/// A running model call. It ends when it is dropped.
pub(super) struct ModelCallSpan {
    started_at: Instant,
    first_chunk_seconds: Option<f64>,
    provider: &'static str,
    model: &'static str,
    purpose: &'static str,
    outcome: &'static str,
    usage: Usage,
    span: Option<Box<OpenSpan>>,
}

/// The span itself, if the trace is sampled.
struct OpenSpan {
    tracer: &'static dyn Tracer,
    clock: std::sync::Arc<dyn crate::clock::Clock>,
    span: Span,
    stop: Option<StopReason>,
    /// The reply's text, if the span may show content.
    text: Option<String>,
}

impl ModelCallSpan {
    pub(super) fn begin(
        ctx: &ActivityContext,
        request: &ModelRequest,
        step: Option<&(TurnId, Step)>,
    ) -> Self {
        let settings = &request.settings;
        Self {
            started_at: Instant::now(),
            first_chunk_seconds: None,
            provider: settings.provider.name(),
            model: metric::model(&settings.name),
            purpose: metric::purpose(request.purpose),
            // The outcome of a call that is dropped before its end.
            outcome: "cut",
            usage: Usage::default(),
            span: OpenSpan::begin(ctx, request, step),
        }
    }

    /// Observes the stream, and ends with it.
    pub(super) fn follow(mut self, chunks: ReplyStream) -> ReplyStream {
        chunks.inspect(move |chunk| self.observe(chunk)).boxed()
    }

    /// Ends a call that failed before there was a stream.
    pub(super) fn fail(mut self) {
        self.outcome = "failed";
    }

    fn observe(&mut self, chunk: &Result<ReplyChunk, ModelError>) {
        match chunk {
            Ok(chunk) => {
                let started_at = self.started_at;
                self.first_chunk_seconds.get_or_insert_with(|| started_at.elapsed().as_secs_f64());
                if let Some(span) = &mut self.span {
                    span.observe(chunk);
                }
                if let ReplyChunk::Done(done) = chunk {
                    self.outcome = "ok";
                    self.usage = done.usage.unwrap_or_default();
                }
            }
            Err(_) => self.outcome = "failed",
        }
    }
}

impl Drop for ModelCallSpan {
    fn drop(&mut self) {
        let Self { provider, model, purpose, outcome, usage, .. } = *self;
        metrics::histogram!("abide_model_call_seconds",
            "provider" => provider, "purpose" => purpose, "outcome" => outcome)
        .record(self.started_at.elapsed().as_secs_f64());
        if let Some(first) = self.first_chunk_seconds {
            metrics::histogram!("abide_model_first_part_seconds",
                "provider" => provider, "purpose" => purpose)
            .record(first);
        }
        for (direction, tokens) in [
            ("input", usage.input_tokens),
            ("output", usage.output_tokens),
            ("cached", usage.cached_tokens),
        ] {
            if tokens > 0 {
                metrics::counter!("abide_tokens_total", "model" => model, "direction" => direction)
                    .increment(tokens);
            }
        }
        if let Some(span) = self.span.take() {
            span.end(outcome, self.first_chunk_seconds, usage);
        }
    }
}

impl OpenSpan {
    fn begin(
        ctx: &ActivityContext,
        request: &ModelRequest,
        step: Option<&(TurnId, Step)>,
    ) -> Option<Box<Self>> {
        let clock = &ctx.services.clock;
        // A summary is not part of a turn: turns may run meanwhile.
        let root = || match step {
            Some((turn, _)) => SpanContext::of_turn(&ctx.id, turn),
            None => SpanContext::outside_turns(&ctx.id, &clock.id("summary")),
        };
        let (tracer, root) = trace::sample(root)?;
        // A repeated step is another call.
        let context = step.map_or(root, |_| root.child(&["chat", &clock.id("span")]));
        let calls = ctx.state.turn.iter().flat_map(|turn| &turn.calls);
        let shows_content = tracer.shows_content();
        let mut attributes = request_attributes(ctx, &request.settings);
        if let Some((turn, step)) = step {
            attributes.push(("abide.turn.id", turn.as_str().into()));
            attributes.push(("abide.step", step.get().into()));
        }
        if shows_content {
            attributes.push((
                "gen_ai.system_instructions",
                cut(&request.system, MAX_CONTENT_BYTES).into(),
            ));
            attributes.push(("gen_ai.input.messages", messages_json(&request.messages).into()));
        }
        let span = Span {
            context,
            parent: step.map(|_| root.span),
            // Trimmed, since a scripted model has no name.
            name: format!("chat {}", request.settings.name).trim_end().to_owned(),
            kind: SpanKind::Client,
            started_at: clock.now(),
            ended_at: Timestamp::MAX,
            attributes,
            links: match request.purpose {
                Purpose::Step => trace::suspensions(root, calls),
                Purpose::Summary => Vec::new(),
            },
            error: None,
        };
        let text = shows_content.then(String::new);
        Some(Box::new(Self { tracer, clock: clock.clone(), span, stop: None, text }))
    }

    fn observe(&mut self, chunk: &ReplyChunk) {
        match chunk {
            ReplyChunk::Text(more) => {
                if let Some(text) = self.text.as_mut().filter(|text| text.len() < MAX_CONTENT_BYTES)
                {
                    text.push_str(more);
                }
            }
            ReplyChunk::Done(done) => self.stop = done.stop,
            ReplyChunk::Thinking(_) | ReplyChunk::Call(_) => {}
        }
    }

    fn end(mut self: Box<Self>, outcome: &'static str, first_chunk: Option<f64>, usage: Usage) {
        let attributes = &mut self.span.attributes;
        for (name, tokens) in [
            ("gen_ai.usage.input_tokens", usage.input_tokens),
            ("gen_ai.usage.output_tokens", usage.output_tokens),
            ("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens),
            ("gen_ai.usage.cache_creation.input_tokens", usage.cache_write_tokens),
        ] {
            if tokens > 0 {
                attributes.push((name, tokens.into()));
            }
        }
        if let Some(first) = first_chunk {
            attributes.push(("gen_ai.response.time_to_first_chunk", Attribute::Float(first)));
        }
        if let Some(stop) = self.stop {
            let reasons = Attribute::Texts(vec![finish_reason(stop).to_owned()]);
            attributes.push(("gen_ai.response.finish_reasons", reasons));
        }
        if let Some(text) = self.text.take() {
            let parts = json!([{"type": "text", "content": cut(&text, MAX_CONTENT_BYTES)}]);
            let message = json!([{"role": "assistant", "parts": parts}]);
            attributes.push(("gen_ai.output.messages", message.to_string().into()));
        }
        self.span.error = (outcome != "ok").then_some(outcome);
        self.span.ended_at = self.clock.now();
        self.tracer.end(self.span);
    }
}

fn request_attributes(
    ctx: &ActivityContext,
    settings: &ModelSettings,
) -> Vec<(&'static str, Attribute)> {
    let mut attributes = vec![
        ("gen_ai.operation.name", "chat".into()),
        ("gen_ai.provider.name", settings.provider.otel_name().into()),
        ("gen_ai.request.model", settings.name.as_str().into()),
        ("gen_ai.conversation.id", ctx.id.as_str().into()),
        ("abide.epoch", ctx.epoch.get().into()),
    ];
    if let Some(agent) = &ctx.state.agent {
        attributes.push(("gen_ai.agent.name", agent.as_str().into()));
    }
    if let Some(temperature) = settings.temperature {
        attributes.push(("gen_ai.request.temperature", Attribute::Float(temperature)));
    }
    if let Some(max_tokens) = settings.max_tokens {
        attributes.push(("gen_ai.request.max_tokens", max_tokens.into()));
    }
    attributes
}

fn finish_reason(stop: StopReason) -> &'static str {
    match stop {
        StopReason::End => "stop",
        StopReason::ToolCalls => "tool_calls",
        StopReason::MaxTokens => "length",
        StopReason::Refusal => "content_filter",
        StopReason::Paused => "pause",
    }
}

/// The newest messages that fit, in the form of the OpenTelemetry conventions.
fn messages_json(messages: &[Message]) -> String {
    let mut newest = Vec::new();
    let mut bytes = 0;
    for message in messages.iter().rev() {
        let json = message_json(message);
        bytes += json.to_string().len();
        if bytes > MAX_CONTENT_BYTES {
            break;
        }
        newest.push(json);
    }
    newest.reverse();
    Value::Array(newest).to_string()
}

fn message_json(message: &Message) -> Value {
    let role = match message.role {
        MessageRole::User => "user",
        MessageRole::Assistant => "assistant",
        MessageRole::Tool => "tool",
    };
    let text = cut(&message.text(), MAX_CONTENT_BYTES);
    let first = match &message.tool_call_id {
        Some(id) => json!({"type": "tool_call_response", "id": id, "response": text}),
        None => json!({"type": "text", "content": text}),
    };
    let calls = message.tool_calls.iter().map(|call| {
        json!({"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.args})
    });
    let parts: Vec<Value> = std::iter::once(first).chain(calls).collect();
    json!({"role": role, "parts": parts})
}
