//! A call that waits, as a line with the commands that move it.

use serde_json::Value;

use crate::call_address::CallAddress;
use crate::error::CliError;
use crate::printer::{Printer, Tone, cell};
use crate::text::one_line;

/// Prints what is asked for, until when, and how to answer.
pub(super) fn print(printer: &Printer, call: &Value, conversation: &str) -> Result<(), CliError> {
    let address = CallAddress::of(call, conversation).short();
    let until = printer.time.show(&cell(&call["expires_at"]));
    let kind = cell(&call["kind"]);
    let question = one_line(&question(call), 300);
    let line = format!("waits         {kind} of {} ({address}), ends {until}", cell(&call["tool"]));
    printer.toned_line(&line, Tone::Asking)?;
    printer.line(&format!("              {question}"))?;
    for command in commands(&kind, &address) {
        printer.toned_line(&format!("              {command}"), Tone::Dim)?;
    }
    Ok(())
}

/// What the person is asked: the message, or else the call itself.
pub(super) fn question(call: &Value) -> String {
    match call["message"].as_str().filter(|message| !message.is_empty()) {
        Some(message) => message.to_owned(),
        None => format!("{} {}", cell(&call["tool"]), cell(&call["args"])),
    }
}

/// The commands that answer a call of this kind.
pub(super) fn commands(kind: &str, address: &str) -> Vec<String> {
    match kind {
        "approval" => {
            vec![format!("abide approve {address}"), format!("abide deny {address} --reason WHY")]
        }
        _ => vec![format!("abide answer {address}")],
    }
}
