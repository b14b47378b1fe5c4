//! Encodes the items of a turn as chat completions, streamed or whole: a pure fold.

mod streamed_text;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use abide_conversation::event::{SuspensionKind, TurnEnded, TurnOutcome};
use abide_conversation::message::StopReason;
use abide_conversation::usage::Usage;
use abide_conversation::{AgentName, Seq, Timestamp, TurnId};
use serde::Serialize;
use serde_json::{Value, json};

use super::items::answer_id;
use crate::protocols::feed::{Item, MessageItem, Piece, SuspendedCall};
use streamed_text::{OtherText, StreamedText};

/// Why a stream ends whose client has text of a message that another node has begun anew.
const BEGUN_ANEW: &str = "the node that wrote the message has died, and another writes it anew in \
    other words: the text so far is void";

/// What a completion is of, and what its client can do.
#[derive(Clone, Debug)]
pub struct ChatHead {
    pub turn: TurnId,
    /// The event that began it: a message, or an answer.
    pub from: Seq,
    pub model: AgentName,
    pub created_at: Timestamp,
    /// The tools that the client executes.
    pub tools: BTreeSet<String>,
    /// Where people answer what this protocol cannot ask.
    pub inbox: String,
    /// Whether the completion goes on while the turn waits for somebody else.
    pub waits: bool,
    /// Whether the last chunk has the usage.
    pub with_usage: bool,
    /// Whether the client reads the chunks as they come, so that none can be taken back.
    pub streams: bool,
}

/// How a completion ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChatEnd {
    Finished,
    /// The turn failed, was halted or was cancelled, or its text cannot be told in a stream, for this
    /// reason.
    Failed {
        code: &'static str,
        reason: String,
    },
}

/// A piece of a completion. A model writes many, so it is no tree of values.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChatChunk {
    id: Arc<str>,
    object: &'static str,
    created: i64,
    model: AgentName,
    /// None in the chunk with the usage.
    choices: Vec<ChatChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct ChatChoice {
    index: usize,
    delta: ChatDelta,
    logprobs: (),
    finish_reason: Option<&'static str>,
}

/// What a chunk adds to the message; nothing in the last one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct ChatDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Value>,
}

/// The chunks of one completion, and its message as a whole.
#[derive(Debug)]
pub struct ChatEncoder {
    id: Arc<str>,
    head: ChatHead,
    has_begun: bool,
    streamed: StreamedText,
    /// The texts of the messages that are complete.
    texts: Vec<String>,
    thinking: String,
    tool_calls: Vec<Value>,
    usage: Usage,
    finish: &'static str,
    end: Option<ChatEnd>,
    chunks: Vec<ChatChunk>,
}

impl ChatEncoder {
    /// The encoder of a completion. The feed's items begin earlier if `is_primed`.
    pub fn new(head: ChatHead, is_primed: bool) -> Self {
        Self {
            id: format!("chatcmpl-{}.{}", head.from, head.turn).into(),
            head,
            has_begun: !is_primed,
            streamed: StreamedText::default(),
            texts: Vec::new(),
            thinking: String::new(),
            tool_calls: Vec::new(),
            usage: Usage::default(),
            finish: "stop",
            end: None,
            chunks: Vec::new(),
        }
    }

    /// How the completion ended; `None` while it goes on.
    pub fn end(&self) -> Option<&ChatEnd> {
        self.end.as_ref()
    }

    /// The first chunk.
    pub fn begin(&self) -> ChatChunk {
        let (role, content) = (Some("assistant"), Some(String::new()));
        self.chunk(ChatDelta { role, content, ..ChatDelta::default() }, None)
    }

    /// The chunks of an item, which was made of the event of this seq, or of none.
    pub fn item(&mut self, seq: Option<Seq>, item: &Item) -> Vec<ChatChunk> {
        let is_own = seq.is_some_and(|seq| seq >= self.head.from);
        self.has_begun |= is_own || matches!(item, Item::CaughtUp);
        if self.has_begun && self.end.is_none() {
            self.encode(item);
        }
        std::mem::take(&mut self.chunks)
    }

    /// The last chunks of a completion that has finished.
    pub fn finish(&mut self) -> Vec<ChatChunk> {
        let last = self.chunk(ChatDelta::default(), Some(self.finish));
        let usage = Some(usage_of(&self.usage));
        let with_usage = ChatChunk { choices: Vec::new(), usage, ..last.clone() };
        [last].into_iter().chain(self.head.with_usage.then_some(with_usage)).collect()
    }

    /// The completion as a whole.
    pub fn completion(&self) -> Value {
        let text = self.texts.join("\n\n");
        let mut message = json!({"role": "assistant", "content": text, "refusal": null,
            "annotations": []});
        if text.is_empty() && !self.tool_calls.is_empty() {
            message["content"] = Value::Null;
        }
        if !self.thinking.is_empty() {
            message["reasoning_content"] = json!(self.thinking);
        }
        if !self.tool_calls.is_empty() {
            message["tool_calls"] = json!(self.tool_calls);
        }
        let choice = json!({"index": 0, "message": message, "logprobs": null,
            "finish_reason": self.finish});
        json!({"id": &*self.id, "object": "chat.completion",
            "created": self.head.created_at.as_second(), "model": self.head.model,
            "choices": [choice], "usage": usage_of(&self.usage)})
    }

