//! What a run of a tool results in.

use std::fmt;

use abide_conversation::command::StateChange;
use abide_conversation::elicitation::InputRequest;
use abide_conversation::event::EffectiveArgs;
use abide_conversation::message::{ErrorType, Outcome, Ui};
use serde_json::Value;

use crate::workspace::FileError;

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolReturn {
    pub outcome: Outcome,
    /// Shown to people, never to the model.
    pub ui: Option<Ui>,
    /// Ends the turn as halted, with this reason.
    pub halt: Option<String>,
    /// What a built-in tool changes in its conversation, in the same commit.
    pub(crate) changes: Vec<StateChange>,
    /// What the tool must know first; there is no result yet.
    pub(crate) asks: Option<InputRequest>,
    /// With what it ran, if middleware changed the arguments.
    pub(crate) ran: Option<EffectiveArgs>,
}

impl ToolReturn {
    /// A result: text, any JSON, or content blocks. Media blocks, wherever they stand in it, are
    /// shown to the model as what they are.
    pub fn ok(result: impl Into<Value>) -> Self {
        Self::of(Outcome::Ok(result.into()))
    }

    /// The tool failed; the model reads the message.
    pub fn error(message: impl Into<String>) -> Self {
        Self::failed(message, ErrorType::ToolError)
    }

    /// The turn is to end here, with this reason. The call still gets its result.
    pub fn halt(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { halt: Some(reason.clone()), ..Self::ok(reason) }
    }

    /// The tool needs something from a person first. The call waits, for days if it may, and runs
    /// again with the answer as [`Context::input`], on whichever node; nothing else of this run is
    /// kept. A user's own call cannot wait: it ends with an error.
    pub fn asking(asks: InputRequest) -> Self {
        Self { asks: Some(asks), ..Self::of(Outcome::Ok(Value::Null)) }
    }

    /// The same, with something to show to people.
    pub fn with_ui(self, kind: impl Into<String>, payload: impl Into<Value>) -> Self {
        Self { ui: Some(Ui { kind: kind.into(), payload: payload.into() }), ..self }
    }

    pub(crate) fn with_change(mut self, change: StateChange) -> Self {
        self.changes.push(change);
        self
    }

    /// This outcome and nothing else.
    pub(crate) fn of(outcome: Outcome) -> Self {
        Self { outcome, ui: None, halt: None, changes: Vec::new(), asks: None, ran: None }
    }

    /// A built-in tool's own error: `code`, or `code: detail`.
    pub(crate) fn coded(code: &str, detail: &str) -> Self {
        match detail {
            "" => Self::error(code),
            detail => Self::error(format!("{code}: {detail}")),
        }
    }

    /// The arguments are wrong; `why` names each field.
    pub(crate) fn invalid(why: &str) -> Self {
        let why = format!("invalid tool arguments: {why}");
        Self::failed(why, ErrorType::ValidationError)
    }

    pub(crate) fn failed(message: impl Into<String>, error_type: ErrorType) -> Self {
        Self::of(Outcome::Err(message.into(), error_type))
    }
}

macro_rules! results {
    ($($type:ty),+) => {$(
        impl From<$type> for ToolReturn {
            fn from(result: $type) -> Self {
                Self::ok(result)
            }
        }
    )+};
}

results!(Value, Vec<Value>, String, &str, bool, i64, u64, f64, ());

/// The model reads the error.
impl<T: Into<ToolReturn>, E: fmt::Display> From<Result<T, E>> for ToolReturn {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(result) => result.into(),
            Err(error) => Self::error(error.to_string()),
        }
    }
}

impl From<FileError> for ToolReturn {
    fn from(refusal: FileError) -> Self {
        Self::coded(refusal.code, &refusal.detail)
    }
}
