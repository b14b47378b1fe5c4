//! A reply of the messages format, collected from the events of its stream.

mod block;

use std::collections::HashMap;

use abide_conversation::message::{ProviderMessage, StopReason, Usage};
use serde_json::{Map, Value, json};

use self::block::Block;
use super::said::{CONTAINER, is_run, run_of};
use super::tool;
use crate::model::wire::{self, CALLS, Frame, REPLY, failure};
use crate::model::{ModelError, ModelToolCall, Provider, ReplyChunk, ReplyEnd, Request, ToolSpec};

/// What has come so far of one reply.
pub(super) struct Reply {
    model: String,
    tools: Vec<ToolSpec>,
    /// Runs that earlier messages have begun and whose results may come now.
    begun: HashMap<String, Run>,
    blocks: Vec<Block>,
    calls: usize,
    tokens: Tokens,
    stop: Option<String>,
    /// The provider's word for why it would not answer.
    why: String,
    container: Option<Value>,
    bytes: usize,
    spoke: bool,
    done: bool,
}

/// A run of one of the provider's own tools.
#[derive(Clone)]
struct Run {
    name: String,
    args: Result<Value, String>,
}

impl Reply {
    pub(super) fn new(request: &Request) -> Self {
        let verbatim = request.verbatim.values().flat_map(|it| &it.items);
        let run = |item: &Value| {
            let name = item["name"].as_str()?.to_owned();
            Some((item["id"].as_str()?.to_owned(), Run { name, args: Ok(item["input"].clone()) }))
        };
        Self {
            model: request.settings.name.clone(),
            tools: request.tools.clone(),
            begun: verbatim.filter(|item| is_run(item)).filter_map(run).collect(),
            blocks: Vec::new(),
            calls: 0,
            tokens: Tokens::default(),
            stop: None,
            why: String::new(),
            container: None,
            bytes: 0,
            spoke: false,
            done: false,
        }
    }
}

impl wire::Reply for Reply {
    fn take(&mut self, frame: Frame) -> Result<Vec<ReplyChunk>, ModelError> {
        let event: Map<String, Value> =
            serde_json::from_str(&frame.data).map_err(|_| failure::garbled())?;
        let mut event = Value::Object(event);
        let kind = event["type"].as_str().unwrap_or_default().to_owned();
        match kind.as_str() {
            "message_start" => self.heard(&event["message"]),
            "content_block_start" => {
                self.count(frame.data.len())?;
                return self.begin(event["index"].as_u64(), event["content_block"].take());
            }
            "content_block_delta" => {
                let (index, delta) = (event["index"].as_u64(), event["delta"].take());
                return self.delta(index, delta);
            }
            "message_delta" => {
                self.heard(&event["delta"]);
                self.tokens.add(&event["usage"]);
            }
            "message_stop" => self.done = true,
            "error" => return Err(failure::in_stream(&event["error"])),
            // What keeps the connection open, ends a block, or is new.
            _ => {}
        }
        Ok(Vec::new())
    }

    fn finished(&self) -> bool {
        self.done || self.stop.is_some()
    }

    fn done(&self) -> bool {
        self.done
    }

    fn end(self: Box<Self>) -> Result<Vec<ReplyChunk>, ModelError> {
        let stop = match self.stop.as_deref() {
            Some("end_turn" | "stop_sequence") => Some(StopReason::End),
            Some("tool_use") => Some(StopReason::ToolCalls),
            Some("max_tokens" | "model_context_window_exceeded") => Some(StopReason::MaxTokens),
            Some("refusal") => Some(StopReason::Refusal),
            Some("pause_turn") => Some(StopReason::Paused),
            Some(_) | None => None,
        };
        if stop == Some(StopReason::Refusal) && !self.spoke && self.calls == 0 {
            return Err(failure::refused(&self.why));
        }
        let usage = self.tokens.usage();
        let mut parts = self.called(stop == Some(StopReason::MaxTokens));
        let verbatim = self.verbatim();
        parts.push(ReplyChunk::Done(ReplyEnd { usage, stop, verbatim }));
        Ok(parts)
    }
}

