//! What requests of AG-UI have, and the two dialects of the protocol.

use std::collections::BTreeSet;

use abide_conversation::event::{Executor, SuspensionKind};
use serde::Deserialize;
use serde_json::Value;

use crate::protocols::feed::SuspendedCall;

/// The version of the protocol that [`Dialect::V1`] names.
pub const PROTOCOL_VERSION: &str = "1.0";

/// The version of the protocol that a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Before 1.0: a client that fails on a field that it does not know.
    V0,
    /// 1.0, whose clients name their version.
    V1,
}

/// The body of a request. Clients send more, which is ignored.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunInput {
    /// The conversation.
    pub thread_id: String,
    /// The client's name of the run, which is sent back and is not unique.
    pub run_id: String,
    protocol_version: Option<Value>,
    #[serde(default)]
    pub state: Value,
    /// All messages that the client has. Only the last of them are read.
    #[serde(default)]
    pub messages: Vec<Value>,
    #[serde(default)]
    pub tools: Vec<InputTool>,
    #[serde(default)]
    pub context: Vec<InputContext>,
    #[serde(default)]
    pub forwarded_props: Value,
    /// The answers to interrupts.
    #[serde(default)]
    pub resume: Option<Vec<InputResume>>,
}

/// A tool that the client executes.
#[derive(Debug, Deserialize)]
pub struct InputTool {
    pub name: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub parameters: Value,
}

/// Something that the model is to know in this turn.
#[derive(Debug, Deserialize)]
pub struct InputContext {
    #[serde(default)]
    pub description: String,
    pub value: String,
}

/// The answer to an interrupt.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InputResume {
    pub interrupt_id: String,
    pub status: ResumeStatus,
    #[serde(default)]
    pub payload: Value,
}

/// Whether somebody answered, or gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResumeStatus {
    Resolved,
    Cancelled,
}

impl RunInput {
    /// The client's version.
    pub fn dialect(&self) -> Dialect {
        if self.protocol_version.is_some() { Dialect::V1 } else { Dialect::V0 }
    }
}

/// What is wrong with a field of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputError {
    pub field: String,
    pub message: String,
}

impl InputError {
    /// The mistake of this field.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }

    /// The mistake of a field of an object that is at this place.
    pub fn below(self, at: &str) -> Self {
        Self { field: format!("{at}.{}", self.field), ..self }
    }
}

/// The names of the tools that the client of a run executes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunTools(BTreeSet<String>);

impl RunTools {
    /// The tools with these names.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self(names.into_iter().collect())
    }

    /// Whether the client has this tool.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// Whether the client executes this call, which waits for that.
    pub fn executes(&self, call: &SuspendedCall) -> bool {
        let waits_for_client = match call.kind {
            SuspensionKind::Approval => false,
            SuspensionKind::Elicitation | SuspensionKind::ClientExec | SuspensionKind::InDoubt => {
                matches!(call.executor, Executor::Client | Executor::Human)
            }
        };
        waits_for_client && self.has(&call.tool)
    }

    /// Whether a client might execute a call as soon as it knows of it: one that needs an approval must
    /// not be told before that.
    pub fn might_execute(&self, tool: &str, executor: Executor) -> bool {
        executor == Executor::Client || self.has(tool)
    }
}
