//! Answers to calls, as the clients of several protocols give them.

use abide_conversation::command::ResolutionAnswer;
use abide_conversation::event::SuspensionKind;
use serde_json::Value;

/// The value that a text of a client stands for: JSON of an object or a list is that, and any other text
/// is data as it is.
pub fn parsed(output: &Value) -> Value {
    let text = output.as_str().map(str::trim_start).filter(|text| text.starts_with(['{', '[']));
    let value = text.and_then(|text| serde_json::from_str(text).ok());
    value.unwrap_or_else(|| output.clone())
}

/// The answer of somebody who gives up.
pub fn cancelled(kind: SuspensionKind) -> ResolutionAnswer {
    match kind {
        SuspensionKind::Approval => ResolutionAnswer::Approval {
            approved: false,
            reason: Some("cancelled".to_owned()),
            args: None,
        },
        SuspensionKind::Elicitation | SuspensionKind::ClientExec | SuspensionKind::InDoubt => {
            ResolutionAnswer::Error("cancelled by the user".to_owned())
        }
    }
}
