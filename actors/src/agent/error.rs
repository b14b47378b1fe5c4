//! What is wrong with a definition.

use std::fmt;

/// One mistake: the tool, the field, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionError {
    /// `None` for the agent's own fields.
    pub tool: Option<String>,
    /// A path such as `run.http.url`.
    pub field: String,
    pub message: String,
}

impl fmt::Display for DefinitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(tool) = &self.tool {
            write!(f, "tool {tool}: ")?;
        }
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl std::error::Error for DefinitionError {}

/// All mistakes in one line.
pub fn join_errors(mistakes: &[DefinitionError]) -> String {
    mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
