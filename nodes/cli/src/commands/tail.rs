//! `tail`: a conversation's events as they happen.

use serde_json::{Value, json};

use super::frame_line;
use crate::command::TailCommand;
use crate::error::CliError;
use crate::printer::Tone;
use crate::session::Session;
use crate::stream::{Frame, Stream};

pub(super) async fn run(session: &Session, given: &TailCommand) -> Result<(), CliError> {
    let mut stream = Stream::new(&session.http, &given.conversation, given.after, given.deltas);
    let mut has_begun = false;
    let mut is_in_text = false;
    while let Some(frame) = stream.next().await? {
        // A stream that goes on elsewhere begins with a snapshot again.
        let is_repeat = frame.event == "snapshot" && std::mem::replace(&mut has_begun, true);
        if is_repeat || (is_delta(&frame.event) && !given.deltas) {
            continue;
        }
        if !session.printer.is_for_people() {
            session.printer.json_line(&as_json(&frame))?;
            continue;
        }
        if let Some(text) = written(&frame) {
            is_in_text = true;
            let is_text = frame.event == "text_delta";
            session.printer.part(text, if is_text { Tone::Plain } else { Tone::Dim })?;
            continue;
        }
        if std::mem::take(&mut is_in_text) {
            session.printer.line("")?;
        }
        let (line, tone) = frame_line::line(&session.printer, &frame);
        let seq = frame.id.as_deref().and_then(|id| id.split('.').next()).unwrap_or("");
        session.printer.toned_line(&format!("{seq:>5} {line}"), tone)?;
    }
    Ok(())
}

fn is_delta(event: &str) -> bool {
    matches!(event, "text_delta" | "thinking_delta" | "tool_call_delta")
}

/// The piece of text of a delta that is shown where the one before it ended.
fn written(frame: &Frame) -> Option<&str> {
    match frame.event.as_str() {
        "text_delta" | "thinking_delta" => frame.data["text"].as_str(),
        _ => None,
    }
}

fn as_json(frame: &Frame) -> Value {
    let mut json = json!({"event": frame.event, "data": frame.data});
    if let Some(id) = &frame.id {
        json["id"] = json!(id);
    }
    json
}
