//! What a run of a tool results in.

use std::fmt;

use abide_conversation::command::StateChange;
use abide_conversation::elicitation::InputRequest;
use abide_conversation::event::EffectiveArgs;
use abide_conversation::message::{ErrorType, Outcome, Ui};
use serde_json::{Map, Value};

use crate::attempt_failure::{Failure, FailureKind};
use crate::workspace::FileError;

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolReturn {
    pub outcome: Outcome,
    /// A payload for user interfaces, never for the model.
    pub ui: Option<Ui>,
    /// Ends the turn as halted, with this reason.
    pub halt: Option<String>,
    /// Changes of the conversation by a built-in tool, committed with the result.
    pub(crate) state_changes: Vec<StateChange>,
    /// The input that the tool needs from a person first; there is no result yet.
    pub(crate) input_request: Option<InputRequest>,
    /// Whether the tool accepted the call and calls back with its result; there is none yet.
    pub(crate) awaits_callback: bool,
    /// The arguments that it ran with, if middleware changed them.
    pub(crate) effective_args: Option<EffectiveArgs>,
    /// Why the attempt failed, if another one may follow.
    pub(crate) failure: Option<Failure>,
}

impl ToolReturn {
    /// A result: text, any JSON, or content blocks. The model sees media blocks anywhere in it as
    /// media.
    pub fn ok(result: impl Into<Value>) -> Self {
        Self::from_outcome(Outcome::Ok(result.into()))
    }

    /// A failure; the model reads the message.
    pub fn error(message: impl Into<String>) -> Self {
        Self::failure(message, ErrorType::ToolError)
    }

    /// Ends the turn with this reason. The call still gets its result.
    pub fn halt(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { halt: Some(reason.clone()), ..Self::ok(reason) }
    }

    /// Asks a person for input first. The call waits, for days if its timeout allows, and then runs
    /// again on any node with the answer in [`Context::input`]; nothing else of this run is kept. A
    /// user's dispatch cannot wait: it ends with an error.
    pub fn input_required(request: InputRequest) -> Self {
        Self { input_request: Some(request), ..Self::from_outcome(Outcome::Ok(Value::Null)) }
    }

    /// No result yet: the tool calls back.
    pub(crate) fn accepted() -> Self {
        Self { awaits_callback: true, ..Self::from_outcome(Outcome::Ok(Value::Null)) }
    }

    /// Changes keys of the conversation's key-value state, in the commit of the result; null deletes a
    /// key. If the state cannot take the changes, the call ends with an error.
    pub fn with_state(self, changes: Map<String, Value>) -> Self {
        self.with_change(StateChange::KeyValues(changes))
    }

    /// Adds a payload for user interfaces.
    pub fn with_ui(self, kind: impl Into<String>, payload: impl Into<Value>) -> Self {
        Self { ui: Some(Ui { kind: kind.into(), payload: payload.into() }), ..self }
    }

    pub(crate) fn with_change(mut self, change: StateChange) -> Self {
        self.state_changes.push(change);
        self
    }

    /// A result with this outcome and nothing else.
    pub(crate) fn from_outcome(outcome: Outcome) -> Self {
        Self {
            outcome,
            ui: None,
            halt: None,
            state_changes: Vec::new(),
            input_request: None,
            awaits_callback: false,
            effective_args: None,
            failure: None,
        }
    }

    /// An error of a built-in tool: `code`, or `code: detail`.
    pub(crate) fn builtin_error(code: &str, detail: &str) -> Self {
        match detail {
            "" => Self::error(code),
            detail => Self::error(format!("{code}: {detail}")),
        }
    }

    /// An error for invalid arguments; `why` names each field.
    pub(crate) fn invalid_args(why: &str) -> Self {
        let why = format!("invalid tool arguments: {why}");
        Self::failure(why, ErrorType::ValidationError)
    }

    /// A failure that another attempt may follow.
    pub(crate) fn failed_attempt(message: impl Into<String>, failure: Option<Failure>) -> Self {
        Self { failure, ..Self::error(message) }
    }

    /// A run that took longer than it may.
    pub(crate) fn timeout(message: impl Into<String>) -> Self {
        let failure = Some(FailureKind::Timeout.into());
        Self { failure, ..Self::failure(message, ErrorType::Timeout) }
    }

    pub(crate) fn failure(message: impl Into<String>, error_type: ErrorType) -> Self {
        Self::from_outcome(Outcome::Err(message.into(), error_type))
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

/// The error becomes the text that the model reads.
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
        Self::builtin_error(refusal.code, &refusal.detail)
    }
}