    fn chunk(&self, delta: ChatDelta, finish_reason: Option<&'static str>) -> ChatChunk {
        ChatChunk {
            id: self.id.clone(),
            object: "chat.completion.chunk",
            created: self.head.created_at.as_second(),
            model: self.head.model.clone(),
            choices: vec![ChatChoice { index: 0, delta, logprobs: (), finish_reason }],
            usage: None,
        }
    }

    fn push(&mut self, delta: ChatDelta) {
        self.chunks.push(self.chunk(delta, None));
    }

    fn push_content(&mut self, content: String) {
        self.push(ChatDelta { content: Some(content), ..ChatDelta::default() });
    }

    fn encode(&mut self, item: &Item) {
        match item {
            Item::Thinking(piece) => {
                let reasoning_content = Some(piece.text.clone());
                self.push(ChatDelta { reasoning_content, ..ChatDelta::default() });
            }
            Item::Text(piece) => self.text(piece),
            Item::Message(message) => self.message(message),
            Item::Rest(pending) => self.rest(pending),
            Item::End(ended) => self.turn_ended(ended),
            Item::Restarted { message } if self.head.streams => self.streamed.begin_anew(message),
            Item::Refused { .. } => self.streamed.refuse(),
            // The protocol cannot take text back, and shows nothing of the server's calls.
            Item::Restarted { .. }
            | Item::Started { .. }
            | Item::Steered(_)
            | Item::CallStarted(_)
            | Item::Suspended(_)
            | Item::Resolved(_)
            | Item::Progress { .. }
            | Item::Ui { .. }
            | Item::Todos(_)
            | Item::Result { .. }
            | Item::CaughtUp => {}
        }
    }

    fn text(&mut self, piece: &Piece) {
        match self.streamed.add(&piece.message, &piece.text) {
            Ok(new) if new.is_empty() => {}
            Ok(new) => self.push_content(new),
            Err(OtherText) => self.break_off(),
        }
    }

    /// Ends a stream whose client has text that is void. The turn goes on without it.
    fn break_off(&mut self) {
        self.end = Some(ChatEnd::Failed { code: "unavailable", reason: BEGUN_ANEW.to_owned() });
    }

    fn message(&mut self, message: &MessageItem) {
        if self.streamed.end() == Err(OtherText) {
            return self.break_off();
        }
        let assistant = &message.assistant;
        self.usage += assistant.usage.unwrap_or_default();
        let reasoning = assistant.message.content.iter().filter(|it| it["type"] == "reasoning");
        self.thinking.extend(reasoning.filter_map(|block| block["text"].as_str()));
        let text = assistant.message.text();
        if !text.is_empty() {
            self.texts.push(text);
        }
        self.finish = match assistant.stop {
            Some(StopReason::MaxTokens) => "length",
            Some(StopReason::Refusal) => "content_filter",
            Some(StopReason::End | StopReason::ToolCalls | StopReason::Paused) | None => "stop",
        };
    }

    /// Ends the completion if its client has something to do, or people have and nobody waits for them.
    fn rest(&mut self, pending: &[SuspendedCall]) {
        let is_own = |call: &&SuspendedCall| {
            let is_result = call.kind != SuspensionKind::Approval;
            is_result && call.may_answer && self.head.tools.contains(&call.tool)
        };
        let own: Vec<&SuspendedCall> = pending.iter().filter(is_own).collect();
        if !own.is_empty() {
            return self.call_tools(&own);
        }
        if self.head.waits {
            return;
        }
        let questions = pending.iter().map(|call| match call.message.trim() {
            "" => format!("{} {}", call.tool, call.args),
            message => message.to_owned(),
        });
        let questions: Vec<String> = questions.collect();
        let text = format!("[waiting] {} ({})", questions.join(" · "), self.head.inbox);
        let blank_line = if self.streamed.has_begun() { "\n\n" } else { "" };
        self.push_content(format!("{blank_line}{text}"));
        self.texts.push(text);
        self.finish = "stop";
        self.end = Some(ChatEnd::Finished);
    }

    fn call_tools(&mut self, calls: &[&SuspendedCall]) {
        let tool_call = |call: &&SuspendedCall| {
            let id = answer_id(&call.call, call.suspension, call.executor);
            json!({"id": id, "type": "function",
                "function": {"name": call.tool, "arguments": call.args.to_string()}})
        };
        self.tool_calls = calls.iter().map(tool_call).collect();
        let mut indexed = self.tool_calls.clone();
        for (index, call) in indexed.iter_mut().enumerate() {
            call["index"] = json!(index);
        }
        self.push(ChatDelta { tool_calls: indexed, ..ChatDelta::default() });
        self.finish = "tool_calls";
        self.end = Some(ChatEnd::Finished);
    }

    fn turn_ended(&mut self, ended: &TurnEnded) {
        let failed = |code: &'static str| {
            let reason = ended.reason.clone().unwrap_or_else(|| code.replace('_', " "));
            ChatEnd::Failed { code, reason }
        };
        self.end = Some(match ended.outcome {
            TurnOutcome::Completed => ChatEnd::Finished,
            TurnOutcome::Cancelled => failed("turn_cancelled"),
            TurnOutcome::Halted => failed("turn_halted"),
            TurnOutcome::Failed => failed("turn_failed"),
        });
    }
}

/// Usage in the words of Chat Completions.
fn usage_of(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.tokens(),
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    })
}
