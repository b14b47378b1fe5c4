//! Converts our spans to those of OpenTelemetry.

use std::time::SystemTime;

use abide_actors::trace::{self, Attribute, Span};
use abide_conversation::Timestamp;
use opentelemetry::trace::{
    Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Array, InstrumentationScope, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

pub(super) fn span_data(span: Span, scope: &InstrumentationScope) -> SpanData {
    let kind = match span.kind {
        trace::SpanKind::Internal => SpanKind::Internal,
        trace::SpanKind::Client => SpanKind::Client,
        trace::SpanKind::Server => SpanKind::Server,
    };
    let mut attributes: Vec<KeyValue> = span.attributes.into_iter().map(key_value).collect();
    let status = match span.error {
        Some(error) => {
            attributes.push(KeyValue::new("error.type", error));
            Status::error(error)
        }
        None => Status::Unset,
    };
    let mut links = SpanLinks::default();
    links.links = span.links.into_iter().map(|at| Link::with_context(context(at))).collect();
    SpanData {
        span_context: context(span.context),
        parent_span_id: span.parent.map_or(SpanId::INVALID, SpanId::from),
        parent_span_is_remote: false,
        span_kind: kind,
        name: span.name.into(),
        start_time: system_time(span.started_at),
        end_time: system_time(span.ended_at.max(span.started_at)),
        attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links,
        status,
        instrumentation_scope: scope.clone(),
    }
}

fn context(at: trace::SpanContext) -> SpanContext {
    let (trace, span) = (TraceId::from(at.trace), SpanId::from(at.span));
    SpanContext::new(trace, span, TraceFlags::SAMPLED, false, TraceState::NONE)
}

fn key_value((name, value): (&'static str, Attribute)) -> KeyValue {
    let value = match value {
        Attribute::Text(text) => Value::from(text),
        Attribute::Whole(whole) => Value::from(whole),
        Attribute::Float(float) => Value::from(float),
        Attribute::Texts(texts) => {
            Value::Array(Array::String(texts.into_iter().map(StringValue::from).collect()))
        }
    };
    KeyValue::new(name, value)
}

fn system_time(at: Timestamp) -> SystemTime {
    SystemTime::from(jiff::Timestamp::from(at))
}
