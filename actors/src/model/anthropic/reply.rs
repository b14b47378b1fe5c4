//! Decodes a reply of the Messages API from the events of its stream.

mod block;

use std::collections::HashMap;

use abide_conversation::message::{ProviderMessage, StopReason};
use abide_conversation::usage::Usage;
use serde_json::{Map, Value, json};

use self::block::StreamedBlock;
use super::message::{CONTAINER_ITEM, is_provider_run, result_run_id};
use super::tool;
use crate::model::http;
use crate::model::http::{Frame, MAX_REPLY_BYTES, MAX_REPLY_CALLS, error};
use crate::model::{
    CallPiece, ModelError, ModelRequest, ModelToolCall, Provider, ReplyChunk, ReplyEnd, ToolSpec,
};

/// The decoder for one reply.
pub(super) struct AnthropicDecoder {
    model: String,
    tools: Vec<ToolSpec>,
    /// Runs that earlier messages started and whose results may arrive in this one.
    open_runs: HashMap<String, ProviderRun>,
    blocks: Vec<StreamedBlock>,
    call_count: usize,
    call_pieces: Vec<CallPiece>,
    usage: AnthropicUsage,
    stop: Option<String>,
    /// The provider's explanation for a refusal.
    refusal: String,
    container: Option<Value>,
    bytes: usize,
    has_text: bool,
    is_done: bool,
}

/// A run of one of the provider's own tools.
#[derive(Clone)]
struct ProviderRun {
    name: String,
    args: Result<Value, String>,
}

impl AnthropicDecoder {
    pub(super) fn new(request: &ModelRequest) -> Self {
        let verbatim = request.verbatim.values().flat_map(|it| &it.items);
        let run = |item: &Value| {
            let name = item["name"].as_str()?.to_owned();
            Some((
                item["id"].as_str()?.to_owned(),
                ProviderRun { name, args: Ok(item["input"].clone()) },
            ))
        };
        Self {
            model: request.settings.name.clone(),
            tools: request.tools.clone(),
            open_runs: verbatim.filter(|item| is_provider_run(item)).filter_map(run).collect(),
            blocks: Vec::new(),
            call_count: 0,
            call_pieces: Vec::new(),
            usage: AnthropicUsage::default(),
            stop: None,
            refusal: String::new(),
            container: None,
            bytes: 0,
            has_text: false,
            is_done: false,
        }
    }
}

impl http::ReplyDecoder for AnthropicDecoder {
    fn push(&mut self, frame: Frame) -> Result<Vec<ReplyChunk>, ModelError> {
        let event: Map<String, Value> =
            serde_json::from_str(&frame.data).map_err(|_| error::unreadable())?;
        let mut event = Value::Object(event);
        let kind = event["type"].as_str().unwrap_or_default().to_owned();
        match kind.as_str() {
            "message_start" => self.apply_message_fields(&event["message"]),
            "content_block_start" => {
                self.count_bytes(frame.data.len())?;
                return self.begin_block(event["index"].as_u64(), event["content_block"].take());
            }
            "content_block_delta" => {
                let (index, delta) = (event["index"].as_u64(), event["delta"].take());
                return self.apply_delta(index, delta);
            }
            "message_delta" => {
                self.apply_message_fields(&event["delta"]);
                self.usage.merge(&event["usage"]);
            }
            "message_stop" => self.is_done = true,
            "error" => return Err(error::from_stream(&event["error"])),
            // Keep-alives, the ends of blocks, and unknown events.
            _ => {}
        }
        Ok(Vec::new())
    }

    fn take_call_pieces(&mut self) -> Vec<CallPiece> {
        std::mem::take(&mut self.call_pieces)
    }

    fn is_message_complete(&self) -> bool {
        self.is_done || self.stop.is_some()
    }

    fn is_stream_complete(&self) -> bool {
        self.is_done
    }

    fn finish(self: Box<Self>) -> Result<Vec<ReplyChunk>, ModelError> {
        let stop = match self.stop.as_deref() {
            Some("end_turn" | "stop_sequence") => Some(StopReason::End),
            Some("tool_use") => Some(StopReason::ToolCalls),
            Some("max_tokens" | "model_context_window_exceeded") => Some(StopReason::MaxTokens),
            Some("refusal") => Some(StopReason::Refusal),
            Some("pause_turn") => Some(StopReason::Paused),
            Some(_) | None => None,
        };
        if stop == Some(StopReason::Refusal) && !self.has_text && self.call_count == 0 {
            return Err(error::refused(&self.refusal));
        }
        let usage = self.usage.usage();
        let mut chunks = self.call_chunks(stop == Some(StopReason::MaxTokens));
        let verbatim = self.into_verbatim();
        chunks.push(ReplyChunk::Done(ReplyEnd { usage, stop, verbatim }));
        Ok(chunks)
    }
}

impl AnthropicDecoder {
    /// Takes the fields that occur both at the beginning and at the end of a message.
    fn apply_message_fields(&mut self, message: &Value) {
        self.usage.merge(&message["usage"]);
        if let Some(stop) = message["stop_reason"].as_str() {
            self.stop = Some(stop.to_owned());
        }
        if let Some(refusal) = message["stop_details"]["explanation"].as_str() {
            self.refusal = refusal.to_owned();
        }
        if let Some(id) = message["container"]["id"].as_str() {
            self.container = Some(json!({"type": CONTAINER_ITEM, "id": id}));
        }
    }

