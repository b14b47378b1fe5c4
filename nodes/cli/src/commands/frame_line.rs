//! One frame of a stream as one line.

use serde_json::Value;

use super::conversations::text_of;
use super::pending_line;
use crate::printer::{Printer, Tone, cell};
use crate::stream::Frame;
use crate::text::one_line;

/// The most characters of arguments and results.
const MAX_VALUE_CHARS: usize = 200;

/// The line, and how it is toned.
pub(super) fn line(printer: &Printer, frame: &Frame) -> (String, Tone) {
    let data = &frame.data;
    let text = |name: &str| cell(&data[name]);
    let call = || format!("{} ({})", text("tool"), text("call_id"));
    let shown = |name: &str| one_line(&text(name), MAX_VALUE_CHARS);
    match frame.event.as_str() {
        "snapshot" => {
            (format!("{} · {} · {}", text("id"), text("agent"), text("state")), Tone::Bold)
        }
        "state_changed" => (format!("state {}", text("state")), Tone::Dim),
        "turn_started" => (format!("turn {} started", text("turn_id")), Tone::Dim),
        "user_message" => (format!("user: {}", text_of(&data["message"])), Tone::Bold),
        "message_completed" => (format!("assistant: {}", text_of(&data["message"])), Tone::Plain),
        "message_refused" => (format!("a hook refused a message: {}", text("reason")), Tone::Bad),
        "tool_call_started" => {
            let attempt = data["attempt"].as_u64().filter(|attempt| *attempt > 1);
            let attempt = attempt.map(|n| format!(", attempt {n}")).unwrap_or_default();
            (format!("→ {}{attempt} {}", call(), shown("args")), Tone::Dim)
        }
        "tool_call_delta" => (format!("  … {} {}", text("name"), shown("args_text")), Tone::Dim),
        "tool_progress" => (format!("  {} {}", text("call_id"), shown("payload")), Tone::Dim),
        "tool_call_resolved" => (format!("← {} {}", text("call_id"), shown("result")), Tone::Good),
        "tool_call_errored" => (format!("← {} {}", text("call_id"), shown("result")), Tone::Bad),
        "suspended" | "child_suspended" => {
            let until = printer.time.show(&text("expires_at"));
            let question = one_line(&pending_line::question(data), MAX_VALUE_CHARS);
            (format!("? {} of {}, ends {until}: {question}", text("kind"), call()), Tone::Asking)
        }
        "answered" | "voted" => (format!("{} {}", frame.event, answered(data)), Tone::Dim),
        "turn_withdrawn" => {
            (format!("turn {} withdrawn by {}", text("turn_id"), text("by")), Tone::Dim)
        }
        "rewound" => (format!("rewound to {} by {}", text("to_seq"), text("by")), Tone::Bold),
        "turn_completed" => ("turn completed".to_owned(), Tone::Good),
        "turn_cancelled" => ("turn cancelled".to_owned(), Tone::Bad),
        "turn_halted" | "turn_failed" => {
            (format!("{}: {}", frame.event.replace('_', " "), text("reason")), Tone::Bad)
        }
        event => (format!("{event} {}", one_line(&data.to_string(), MAX_VALUE_CHARS)), Tone::Dim),
    }
}

fn answered(data: &Value) -> String {
    let decision = match &data["approved"] {
        Value::Bool(true) => "approved ",
        Value::Bool(false) => "denied ",
        _ => "",
    };
    let reason = data["reason"].as_str().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{decision}{} by {}{reason}", cell(&data["call_id"]), cell(&data["by"]))
}
