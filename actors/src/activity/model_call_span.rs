//! What is measured of a model call, and its span.

use abide_conversation::message::{Message, Role, StopReason, Usage};
use abide_conversation::{Timestamp, TurnId};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::ActivityContext;
use crate::conversation::waited;
use crate::metric;
use crate::model::{ModelError, ModelRequest, ModelSettings, Purpose, ReplyChunk, ReplyStream};
use crate::tools::limits::cut;
use crate::trace::{self, Attribute, Span, SpanContext, SpanKind, Tracer};

/// How much of what was said a span shows, if it shows any: collectors refuse large ones.
const SHOWN: usize = 32 << 10;

/// A call that is under way; it ends when it is dropped.
pub(super) struct ModelCallSpan {
    began: Instant,
    first: Option<f64>,
    provider: &'static str,
    model: &'static str,
    purpose: &'static str,
    outcome: &'static str,
    usage: Usage,
    traced: Option<Box<Traced>>,
}

/// What its span says, while somebody wants it.
struct Traced {
    tracer: &'static dyn Tracer,
    clock: std::sync::Arc<dyn crate::clock::Clock>,
    span: Span,
    stop: Option<StopReason>,
    /// The answer's text, if it may be shown.
    said: Option<String>,
}

impl ModelCallSpan {
    pub(super) fn begin(
        around: &ActivityContext,
        request: &ModelRequest,
        step: Option<&(TurnId, u32)>,
    ) -> Self {
        let settings = &request.settings;
        Self {
            began: Instant::now(),
            first: None,
            provider: settings.provider.name(),
            model: metric::model(&settings.name),
            purpose: metric::purpose(request.purpose),
            // As long as nothing else is known.
            outcome: "cut",
            usage: Usage::default(),
            traced: Traced::begin(around, request, step),
        }
    }

    /// The parts as they come; the call ends with them.
    pub(super) fn follow(mut self, parts: ReplyStream) -> ReplyStream {
        parts.inspect(move |part| self.hear(part)).boxed()
    }

    /// There are no parts.
    pub(super) fn fail(mut self) {
        self.outcome = "failed";
    }

    fn hear(&mut self, part: &Result<ReplyChunk, ModelError>) {
        match part {
            Ok(part) => {
                self.first.get_or_insert_with(|| self.began.elapsed().as_secs_f64());
                if let Some(traced) = &mut self.traced {
                    traced.hear(part);
                }
                if let ReplyChunk::Done(done) = part {
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
        .record(self.began.elapsed().as_secs_f64());
        if let Some(first) = self.first {
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
        if let Some(traced) = self.traced.take() {
            traced.end(outcome, self.first, usage);
        }
    }
}

impl Traced {
    fn begin(
        around: &ActivityContext,
        request: &ModelRequest,
        step: Option<&(TurnId, u32)>,
    ) -> Option<Box<Self>> {
        let clock = &around.deps.clock;
        // A summary is no part of a turn: others may run meanwhile.
        let root = || match step {
            Some((turn, _)) => SpanContext::of_turn(&around.id, turn),
            None => SpanContext::apart(&around.id, &clock.id("summary")),
        };
        let (tracer, root) = trace::wanted(root)?;
        // A step that is asked again is another call.
        let at = step.map_or(root, |_| root.child(&["chat", &clock.id("span")]));
        let calls = around.state.turn.iter().flat_map(|turn| &turn.calls);
        let shows = tracer.shows_content();
        let mut attributes = asked(around, &request.settings);
        if let Some((turn, step)) = step {
            attributes.push(("abide.turn.id", turn.as_str().into()));
            attributes.push(("abide.step", (*step).into()));
        }
        if shows {
            attributes.push(("gen_ai.system_instructions", cut(&request.system, SHOWN).into()));
            attributes.push(("gen_ai.input.messages", messages(&request.messages).into()));
        }
        let span = Span {
            at,
            parent: step.map(|_| root.span),
            // A scripted model has no name.
            name: format!("chat {}", request.settings.name).trim_end().to_owned(),
            side: SpanKind::Client,
            began: clock.now(),
            ended: Timestamp::MAX,
            attributes,
            links: match request.purpose {
                Purpose::Step => waited(root, calls),
                Purpose::Summary => Vec::new(),
            },
            error: None,
        };
        let said = shows.then(String::new);
        Some(Box::new(Self { tracer, clock: clock.clone(), span, stop: None, said }))
    }

    fn hear(&mut self, part: &ReplyChunk) {
        match part {
            ReplyChunk::Text(text) => {
                if let Some(said) = self.said.as_mut().filter(|said| said.len() < SHOWN) {
                    said.push_str(text);
                }
            }
            ReplyChunk::Done(done) => self.stop = done.stop,
            ReplyChunk::Thinking(_) | ReplyChunk::Call(_) => {}
        }
    }

    fn end(mut self: Box<Self>, outcome: &'static str, first: Option<f64>, usage: Usage) {
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
        if let Some(first) = first {
            attributes.push(("gen_ai.response.time_to_first_chunk", Attribute::Float(first)));
        }
        if let Some(stop) = self.stop {
            let reasons = Attribute::Texts(vec![reason(stop).to_owned()]);
            attributes.push(("gen_ai.response.finish_reasons", reasons));
        }
        if let Some(said) = self.said.take() {
            let parts = json!([{"type": "text", "content": cut(&said, SHOWN)}]);
            let message = json!([{"role": "assistant", "parts": parts}]);
            attributes.push(("gen_ai.output.messages", message.to_string().into()));
        }
        self.span.error = (outcome != "ok").then_some(outcome);
        self.span.ended = self.clock.now();
        self.tracer.end(self.span);
    }
}

fn asked(around: &ActivityContext, settings: &ModelSettings) -> Vec<(&'static str, Attribute)> {
    let mut attributes = vec![
        ("gen_ai.operation.name", "chat".into()),
        ("gen_ai.provider.name", settings.provider.otel_name().into()),
        ("gen_ai.request.model", settings.name.as_str().into()),
        ("gen_ai.conversation.id", around.id.as_str().into()),
        ("abide.epoch", around.epoch.into()),
    ];
    if let Some(agent) = &around.state.agent {
        attributes.push(("gen_ai.agent.name", agent.as_str().into()));
    }
    if let Some(temperature) = settings.temperature {
        attributes.push(("gen_ai.request.temperature", Attribute::Float(temperature)));
    }
    if let Some(most) = settings.max_tokens {
        attributes.push(("gen_ai.request.max_tokens", most.into()));
    }
    attributes
}

fn reason(stop: StopReason) -> &'static str {
    match stop {
        StopReason::End => "stop",
        StopReason::ToolCalls => "tool_calls",
        StopReason::MaxTokens => "length",
        StopReason::Refusal => "content_filter",
        StopReason::Paused => "pause",
    }
}

/// The newest of the messages, as the conventions write them, as far as they are shown.
fn messages(messages: &[Message]) -> String {
    let mut shown = Vec::new();
    let mut bytes = 0;
    for message in messages.iter().rev() {
        let written = told(message);
        bytes += written.to_string().len();
        if bytes > SHOWN {
            break;
        }
        shown.push(written);
    }
    shown.reverse();
    Value::Array(shown).to_string()
}

fn told(message: &Message) -> Value {
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let text = cut(&message.text(), SHOWN);
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
