//! The answer of a node.

use reqwest::{Response, StatusCode};
use serde_json::Value;

use crate::error::{CliError, Problem};

/// The most bytes of an answer; a page of a list and a long conversation have less.
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// A whole answer; the body of one without content is null.
#[derive(Debug)]
pub(crate) struct Answer {
    pub status: StatusCode,
    pub body: Value,
}

impl Answer {
    /// Reads the answer to its end; the error says what is wrong with it.
    pub(super) async fn read(mut response: Response) -> Result<Self, String> {
        let status = response.status();
        let mut bytes = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|error| super::reason(&error))? {
            if bytes.len() + part.len() > MAX_ANSWER_BYTES {
                return Err("the answer is too long".to_owned());
            }
            bytes.extend_from_slice(&part);
        }
        let body = match serde_json::from_slice(&bytes) {
            Ok(body) => body,
            Err(_) if bytes.is_empty() => Value::Null,
            // A gateway answers in HTML, and the operators' health checks in text.
            Err(_) => Value::String(String::from_utf8_lossy(&bytes).into_owned()),
        };
        Ok(Self { status, body })
    }

    /// Whether another node, or the same one in a moment, may do better.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self.status.as_u16(), 502..=504)
    }

    pub(super) fn accepted(self) -> Result<Self, CliError> {
        if self.status.is_success() {
            Ok(self)
        } else {
            let status = self.status.as_u16();
            Err(CliError::Refused(Problem { status, body: self.body }))
        }
    }
}
