//! What the bytes of a tool's answer say.

use abide_conversation::message::{ErrorType, Outcome, Ui};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::limits::LARGEST_VALUE;
use crate::tools::ToolReturn;

const TOO_LARGE: &str = "the tool's answer is larger than 1 MB";

/// Reads an answer that is one JSON value: `{"ok": …}` as it is, anything else as the result. No
/// byte at all is null, as with 204.
pub(super) fn whole(body: &[u8]) -> Result<ToolReturn, String> {
    if body.is_empty() {
        return Ok(ToolReturn::ok(Value::Null));
    }
    let value: Value =
        serde_json::from_slice(body).map_err(|_| "the tool's answer is not JSON".to_owned())?;
    Ok(match value {
        Value::Object(mut object) => match object.get("ok").and_then(Value::as_bool) {
            Some(ok) => envelope(ok, &mut object),
            None => ToolReturn::ok(object),
        },
        value => ToolReturn::ok(value),
    })
}

/// One line of an answer in ndjson.
#[derive(Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "one exists at a time, and is taken apart at once")]
pub(super) enum Line {
    Progress(Value),
    Last(ToolReturn),
}

/// Puts lines together from fragments that are split anywhere.
#[derive(Default)]
pub(super) struct Lines {
    received: usize,
    waiting: Vec<u8>,
    /// Where the next line begins.
    begin: usize,
    /// From `begin` to here no line ends, so that a long line is searched once.
    searched: usize,
}

impl Lines {
    /// Takes the next fragment; all of them together are bounded.
    pub(super) fn push(&mut self, fragment: &[u8]) -> Result<(), String> {
        self.received = self.received.saturating_add(fragment.len());
        if self.received > LARGEST_VALUE {
            return Err(TOO_LARGE.to_owned());
        }
        self.waiting.drain(..self.begin);
        self.searched -= self.begin;
        self.begin = 0;
        self.waiting.extend_from_slice(fragment);
        Ok(())
    }

    /// The next whole line that is not blank.
    pub(super) fn next_line(&mut self) -> Result<Option<Line>, String> {
        while let Some(at) = self.waiting[self.searched..].iter().position(|byte| *byte == b'\n') {
            let end = self.searched + at;
            let line = read_line(&self.waiting[self.begin..end]);
            (self.begin, self.searched) = (end + 1, end + 1);
            if let Some(line) = line? {
                return Ok(Some(line));
            }
        }
        self.searched = self.waiting.len();
        Ok(None)
    }

    /// The last line, if the answer ended without a line break.
    pub(super) fn rest(self) -> Result<Option<Line>, String> {
        read_line(&self.waiting[self.begin..])
    }
}

fn read_line(line: &[u8]) -> Result<Option<Line>, String> {
    if line.trim_ascii().is_empty() {
        return Ok(None);
    }
    let broken =
        || "a line of the tool's answer is none of progress, result, error, halt".to_owned();
    let mut line: Map<String, Value> = serde_json::from_slice(line).map_err(|_| broken())?;
    if let Some(payload) = line.remove("progress") {
        return Ok(Some(Line::Progress(payload)));
    }
    // A tool that only ends the turn has a result of nothing.
    let ok = line.contains_key("result") || !line.contains_key("error");
    if ok && !line.contains_key("result") && !line.contains_key("halt") {
        return Err(broken());
    }
    Ok(Some(Line::Last(envelope(ok, &mut line))))
}

fn envelope(ok: bool, object: &mut Map<String, Value>) -> ToolReturn {
    let mut take = |name: &str| object.remove(name).unwrap_or_default();
    let outcome = match ok {
        true => Outcome::Ok(take("result")),
        false => {
            let error_type = ErrorType::deserialize(take("error_type"));
            Outcome::Err(text(take("error")), error_type.unwrap_or(ErrorType::ToolError))
        }
    };
    let ui = serde_json::from_value::<Option<Ui>>(take("ui"));
    let ui = ui.unwrap_or_else(|error| {
        tracing::warn!(said = %error, "a tool's ui is not {{kind, payload}}");
        None
    });
    let halt = Some(take("halt")).filter(|halt| !halt.is_null()).map(text);
    ToolReturn { ui, halt, ..ToolReturn::of(outcome) }
}

fn text(error: Value) -> String {
    match error {
        Value::String(text) => text,
        Value::Null => "the tool failed".to_owned(),
        error => error.to_string(),
    }
}
