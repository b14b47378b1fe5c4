//! Parses an HTTP tool's response. See `reference/http-tools.md`.

use abide_conversation::message::{ErrorType, Outcome, Ui};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::limits::{MAX_VALUE_BYTES, cut};
use crate::model::big_numbers::{OVER_64_BITS, find_rounded};
use crate::tools::ToolReturn;

const REPLY_TOO_LARGE: &str = "the tool's answer is larger than 1 MB";
/// The longest path of a field that an error names.
const MAX_FIELD_BYTES: usize = 200;

/// Reads a response that is one JSON value: `{"ok": …}` is the envelope, anything else is the
/// result itself. An empty body is null, as with 204.
pub(super) fn read_whole(body: &[u8]) -> Result<ToolReturn, String> {
    if body.is_empty() {
        return Ok(ToolReturn::ok(Value::Null));
    }
    let value = parse_exact(body, || "the tool's answer is not JSON".to_owned())?;
    Ok(match value {
        Value::Object(mut object) => match object.get("ok").and_then(Value::as_bool) {
            Some(ok) => read_envelope(ok, &mut object)?,
            None => ToolReturn::ok(object),
        },
        value => ToolReturn::ok(value),
    })
}

/// One line of an NDJSON response.
#[derive(Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "one exists at a time, and is taken apart at once")]
pub(super) enum Line {
    Progress(Value),
    Last(ToolReturn),
}

/// Assembles lines from fragments that are split anywhere.
#[derive(Default)]
pub(super) struct LineReader {
    received_bytes: usize,
    buffer: Vec<u8>,
    /// Where the next line begins in the buffer.
    line_start: usize,
    /// No line ends before this position, so that a long line is searched only once.
    searched_to: usize,
}

impl LineReader {
    /// Takes the next fragment; the total size is bounded.
    pub(super) fn push(&mut self, fragment: &[u8]) -> Result<(), String> {
        self.received_bytes = self.received_bytes.saturating_add(fragment.len());
        if self.received_bytes > MAX_VALUE_BYTES {
            return Err(REPLY_TOO_LARGE.to_owned());
        }
        self.buffer.drain(..self.line_start);
        self.searched_to -= self.line_start;
        self.line_start = 0;
        self.buffer.extend_from_slice(fragment);
        Ok(())
    }

    /// The next whole line that is not blank.
    pub(super) fn next_line(&mut self) -> Result<Option<Line>, String> {
        while let Some(at) = self.buffer[self.searched_to..].iter().position(|byte| *byte == b'\n')
        {
            let end = self.searched_to + at;
            let line = read_line(&self.buffer[self.line_start..end]);
            (self.line_start, self.searched_to) = (end + 1, end + 1);
            if let Some(line) = line? {
                return Ok(Some(line));
            }
        }
        self.searched_to = self.buffer.len();
        Ok(None)
    }

    /// The last line, if the response ended without a line break.
    pub(super) fn rest(self) -> Result<Option<Line>, String> {
        read_line(&self.buffer[self.line_start..])
    }
}

fn read_line(line: &[u8]) -> Result<Option<Line>, String> {
    if line.trim_ascii().is_empty() {
        return Ok(None);
    }
    let broken =
        || "a line of the tool's answer is none of progress, result, error, halt".to_owned();
    let Value::Object(mut line) = parse_exact(line, broken)? else { return Err(broken()) };
    if let Some(payload) = line.remove("progress") {
        return Ok(Some(Line::Progress(payload)));
    }
    // A line with only `halt` has the result null.
    let ok = line.contains_key("result") || !line.contains_key("error");
    if ok && !line.contains_key("result") && !line.contains_key("halt") {
        return Err(broken());
    }
    Ok(Some(Line::Last(read_envelope(ok, &mut line)?)))
}

/// The value of a JSON text. A whole number that would be rounded is an error: a wrong id is worse
/// than none.
fn parse_exact(json: &[u8], broken: impl Fn() -> String) -> Result<Value, String> {
    let json = std::str::from_utf8(json).map_err(|_| broken())?;
    match find_rounded(json) {
        Some(field) if field.is_empty() => Err(format!("the tool's answer {OVER_64_BITS}")),
        Some(field) => {
            Err(format!("in the tool's answer {}: {OVER_64_BITS}", cut(&field, MAX_FIELD_BYTES)))
        }
        None => serde_json::from_str(json).map_err(|_| broken()),
    }
}

fn read_envelope(ok: bool, object: &mut Map<String, Value>) -> Result<ToolReturn, String> {
    let mut take = |name: &str| object.remove(name).unwrap_or_default();
    let outcome = if ok {
        Outcome::Ok(take("result"))
    } else {
        let error_type = ErrorType::deserialize(take("error_type"));
        Outcome::Err(error_text(take("error")), error_type.unwrap_or(ErrorType::ToolError))
    };
    let ui = serde_json::from_value::<Option<Ui>>(take("ui"));
    let ui = ui.unwrap_or_else(|error| {
        tracing::warn!(content = %error, "tool ui ignored: not {{kind, payload}}");
        None
    });
    let halt = Some(take("halt")).filter(|halt| !halt.is_null()).map(error_text);
    let returned = ToolReturn { ui, halt, ..ToolReturn::from_outcome(outcome) };
    match take("state") {
        Value::Null => Ok(returned),
        Value::Object(changes) => Ok(returned.with_state(changes)),
        _ => Err("in the tool's answer state: must be an object".to_owned()),
    }
}

fn error_text(error: Value) -> String {
    match error {
        Value::String(text) => text,
        Value::Null => "the tool failed".to_owned(),
        error => error.to_string(),
    }
}
