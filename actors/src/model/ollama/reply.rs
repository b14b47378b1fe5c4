//! A reply, collected from the lines of its stream.

use abide_conversation::message::{ProviderMessage, StopReason, Usage};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::PROVIDER;
use crate::model::wire::{self, CALLS, Frame, REPLY, failure};
use crate::model::{ModelError, ModelToolCall, ReplyChunk, ReplyEnd, Request};

/// What has come so far of one reply.
#[derive(Debug, Default)]
pub(super) struct Reply {
    model: String,
    thinking: String,
    calls: Vec<ModelToolCall>,
    usage: Option<Usage>,
    reason: Option<String>,
    bytes: usize,
    done: bool,
}

impl Reply {
    pub(super) fn new(request: &Request) -> Self {
        Self { model: request.settings.name.clone(), ..Self::default() }
    }

    fn count(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.bytes += bytes;
        if self.bytes > REPLY { Err(failure::too_large()) } else { Ok(()) }
    }

    /// Calls come whole, often without an id.
    fn call(&mut self, made: Made<'_>) -> Result<(), ModelError> {
        let function = made.function.unwrap_or_default();
        let args = function.arguments.map_or("", RawValue::get);
        // Some models write their arguments as a text of JSON.
        let args = serde_json::from_str(args).unwrap_or_else(|_| args.to_owned());
        let (id, name) = (made.id.unwrap_or_default(), function.name.unwrap_or_default());
        self.count(id.len() + name.len() + args.len())?;
        if self.calls.len() == CALLS {
            return Err(failure::too_many_calls(CALLS));
        }
        self.calls.push(ModelToolCall::collected(id, name, args, false));
        Ok(())
    }
}

impl wire::Reply for Reply {
    fn take(&mut self, frame: Frame) -> Result<Vec<ReplyChunk>, ModelError> {
        let line: Line<'_> = serde_json::from_str(&frame.data).map_err(|_| failure::garbled())?;
        if let Some(error) = line.error {
            return Err(failure::in_stream(&error));
        }
        let said = line.message.unwrap_or_default();
        let mut parts = Vec::new();
        if let Some(thinking) = said.thinking.filter(|text| !text.is_empty()) {
            self.count(thinking.len())?;
            self.thinking.push_str(&thinking);
            parts.push(ReplyChunk::Thinking(thinking));
        }
        if let Some(text) = said.content.filter(|text| !text.is_empty()) {
            self.count(text.len())?;
            parts.push(ReplyChunk::Text(text));
        }
        for made in said.tool_calls.unwrap_or_default() {
            self.call(made)?;
        }
        if line.done == Some(true) {
            let known = line.prompt_eval_count.is_some() || line.eval_count.is_some();
            self.usage = known.then(|| Usage {
                input_tokens: line.prompt_eval_count.unwrap_or(0),
                output_tokens: line.eval_count.unwrap_or(0),
                ..Usage::default()
            });
            self.reason = line.done_reason;
            self.done = true;
        }
        Ok(parts)
    }

    fn finished(&self) -> bool {
        self.done
    }

    fn done(&self) -> bool {
        self.done
    }

    fn end(self: Box<Self>) -> Result<Vec<ReplyChunk>, ModelError> {
        let Self { model, thinking, calls, usage, reason, .. } = *self;
        let stop = match reason.as_deref() {
            Some("stop") | None if !calls.is_empty() => Some(StopReason::ToolCalls),
            Some("stop") => Some(StopReason::End),
            Some("length") => Some(StopReason::MaxTokens),
            Some(_) | None => None,
        };
        // Models are trained to read, with the results, why they called; later no more.
        let read_again = !thinking.is_empty() && !calls.is_empty();
        let verbatim = read_again.then(|| ProviderMessage {
            provider: PROVIDER.to_owned(),
            model,
            items: vec![json!({"role": "assistant", "thinking": thinking})],
        });
        let done = ReplyChunk::Done(ReplyEnd { usage, stop, verbatim });
        Ok(calls.into_iter().map(ReplyChunk::Call).chain([done]).collect())
    }
}

#[derive(Deserialize)]
struct Line<'a> {
    error: Option<Value>,
    #[serde(borrow)]
    message: Option<Said<'a>>,
    done: Option<bool>,
    done_reason: Option<String>,
    prompt_eval_count: Option<u64>,
    eval_count: Option<u64>,
}

#[derive(Default, Deserialize)]
struct Said<'a> {
    content: Option<String>,
    thinking: Option<String>,
    #[serde(borrow)]
    tool_calls: Option<Vec<Made<'a>>>,
}

#[derive(Deserialize)]
struct Made<'a> {
    id: Option<String>,
    #[serde(borrow)]
    function: Option<Function<'a>>,
}

/// The arguments are read by themselves, since a value would round their large numbers.
#[derive(Default, Deserialize)]
struct Function<'a> {
    name: Option<String>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}
