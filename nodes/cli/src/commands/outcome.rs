//! What a turn has come to, and the exit code for it.

use serde_json::Value;

use super::conversations::text_of;
use super::pending_line;
use crate::error::CliError;
use crate::session::Session;

/// Prints the outcome of a turn that was waited for. `Err(Waits)` if it rests.
pub(super) fn print(session: &Session, answer: &Value) -> Result<(), CliError> {
    let printer = &session.printer;
    let outcome = answer["outcome"].as_str().unwrap_or_default();
    if printer.is_for_people() {
        match &answer["object"] {
            Value::Null if answer["message"].is_null() => {}
            Value::Null => printer.line(&text_of(&answer["message"]))?,
            object => printer.line(&format!("{object:#}"))?,
        }
    } else {
        printer.json(answer)?;
    }
    match outcome {
        "completed" => Ok(()),
        "awaiting_input" => {
            if printer.is_for_people() {
                let conversation = answer["conversation_id"].as_str().unwrap_or_default();
                for call in answer["pending"].as_array().into_iter().flatten() {
                    pending_line::print(printer, call, conversation)?;
                }
            }
            Err(CliError::Waits)
        }
        outcome => {
            let reason = answer["reason"].as_str().map(|reason| format!(": {reason}"));
            let reason = reason.unwrap_or_default();
            Err(CliError::Failed(format!("the turn is {outcome}{reason}")))
        }
    }
}
