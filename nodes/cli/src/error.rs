//! Why a command ends with another exit code than 0.

use std::io;

use serde_json::Value;

/// What the exit codes mean: `reference/command-line.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    Done = 0,
    Failed = 1,
    Usage = 2,
    NotFound = 3,
    Waits = 4,
    Conflict = 5,
    Forbidden = 6,
}

/// Why a command was not carried out, or not to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The command line, the environment or a file says what cannot be.
    #[error("{0}")]
    Usage(String),
    /// A node refused.
    #[error("{}", .0.text())]
    Refused(Problem),
    /// No node could be reached.
    #[error("no node answers: {0}")]
    Away(String),
    /// Something that this program looked for is not there.
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Failed(String),
    /// The turn rests until somebody answers; what it waits for has been printed.
    #[error("the turn waits for somebody")]
    Waits,
    /// Whoever reads the output has seen enough.
    #[error("the output is closed")]
    Closed,
    /// The credential ended while the command ran.
    #[error("the credential has ended")]
    CredentialEnded,
}

impl CliError {
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::Refused(problem) => problem.exit(),
            Self::NotFound(_) => Exit::NotFound,
            Self::Away(_) | Self::Failed(_) => Exit::Failed,
            Self::Waits => Exit::Waits,
            Self::Closed => Exit::Done,
            Self::CredentialEnded => Exit::Forbidden,
        }
    }

    /// Whether the error is told on standard error.
    pub(crate) fn is_told(&self) -> bool {
        !matches!(self, Self::Waits | Self::Closed)
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Failed(error.to_string()),
        }
    }
}

/// A refusal of a node: `reference/problems.md`.
#[derive(Debug)]
pub(crate) struct Problem {
    pub status: u16,
    pub body: Value,
}

impl Problem {
    /// The last part of its type; empty if the answer was no problem of a node.
    pub(crate) fn name(&self) -> &str {
        let kind = self.body["type"].as_str().unwrap_or_default();
        kind.strip_prefix("/problems/").unwrap_or_default()
    }

    fn exit(&self) -> Exit {
        match (self.name(), self.status) {
            ("agent-missing", _) | (_, 404) => Exit::NotFound,
            (_, 401 | 403) => Exit::Forbidden,
            (_, 409) => Exit::Conflict,
            (_, 400 | 405 | 413 | 422 | 431) => Exit::Usage,
            _ => Exit::Failed,
        }
    }

    fn text(&self) -> String {
        let told = self.body["detail"].as_str().or_else(|| self.body["title"].as_str());
        let mut text = match told {
            Some(detail) => detail.to_owned(),
            None => format!("the answer has the status {}", self.status),
        };
        for member in ["needs", "because", "quota"] {
            if let Some(value) = self.body[member].as_str().filter(|value| !text.contains(value)) {
                text.push_str(&format!(" ({member}: {value})"));
            }
        }
        for mistake in self.body["errors"].as_array().into_iter().flatten() {
            let part = |name: &str| mistake[name].as_str().unwrap_or_default().to_owned();
            let place = [part("tool"), part("field")].join(" ");
            text.push_str(&format!("\n  {}: {}", place.trim(), part("message")));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn exit(status: u16, name: &str) -> Exit {
        let body = json!({"type": format!("/problems/{name}"), "detail": "d"});
        CliError::Refused(Problem { status, body }).exit()
    }

    #[test]
    fn each_refusal_has_its_exit_code() {
        for (status, name, expected) in [
            (404, "not-found", Exit::NotFound),
            (409, "agent-missing", Exit::NotFound),
            (409, "call-not-open", Exit::Conflict),
            (409, "turn-in-flight", Exit::Conflict),
            (409, "conversation-exists", Exit::Conflict),
            (401, "unauthorized", Exit::Forbidden),
            (403, "approval-forbidden", Exit::Forbidden),
            (422, "invalid-request", Exit::Usage),
            (429, "overloaded", Exit::Failed),
            (503, "unavailable", Exit::Failed),
        ] {
            assert_eq!(exit(status, name), expected, "{status} {name}");
        }
        assert_eq!(CliError::from(io::Error::from(io::ErrorKind::BrokenPipe)).exit(), Exit::Done);
    }

    #[test]
    fn a_refused_definition_names_each_mistake() {
        let body = json!({"detail": "refused", "errors": [
            {"tool": "mail", "field": "run", "message": "is missing"},
            {"tool": null, "field": "model", "message": "is unknown"}]});
        let text = Problem { status: 422, body }.text();
        assert_eq!(text, "refused\n  mail run: is missing\n  model: is unknown");
    }
}
