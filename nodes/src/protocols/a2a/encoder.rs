//! Encodes the items of a turn as a task, and as the events of its stream: a pure fold.
//!
//! A text of the model is an artifact, and each piece of it adds a part. What the model thinks and which
//! tools it uses are the agent's own affair; the arguments of a call are told to those who may answer it.

mod questions;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use abide_conversation::event::{TurnEnded, TurnOutcome};
use abide_conversation::{MessageId, Timestamp};
use serde_json::{Value, json};

use super::task::{TaskState, message};
use crate::protocols::feed::{Item, Piece, SuspendedCall};
use crate::protocols::task_id::TaskId;

/// The role of the agent's messages.
const ROLE_AGENT: &str = "ROLE_AGENT";
/// What a client is told whose task waits for answers that it may not give.
const WAITS_FOR_OTHERS: &str = "Waits for an answer that somebody else gives.";

/// What is known of a task before its turn.
#[derive(Clone, Debug)]
pub struct TaskHead {
    pub id: TaskId,
    /// The message that began it, as a client reads it.
    pub message: Option<Value>,
    pub submitted_at: Timestamp,
}

/// Until when a response tells its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TellUntil {
    /// The task is over, or waits for anybody.
    Rest,
    /// The task is over, or asks its caller.
    Question,
    /// The task is over.
    End,
}

/// A task, and what its stream tells.
#[derive(Debug)]
pub struct TaskEncoder {
    head: TaskHead,
    until: TellUntil,
    /// Whether the stream has told the task. What was before is a part of it.
    has_begun: bool,
    state: TaskState,
    /// The parts of the status's message, and its id.
    status_message: Option<(String, Vec<Value>)>,
    changed_at: Timestamp,
    artifacts: Vec<Artifact>,
    /// The calls on which the turn rests.
    waits_for: Vec<SuspendedCall>,
    is_over: bool,
    events: Vec<Value>,
}

/// A text of the model. One that was taken back is empty.
#[derive(Debug)]
struct Artifact {
    id: MessageId,
    text: String,
}

impl TaskEncoder {
    pub fn new(head: TaskHead, until: TellUntil) -> Self {
        let changed_at = head.submitted_at;
        Self {
            head,
            until,
            has_begun: false,
            state: TaskState::Submitted,
            status_message: None,
            changed_at,
            artifacts: Vec::new(),
            waits_for: Vec::new(),
            is_over: false,
            events: Vec::new(),
        }
    }

    /// Whether the response is complete.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Ends the response before its task.
    pub fn finish(&mut self) {
        self.is_over = true;
    }

    /// The task, as far as it is, with at most this many messages of its history.
    pub fn task(&self, history_length: Option<u32>) -> Value {
        let id = &self.head.id;
        let mut task = json!({"id": id.to_string(), "contextId": id.conversation,
            "status": self.status()});
        let artifacts = self.artifacts.iter().filter(|artifact| !artifact.text.is_empty());
        let artifacts: Vec<Value> = artifacts.map(|it| artifact(&it.id, &it.text)).collect();
        if !artifacts.is_empty() {
            task["artifacts"] = json!(artifacts);
        }
        if let Some(message) = self.head.message.as_ref().filter(|_| history_length != Some(0)) {
            task["history"] = json!([message]);
        }
        task
    }

    /// The events of an item, which was made of an event of this time, or of none.
    pub fn item(&mut self, at: Option<Timestamp>, item: &Item) -> Vec<Value> {
        if !self.is_over {
            self.changed_at = at.unwrap_or(self.changed_at);
            self.encode(item);
        }
        std::mem::take(&mut self.events)
    }

    fn encode(&mut self, item: &Item) {
        match item {
            Item::Started { .. } => self.change(TaskState::Working, None),
            Item::Text(piece) => {
                self.go_on();
                self.text(piece);
            }
            Item::Suspended(call) => self.suspend(call),
            Item::Message(_) | Item::Resolved(_) | Item::CallStarted(_) | Item::Result { .. } => {
                self.go_on()
            }
            Item::Refused { message, .. } | Item::Restarted { message } => {
                self.go_on();
                self.void(message);
            }
            Item::CaughtUp => self.begin(),
            Item::Rest(pending) => {
                self.waits_for = pending.clone();
                self.rest();
            }
            Item::End(ended) => self.end(ended),
            Item::Thinking(_)
            | Item::Steered(_)
            | Item::Progress { .. }
            | Item::Ui { .. }
            | Item::Todos(_) => {}
        }
    }

