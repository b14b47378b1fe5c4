//! How a line of the log is written: a flat JSON object, or text.

use std::fmt;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::field::{RecordFields, VisitOutput};
use tracing_subscriber::fmt::format::{DefaultFields, DefaultVisitor, JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// The field of what somebody said, and what is written in its place.
const SAID: &str = "said";
const HIDDEN: &str = "…";

/// One object a line: when, how severe, by whom, the message, and the fields of the event and of all
/// that it happened in; the event's own win.
pub(super) struct Line {
    pub(super) node: String,
    pub(super) shows_said: bool,
}

impl<S> FormatEvent<S, JsonFields> for Line
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
        line.insert("timestamp".to_owned(), text(&jiff::Timestamp::now().to_string()));
        line.insert("level".to_owned(), text(event.metadata().level().as_str()));
        line.insert("node".to_owned(), text(&self.node));
        line.insert("target".to_owned(), text(event.metadata().target()));
        for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            let extensions = span.extensions();
            let Some(fields) = extensions.get::<FormattedFields<JsonFields>>() else { continue };
            if let Ok(Value::Object(fields)) = serde_json::from_str(&fields.fields) {
                line.extend(fields);
            }
        }
        event.record(&mut Fields { line: &mut line, shows_said: self.shows_said });
        writeln!(writer, "{}", Value::Object(line))
    }
}

/// Puts the fields of an event into its line.
struct Fields<'a> {
    line: &'a mut Map<String, Value>,
    shows_said: bool,
}

impl Fields<'_> {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        let hidden = field.name() == SAID && !self.shows_said;
        let value = if hidden { HIDDEN.into() } else { value.into() };
        self.line.insert(field.name().to_owned(), value);
    }
}

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }
}

/// Fields as text, but for what somebody said.
pub(super) struct Plain {
    shows_said: bool,
}

impl Plain {
    pub(super) fn new(shows_said: bool) -> Self {
        Self { shows_said }
    }
}

impl<'w> FormatFields<'w> for Plain {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        if self.shows_said {
            return DefaultFields::new().format_fields(writer, fields);
        }
        let mut visitor = Hiding(DefaultVisitor::new(writer, true));
        fields.record(&mut visitor);
        visitor.0.finish()
    }
}

/// Writes all fields but one.
struct Hiding<'a>(DefaultVisitor<'a>);

impl Visit for Hiding<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            SAID => self.0.record_debug(field, &format_args!("{HIDDEN}")),
            _ => self.0.record_debug(field, value),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            SAID => self.0.record_str(field, HIDDEN),
            _ => self.0.record_str(field, value),
        }
    }
}
