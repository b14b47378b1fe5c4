//! One turn as it happens: texts as they are written, calls as lines, questions on the way.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::Value;

use super::Chat;
use crate::commands::conversations::{self, text_of};
use crate::commands::frame_line;
use crate::error::CliError;
use crate::http::{Port, Request};
use crate::printer::Tone;
use crate::stream::{Frame, Stream};

/// What has been printed of the turn.
#[derive(Default)]
struct Progress {
    /// The messages whose text was shown while it was written.
    written: BTreeSet<String>,
    /// The tone of the line that has no end yet.
    open_line: Option<Tone>,
    /// The message that the open line is of.
    message: String,
    /// Whether ^C was typed already.
    is_cancelling: bool,
    /// Whether what waits now is not told again, so that the snapshot alone has it.
    asks_by_snapshot: bool,
}

impl Chat<'_> {
    /// Shows a turn to its end, or until a question is left open. False if whoever types has left.
    pub(super) async fn follow(&mut self, turn: &str, after: u64) -> Result<bool, CliError> {
        self.follow_with(turn, after, Progress::default()).await
    }

    /// Shows a turn that has begun before, as `follow` does, and first asks for what already waits in it.
    pub(super) async fn go_on(&mut self, turn: &str, after: u64) -> Result<bool, CliError> {
        let progress = Progress { asks_by_snapshot: true, ..Progress::default() };
        self.follow_with(turn, after, progress).await
    }

    async fn follow_with(
        &mut self,
        turn: &str,
        after: u64,
        mut progress: Progress,
    ) -> Result<bool, CliError> {
        let session = self.session;
        let conversation = self.conversation.clone();
        let mut stream = Stream::new(&session.http, &conversation, Some(after), true);
        loop {
            let frame = tokio::select! {
                frame = stream.next() => frame?,
                _ = self.interrupts.recv() => {
                    self.end_line(&mut progress)?;
                    if std::mem::replace(&mut progress.is_cancelling, true) {
                        return Ok(false);
                    }
                    self.cancel().await?;
                    continue;
                }
            };
            let Some(frame) = frame else { return Ok(true) };
            if !self.show(&frame, &mut progress).await? {
                return Ok(true);
            }
            if ends(&frame, turn) {
                return Ok(true);
            }
        }
    }

    async fn cancel(&self) -> Result<(), CliError> {
        self.session.printer.note("cancelling; ^C again leaves");
        let path = conversations::path(&self.conversation, &["cancel"]);
        let request = Request::change(Method::POST, Port::Public, &path);
        self.tell(self.session.http.send(&request).await.map(|_| ()))
    }

    /// Shows a frame, and asks what it asks. False if a question was left open.
    async fn show(&mut self, frame: &Frame, progress: &mut Progress) -> Result<bool, CliError> {
        let printer = &self.session.printer;
        let data = &frame.data;
        match frame.event.as_str() {
            "text_delta" | "thinking_delta" => {
                let is_text = frame.event == "text_delta";
                let tone = if is_text { Tone::Plain } else { Tone::Dim };
                self.write(data, tone, progress)?;
            }
            "message_completed" => {
                self.end_line(progress)?;
                let id = data["message"]["id"].as_str().unwrap_or_default();
                let text = text_of(&data["message"]);
                if !progress.written.contains(id) && !text.is_empty() {
                    printer.line(&text)?;
                }
            }
            "snapshot" => {
                let own = if progress.asks_by_snapshot { "pending" } else { "" };
                progress.asks_by_snapshot = false;
                let lists = [own, "child_pending"].map(|list| data[list].as_array());
                let calls: Vec<Value> = lists.into_iter().flatten().flatten().cloned().collect();
                for call in calls {
                    if !self.ask(&call).await? {
                        return Ok(false);
                    }
                }
            }
            "suspended" | "child_suspended" => {
                self.end_line(progress)?;
                return self.ask(data).await;
            }
            "tool_call_started" | "tool_call_resolved" | "tool_call_errored" | "tool_progress"
            | "message_refused" | "turn_cancelled" | "turn_halted" | "turn_failed" => {
                self.end_line(progress)?;
                let (line, tone) = frame_line::line(printer, frame);
                printer.toned_line(&line, tone)?;
            }
            _ => {}
        }
        Ok(true)
    }

    /// Writes the next piece of a message.
    fn write(&self, data: &Value, tone: Tone, progress: &mut Progress) -> Result<(), CliError> {
        let printer = &self.session.printer;
        let id = data["message_id"].as_str().unwrap_or_default();
        if progress.open_line.is_some() && progress.message != id {
            self.end_line(progress)?;
            // Its node died: what stands above is no part of the conversation.
            printer.toned_line("(the message is begun anew)", Tone::Dim)?;
        }
        if progress.open_line.is_some_and(|open| open != tone) {
            printer.line("")?;
        }
        progress.open_line = Some(tone);
        id.clone_into(&mut progress.message);
        progress.written.insert(id.to_owned());
        printer.part(data["text"].as_str().unwrap_or_default(), tone)
    }

    fn end_line(&self, progress: &mut Progress) -> Result<(), CliError> {
        match progress.open_line.take() {
            Some(_) => self.session.printer.line(""),
            None => Ok(()),
        }
    }
}

/// Whether the frame is the end of this turn.
fn ends(frame: &Frame, turn: &str) -> bool {
    let is_end = matches!(
        frame.event.as_str(),
        "turn_completed" | "turn_cancelled" | "turn_halted" | "turn_failed"
    );
    is_end && frame.data["turn_id"] == turn
}