    /// Tells the task as it is.
    fn begin(&mut self) {
        if !std::mem::replace(&mut self.has_begun, true) {
            let task = self.task(None);
            self.events.push(json!({"task": task}));
        }
    }

    fn text(&mut self, piece: &Piece) {
        let at = self.artifacts.iter_mut().find(|artifact| artifact.id == piece.message);
        let appends = piece.place > 0;
        match at {
            Some(artifact) if appends => artifact.text.push_str(&piece.text),
            Some(artifact) => artifact.text.clone_from(&piece.text),
            None => {
                let (id, text) = (piece.message.clone(), piece.text.clone());
                self.artifacts.push(Artifact { id, text });
            }
        }
        self.tell_artifact(&piece.message, &piece.text, appends);
    }

    /// Takes back what was told of a message.
    fn void(&mut self, id: &MessageId) {
        let artifact = self.artifacts.iter_mut().find(|artifact| artifact.id == *id);
        let Some(artifact) = artifact.filter(|artifact| !artifact.text.is_empty()) else { return };
        artifact.text.clear();
        self.tell_artifact(id, "", false);
    }

    fn tell_artifact(&mut self, id: &MessageId, text: &str, appends: bool) {
        if !self.has_begun {
            return;
        }
        let task = &self.head.id;
        let mut update = json!({"taskId": task.to_string(), "contextId": task.conversation,
            "artifact": artifact(id, text)});
        if appends {
            update["append"] = json!(true);
        }
        self.events.push(json!({"artifactUpdate": update}));
    }

    /// Notes a call that waits. One on which the turn rests has other arguments now.
    fn suspend(&mut self, call: &SuspendedCall) {
        let id = call.id();
        let Some(known) = self.waits_for.iter_mut().find(|known| known.id() == id) else { return };
        known.clone_from(call);
        self.rest();
    }

    fn rest(&mut self) {
        let asked: Vec<&SuspendedCall> =
            self.waits_for.iter().filter(|call| call.may_answer).collect();
        let first = self.waits_for.first().map(SuspendedCall::id).unwrap_or_default();
        let id = format!("{}:{first}", self.head.id);
        if asked.is_empty() {
            let parts = vec![json!({"text": WAITS_FOR_OTHERS})];
            self.change(TaskState::Working, Some((id, parts)));
            self.is_over |= self.until == TellUntil::Rest;
        } else {
            let parts = questions::parts(&asked);
            self.change(TaskState::InputRequired, Some((id, parts)));
            self.is_over |= self.until != TellUntil::End;
        }
    }

    /// Notes that the turn rests no longer, if it did.
    fn go_on(&mut self) {
        if !self.waits_for.is_empty() {
            self.waits_for.clear();
            self.change(TaskState::Working, None);
        }
    }

    fn end(&mut self, ended: &TurnEnded) {
        let state = match ended.outcome {
            TurnOutcome::Completed => TaskState::Completed,
            TurnOutcome::Cancelled => TaskState::Canceled,
            TurnOutcome::Halted | TurnOutcome::Failed => TaskState::Failed,
        };
        let reason = match ended.outcome {
            TurnOutcome::Completed => None,
            TurnOutcome::Cancelled | TurnOutcome::Halted | TurnOutcome::Failed => {
                ended.reason.as_ref()
            }
        };
        let message =
            reason.map(|reason| (format!("{}:end", self.head.id), vec![json!({"text": reason})]));
        self.waits_for.clear();
        self.change(state, message);
        // A task that was over before has nothing else to tell.
        self.begin();
        self.is_over = true;
    }

    fn change(&mut self, state: TaskState, message: Option<(String, Vec<Value>)>) {
        self.state = state;
        self.status_message = message;
        if self.has_begun {
            let task = &self.head.id;
            let update = json!({"taskId": task.to_string(), "contextId": task.conversation,
                "status": self.status()});
            self.events.push(json!({"statusUpdate": update}));
        }
    }

    fn status(&self) -> Value {
        let mut status = json!({"state": self.state.name(), "timestamp": self.changed_at});
        if let Some((id, parts)) = &self.status_message {
            status["message"] = message(&self.head.id, ROLE_AGENT, id, parts.clone());
        }
        status
    }
}

fn artifact(id: &MessageId, text: &str) -> Value {
    json!({"artifactId": id, "name": "text", "parts": [{"text": text}]})
}