    fn begin_block(
        &mut self,
        index: Option<u64>,
        block: Value,
    ) -> Result<Vec<ReplyChunk>, ModelError> {
        let Value::Object(block) = block else { return Err(error::unreadable()) };
        let (mut block, chunk) = StreamedBlock::new(index, block);
        self.call_count += usize::from(block.is_call());
        if self.call_count > MAX_REPLY_CALLS {
            return Err(error::too_many_calls(MAX_REPLY_CALLS));
        }
        if block.item["type"] == "tool_use" {
            let index = self.blocks.iter().filter(|block| block.yields_call()).count();
            block.call_index = Some(index);
            let name = block.item["name"].as_str().map(str::to_owned);
            let input = block.item["input"].as_object().filter(|input| !input.is_empty());
            let args_text = input.map_or_else(String::new, |_| block.item["input"].to_string());
            self.call_pieces.push(CallPiece { index, name, args_text });
        }
        self.blocks.push(block);
        Ok(self.note_text(chunk))
    }

    fn apply_delta(
        &mut self,
        index: Option<u64>,
        delta: Value,
    ) -> Result<Vec<ReplyChunk>, ModelError> {
        let at = self.blocks.iter().rposition(|block| block.index == index);
        let Some(block) = at.and_then(|at| self.blocks.get_mut(at)) else {
            return Err(error::unreadable());
        };
        if let (Some(index), Some(text)) = (block.call_index, delta["partial_json"].as_str())
            && !text.is_empty()
        {
            let args_text = text.to_owned();
            self.call_pieces.push(CallPiece { index, name: None, args_text });
        }
        let (bytes, chunk) = block.apply_delta(delta);
        self.count_bytes(bytes)?;
        Ok(self.note_text(chunk))
    }

    fn note_text(&mut self, chunk: Option<ReplyChunk>) -> Vec<ReplyChunk> {
        self.has_text |= matches!(chunk, Some(ReplyChunk::Text(_)));
        chunk.into_iter().collect()
    }

    fn count_bytes(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_REPLY_BYTES { Err(error::too_large()) } else { Ok(()) }
    }

    /// The calls, and the runs whose results have arrived.
    fn call_chunks(&self, cut: bool) -> Vec<ReplyChunk> {
        let mut runs = self.open_runs.clone();
        let mut chunks = Vec::new();
        for block in &self.blocks {
            let field = |name: &str| block.item[name].as_str().unwrap_or_default().to_owned();
            if block.is_call() {
                let call = block.call(cut);
                if is_provider_run(&block.item) {
                    runs.insert(call.id, ProviderRun { name: call.name, args: call.args });
                } else {
                    chunks.push(ReplyChunk::Call(call));
                }
            } else if let Some(id) = result_run_id(&block.item) {
                let undeclared = || ProviderRun { name: field("type"), args: Ok(json!({})) };
                let ProviderRun { name, args } = runs.get(id).cloned().unwrap_or_else(undeclared);
                let name = tool::declared_name(&self.tools, &name);
                let provided = Some(block.item["content"].clone());
                chunks.push(ReplyChunk::Call(ModelToolCall {
                    id: id.to_owned(),
                    name,
                    args,
                    provider_result: provided,
                }));
            }
        }
        chunks
    }

    /// The blocks that can be sent back, if text and calls do not hold as much.
    fn into_verbatim(self) -> Option<ProviderMessage> {
        let needs_verbatim =
            self.blocks.iter().any(StreamedBlock::needs_verbatim) || self.container.is_some();
        let items = self.blocks.into_iter().filter_map(StreamedBlock::into_item);
        needs_verbatim.then(|| ProviderMessage {
            provider: Provider::Anthropic.name().to_owned(),
            model: self.model,
            items: items.chain(self.container).collect(),
        })
    }
}

/// The latest token counts. The provider counts the parts of the input separately, and at the end
/// either repeats what it said at the beginning or omits it.
#[derive(Default)]
struct AnthropicUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
}

impl AnthropicUsage {
    fn merge(&mut self, usage: &Value) {
        let count = |name: &str| usage[name].as_u64();
        self.input_tokens = count("input_tokens").or(self.input_tokens);
        self.output_tokens = count("output_tokens").or(self.output_tokens);
        self.cache_read_input_tokens =
            count("cache_read_input_tokens").or(self.cache_read_input_tokens);
        self.cache_creation_input_tokens =
            count("cache_creation_input_tokens").or(self.cache_creation_input_tokens);
    }

    fn usage(&self) -> Option<Usage> {
        let cached_tokens = self.cache_read_input_tokens.unwrap_or(0);
        let cache_write_tokens = self.cache_creation_input_tokens.unwrap_or(0);
        let uncached = self.input_tokens.or(self.output_tokens.map(|_| 0))?;
        Some(Usage {
            input_tokens: uncached.saturating_add(cached_tokens).saturating_add(cache_write_tokens),
            output_tokens: self.output_tokens.unwrap_or(0),
            cached_tokens,
            cache_write_tokens,
            ..Usage::default()
        })
    }
}
