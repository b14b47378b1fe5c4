//! The format of a log line: a flat JSON object, or text.
//!
//! The field named `content`, of an event or a span, is redacted unless the configuration shows
//! content. A type that marks a value as sensitive could not do that: a formatter gets only the name
//! of a field and its text.

use std::fmt;

use abide_actors::identity::NodeName;
use serde::Serializer;
use serde::ser::SerializeMap;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::Record;
use tracing::{Event, Subscriber};
use tracing_subscriber::field::{RecordFields, VisitOutput};
use tracing_subscriber::fmt::format::{DefaultFields, DefaultVisitor, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// The field that may repeat what a person, a model or a tool said.
const CONTENT_FIELD: &str = "content";
/// What is written in place of content.
const REDACTED: &str = "…";

fn is_content(field: &Field) -> bool {
    field.name() == CONTENT_FIELD
}

/// One JSON object a line: time, level, node, target, message, and the fields of the event and of the
/// spans around it. The event's own fields win.
pub(super) struct JsonLine {
    pub(super) node: NodeName,
    pub(super) shows_content: bool,
}

impl<S> FormatEvent<S, JsonFields> for JsonLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Map::new();
        let text = |text: &str| Value::String(text.to_owned());
        line.insert("timestamp".to_owned(), text(&format!("{:.6}", jiff::Timestamp::now())));
        line.insert("level".to_owned(), text(event.metadata().level().as_str()));
        line.insert("node".to_owned(), text(self.node.as_str()));
        line.insert("target".to_owned(), text(event.metadata().target()));
        for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            let extensions = span.extensions();
            let Some(fields) = extensions.get::<FormattedFields<JsonFields>>() else { continue };
            if let Ok(Value::Object(fields)) = serde_json::from_str(&fields.fields) {
                line.extend(fields);
            }
        }
        event.record(&mut JsonVisitor {
            insert: |name: &str, value| drop(line.insert(name.to_owned(), value)),
            shows_content: self.shows_content,
        });
        writeln!(writer, "{}", Value::Object(line))
    }
}

/// The fields of a span as a JSON object.
pub(super) struct JsonFields {
    pub(super) shows_content: bool,
}

impl<'w> FormatFields<'w> for JsonFields {
    /// Writes the fields one by one: each activity has a span, most never log, and a map of the fields
    /// would cost more than the rest of the span.
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut json = Vec::new();
        let mut object = serde_json::Serializer::new(&mut json);
        let mut object = object.serialize_map(None).map_err(|_| fmt::Error)?;
        let mut written = Ok(());
        fields.record(&mut JsonVisitor {
            insert: |name, value| {
                if written.is_ok() {
                    written = object.serialize_entry(name, &value);
                }
            },
            shows_content: self.shows_content,
        });
        written.and_then(|()| object.end()).map_err(|_| fmt::Error)?;
        writer.write_str(str::from_utf8(&json).map_err(|_| fmt::Error)?)
    }

    /// Adds fields that got their values after the span had begun.
    fn add_fields(
        &self,
        current: &'w mut FormattedFields<Self>,
        fields: &Record<'_>,
    ) -> fmt::Result {
        let mut object: Map<String, Value> =
            serde_json::from_str(&current.fields).unwrap_or_default();
        fields.record(&mut JsonVisitor {
            insert: |name: &str, value| drop(object.insert(name.to_owned(), value)),
            shows_content: self.shows_content,
        });
        current.fields = Value::Object(object).to_string();
        Ok(())
    }
}

/// Puts fields into a JSON object.
struct JsonVisitor<F> {
    insert: F,
    shows_content: bool,
}

impl<F: FnMut(&'static str, Value)> JsonVisitor<F> {
    fn insert(&mut self, field: &Field, value: impl Into<Value>) {
        let is_redacted = is_content(field) && !self.shows_content;
        let value = if is_redacted { REDACTED.into() } else { value.into() };
        (self.insert)(field.name(), value);
    }
}

impl<F: FnMut(&'static str, Value)> Visit for JsonVisitor<F> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.insert(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value);
    }
}

/// The fields of an event or a span as text.
pub(super) struct TextFields {
    pub(super) shows_content: bool,
}

impl<'w> FormatFields<'w> for TextFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        if self.shows_content {
            return DefaultFields::new().format_fields(writer, fields);
        }
        let mut visitor = RedactingVisitor(DefaultVisitor::new(writer, true));
        fields.record(&mut visitor);
        visitor.0.finish()
    }
}

/// Writes all fields, but content redacted. What is not text arrives as `record_debug`, too.
struct RedactingVisitor<'a>(DefaultVisitor<'a>);

impl Visit for RedactingVisitor<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if is_content(field) {
            self.0.record_debug(field, &format_args!("{REDACTED}"));
        } else {
            self.0.record_debug(field, value);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.record_str(field, if is_content(field) { REDACTED } else { value });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use tracing::field::Empty;
    use tracing_subscriber::fmt;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// All content that `logged` logs.
    const CONTENT: [&str; 6] =
        ["in text", "in display", "in debug", "4711081511", "in a span", "in a late field"];

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is logged of events and spans with content, in both formats.
    fn logged(shows_content: bool) -> [String; 2] {
        [true, false].map(|json| {
            let buffer = Buffer::default();
            let writer = buffer.clone();
            let lines = fmt::layer().with_writer(move || writer.clone()).with_ansi(false);
            let log = || {
                tracing::warn!(content = "in text", tool = "t", "first event");
                tracing::warn!(content = %"in display", "second event");
                tracing::warn!(content = ?["in debug"], "third event");
                tracing::warn!(content = 4_711_081_511_u64, "fourth event");
                let span = tracing::error_span!("span", content = "in a span", call = "c");
                span.in_scope(|| tracing::warn!("fifth event"));
                let late = tracing::error_span!("late", turn = "t1", content = Empty);
                late.record("content", "in a late field");
                late.in_scope(|| tracing::warn!("sixth event"));
            };
            let registry = tracing_subscriber::registry();
            if json {
                let line = JsonLine { node: NodeName::new("n1"), shows_content };
                let lines = lines.fmt_fields(JsonFields { shows_content }).event_format(line);
                tracing::subscriber::with_default(registry.with(lines), log);
            } else {
                let lines = lines.fmt_fields(TextFields { shows_content });
                tracing::subscriber::with_default(registry.with(lines), log);
            }
            let bytes = buffer.0.lock().unwrap().clone();
            String::from_utf8(bytes).unwrap()
        })
    }

    #[test]
    fn the_field_content_is_redacted_whatever_its_type() {
        for log in logged(false) {
            for event in ["first event", "fourth event", "tool", "call", "turn", "sixth event"] {
                assert!(log.contains(event), "{log}");
            }
            assert_eq!(log.matches(REDACTED).count(), 6, "{log}");
            for content in CONTENT {
                assert!(!log.contains(content), "{log}");
            }
        }
    }

    #[test]
    fn content_is_logged_when_the_configuration_shows_it() {
        for log in logged(true) {
            for content in CONTENT {
                assert!(log.contains(content), "{log}");
            }
            assert!(!log.contains(REDACTED), "{log}");
        }
    }
}
