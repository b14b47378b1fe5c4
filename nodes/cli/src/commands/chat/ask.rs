//! Questions and approvals within a chat.

use serde_json::{Value, json};

use super::Chat;
use super::input::Typed;
use crate::call_address::CallAddress;
use crate::commands::{pending_line, resolve};
use crate::error::CliError;
use crate::form;
use crate::printer::{Tone, cell};

impl Chat<'_> {
    /// Asks for the answer to a call that waits, and sends it. False if it is left open.
    pub(super) async fn ask(&mut self, call: &Value) -> Result<bool, CliError> {
        let address = CallAddress::of(call, &self.conversation);
        let key = format!("{}/{}", address.short(), call["suspension"]);
        if !self.asked_for.insert(key) {
            return Ok(true);
        }
        let printer = &self.session.printer;
        let [kind, tool] = ["kind", "tool"].map(|name| cell(&call[name]));
        let until = printer.time.show(&cell(&call["expires_at"]));
        printer.toned_line(&format!("? {kind} of {tool}, ends {until}"), Tone::Asking)?;
        printer.line(&pending_line::question(call))?;
        printer.toned_line(&cell(&call["args"]), Tone::Dim)?;
        loop {
            let Some(body) = self.answer(call).await? else {
                for command in pending_line::commands(&kind, &address.short()) {
                    self.session.printer.toned_line(&format!("  {command}"), Tone::Dim)?;
                }
                return Ok(false);
            };
            match resolve::send(self.session, &address, body).await {
                Ok(_) => return Ok(true),
                // Another answer may fit.
                Err(CliError::Refused(problem)) if problem.status == 422 => {
                    self.tell(Err(CliError::Refused(problem)))?;
                }
                // Somebody was quicker, it has expired, or somebody else is asked.
                Err(error) => {
                    self.tell(Err(error))?;
                    return Ok(true);
                }
            }
        }
    }

    /// What was answered, as the body of a resolution; `None` if nothing was.
    async fn answer(&mut self, call: &Value) -> Result<Option<Value>, CliError> {
        if self.input.is_terminal() {
            return match form::answer(call) {
                Ok(body) => Ok(Some(body)),
                Err(CliError::Failed(_)) => Ok(None),
                Err(error) => Err(error),
            };
        }
        loop {
            let text = match self.input.line("", &mut self.interrupts).await? {
                Typed::Line(text) if !text.trim().is_empty() => text,
                Typed::Line(_) | Typed::Interrupt | Typed::End => return Ok(None),
            };
            match read(call, &text) {
                Some(body) => return Ok(Some(body)),
                None => {
                    self.session.printer.note("y, n WHY, or JSON; an empty line leaves it open")
                }
            }
        }
    }
}

/// A line as an answer: `y` or `n WHY` to an approval, a value to a question.
fn read(call: &Value, line: &str) -> Option<Value> {
    let line = line.trim();
    if call["kind"] == "approval" {
        let (word, reason) = line.split_once(' ').unwrap_or((line, ""));
        return match word.to_ascii_lowercase().as_str() {
            "y" | "yes" => Some(json!({"approved": true})),
            "n" | "no" if reason.is_empty() => Some(json!({"approved": false})),
            "n" | "no" => Some(json!({"approved": false, "reason": reason.trim()})),
            _ => None,
        };
    }
    let result = match serde_json::from_str::<Value>(line) {
        Ok(value) if value.is_string() || !form::is_text(&call["answer_schema"]) => value,
        Ok(_) | Err(_) if form::is_text(&call["answer_schema"]) => json!(line),
        Ok(value) => value,
        Err(_) => return None,
    };
    Some(json!({"result": result}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_answers_an_approval_or_a_question() {
        let approval = json!({"kind": "approval"});
        assert_eq!(read(&approval, "y"), Some(json!({"approved": true})));
        let denied = json!({"approved": false, "reason": "not today"});
        assert_eq!(read(&approval, "no not today"), Some(denied));
        assert_eq!(read(&approval, "perhaps"), None);
        let text = json!({"kind": "elicitation", "answer_schema": {"type": "string"}});
        for (line, expected) in [("window", "window"), ("\"window\"", "window"), ("12", "12")] {
            assert_eq!(read(&text, line), Some(json!({"result": expected})));
        }
        let any = json!({"kind": "elicitation"});
        assert_eq!(read(&any, "{\"a\": 1}"), Some(json!({"result": {"a": 1}})));
        assert_eq!(read(&any, "{"), None);
    }
}
