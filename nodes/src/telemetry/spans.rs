//! A span as OpenTelemetry has it.

use std::time::SystemTime;

use abide_actors::trace::{Attribute, Span, SpanContext, SpanKind};
use abide_conversation::Timestamp;
use opentelemetry::trace::{
    Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Array, InstrumentationScope, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

pub(super) fn data(span: Span, scope: &InstrumentationScope) -> SpanData {
    let kind = match span.side {
        SpanKind::Inside => SpanKind::Internal,
        SpanKind::Calls => SpanKind::Client,
        SpanKind::Called => SpanKind::Server,
    };
    let mut attributes: Vec<KeyValue> = span.attributes.into_iter().map(attribute).collect();
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
        span_context: context(span.at),
        parent_span_id: span.parent.map_or(SpanId::INVALID, SpanId::from),
        parent_span_is_remote: false,
        span_kind: kind,
        name: span.name.into(),
        start_time: moment(span.began),
        end_time: moment(span.ended.max(span.began)),
        attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links,
        status,
        instrumentation_scope: scope.clone(),
    }
}

fn context(at: SpanContext) -> SpanContext {
    let (trace, span) = (TraceId::from(at.trace), SpanId::from(at.span));
    SpanContext::new(trace, span, TraceFlags::SAMPLED, false, TraceState::NONE)
}

fn attribute((name, value): (&'static str, Attribute)) -> KeyValue {
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

fn moment(at: Timestamp) -> SystemTime {
    SystemTime::from(at)
}