impl Reply {
    /// What the beginning and the end of a message say of it.
    fn heard(&mut self, message: &Value) {
        self.tokens.add(&message["usage"]);
        if let Some(stop) = message["stop_reason"].as_str() {
            self.stop = Some(stop.to_owned());
        }
        if let Some(why) = message["stop_details"]["explanation"].as_str() {
            self.why = why.to_owned();
        }
        if let Some(id) = message["container"]["id"].as_str() {
            self.container = Some(json!({"type": CONTAINER, "id": id}));
        }
    }

    fn begin(&mut self, index: Option<u64>, block: Value) -> Result<Vec<ReplyChunk>, ModelError> {
        let Value::Object(block) = block else { return Err(failure::garbled()) };
        let (block, part) = Block::new(index, block);
        self.calls += usize::from(block.is_call());
        if self.calls > CALLS {
            return Err(failure::too_many_calls(CALLS));
        }
        self.blocks.push(block);
        Ok(self.spoken(part))
    }

    fn delta(&mut self, index: Option<u64>, delta: Value) -> Result<Vec<ReplyChunk>, ModelError> {
        let at = self.blocks.iter().rposition(|block| block.index == index);
        let Some(block) = at.and_then(|at| self.blocks.get_mut(at)) else {
            return Err(failure::garbled());
        };
        let (bytes, part) = block.add(delta);
        self.count(bytes)?;
        Ok(self.spoken(part))
    }

    fn spoken(&mut self, part: Option<ReplyChunk>) -> Vec<ReplyChunk> {
        self.spoke |= matches!(part, Some(ReplyChunk::Text(_)));
        part.into_iter().collect()
    }

    fn count(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > REPLY { Err(failure::too_large()) } else { Ok(()) }
    }

    /// The calls, and the runs whose results have come.
    fn called(&self, cut: bool) -> Vec<ReplyChunk> {
        let mut begun = self.begun.clone();
        let mut parts = Vec::new();
        for block in &self.blocks {
            let field = |name: &str| block.item[name].as_str().unwrap_or_default().to_owned();
            if block.is_call() {
                let call = block.call(cut);
                match is_run(&block.item) {
                    true => drop(begun.insert(call.id, Run { name: call.name, args: call.args })),
                    false => parts.push(ReplyChunk::Call(call)),
                }
            } else if let Some(id) = run_of(&block.item) {
                let unknown = || Run { name: field("type"), args: Ok(json!({})) };
                let Run { name, args } = begun.get(id).cloned().unwrap_or_else(unknown);
                let name = tool::known(&self.tools, &name);
                let provided = Some(block.item["content"].clone());
                parts.push(ReplyChunk::Call(ModelToolCall {
                    id: id.to_owned(),
                    name,
                    args,
                    provided,
                }));
            }
        }
        parts
    }

    /// The blocks that can go back, if the text and the calls do not say as much.
    fn verbatim(self) -> Option<ProviderMessage> {
        let lost = self.blocks.iter().any(Block::says_more) || self.container.is_some();
        let items = self.blocks.into_iter().filter_map(Block::item);
        lost.then(|| ProviderMessage {
            provider: Provider::Anthropic.name().to_owned(),
            model: self.model,
            items: items.chain(self.container).collect(),
        })
    }
}

/// What was counted last; the provider counts the parts of the input apart, and says again at the
/// end what it said at the beginning, or leaves it out.
#[derive(Default)]
struct Tokens {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
}

impl Tokens {
    fn add(&mut self, usage: &Value) {
        let said = |name: &str| usage[name].as_u64();
        self.input_tokens = said("input_tokens").or(self.input_tokens);
        self.output_tokens = said("output_tokens").or(self.output_tokens);
        self.cache_read_input_tokens =
            said("cache_read_input_tokens").or(self.cache_read_input_tokens);
        self.cache_creation_input_tokens =
            said("cache_creation_input_tokens").or(self.cache_creation_input_tokens);
    }

    fn usage(&self) -> Option<Usage> {
        let cached_tokens = self.cache_read_input_tokens.unwrap_or(0);
        let cache_write_tokens = self.cache_creation_input_tokens.unwrap_or(0);
        let fresh = self.input_tokens.or(self.output_tokens.map(|_| 0))?;
        Some(Usage {
            input_tokens: fresh.saturating_add(cached_tokens).saturating_add(cache_write_tokens),
            output_tokens: self.output_tokens.unwrap_or(0),
            cached_tokens,
            cache_write_tokens,
            ..Usage::default()
        })
    }
}
