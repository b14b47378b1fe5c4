//! A content block of a reply, built from its deltas.

use serde_json::{Map, Value, json};

use super::super::message::{is_provider_run, result_run_id};
use crate::model::{ModelToolCall, ReplyChunk};

/// Makes a chunk of a text.
type ToChunk = fn(String) -> ReplyChunk;

/// A block, in the form in which it is sent back.
pub(super) struct StreamedBlock {
    pub(super) index: Option<u64>,
    pub(super) item: Value,
    /// A call's arguments, if they are streamed as text.
    args: Option<String>,
    /// The position of one of our calls among those of the reply.
    pub(super) call_index: Option<usize>,
}

impl StreamedBlock {
    /// A block as it starts, and the chunk that it already contains.
    pub(super) fn new(index: Option<u64>, block: Map<String, Value>) -> (Self, Option<ReplyChunk>) {
        let item = Value::Object(block);
        let chunk = match item["type"].as_str() {
            Some("text") => text_field(&item, "text").map(ReplyChunk::Text),
            Some("thinking") => text_field(&item, "thinking").map(ReplyChunk::Thinking),
            _ => None,
        };
        (Self { index, item, args: None, call_index: None }, chunk)
    }

    /// Applies a delta, and returns its size in bytes and its chunk.
    pub(super) fn apply_delta(&mut self, delta: Value) -> (usize, Option<ReplyChunk>) {
        let (field, chunk): (_, Option<ToChunk>) = match delta["type"].as_str() {
            Some("text_delta") => ("text", Some(ReplyChunk::Text)),
            Some("thinking_delta") => ("thinking", Some(ReplyChunk::Thinking)),
            Some("signature_delta") => ("signature", None),
            Some("input_json_delta") => {
                let text = delta["partial_json"].as_str().unwrap_or_default();
                self.args.get_or_insert_default().push_str(text);
                return (text.len(), None);
            }
            Some("citations_delta") => return (self.add_citation(delta), None),
            _ => return (0, None),
        };
        let Some(added) = text_field(&delta, field) else { return (0, None) };
        if let Value::Object(item) = &mut self.item {
            match item.get_mut(field) {
                Some(Value::String(text)) => text.push_str(&added),
                Some(_) | None => drop(item.insert(field.to_owned(), added.as_str().into())),
            }
        }
        (added.len(), chunk.map(|chunk| chunk(added)))
    }

    fn add_citation(&mut self, mut delta: Value) -> usize {
        let citation = delta["citation"].take();
        let bytes = citation.to_string().len();
        if let Value::Object(item) = &mut self.item {
            match item.get_mut("citations") {
                Some(Value::Array(citations)) => citations.push(citation),
                Some(_) | None => drop(item.insert("citations".to_owned(), json!([citation]))),
            }
        }
        bytes
    }

    /// Whether the block is one of our calls, or a run of the provider's that has its result.
    pub(super) fn yields_call(&self) -> bool {
        match result_run_id(&self.item) {
            Some(_) => !self.is_call(),
            None => self.item["type"] == "tool_use",
        }
    }

    pub(super) fn is_call(&self) -> bool {
        self.item["type"] == "tool_use" || is_provider_run(&self.item)
    }

    /// The call; `cut` says that the message was cut short.
    pub(super) fn call(&self, cut: bool) -> ModelToolCall {
        let field = |name: &str| self.item[name].as_str().unwrap_or_default().to_owned();
        let (id, name) = (field("id"), field("name"));
        let input = self.item["input"].as_object().filter(|input| !input.is_empty());
        match (&self.args, input) {
            (None, Some(input)) => {
                ModelToolCall { id, name, args: Ok(input.clone().into()), provider_result: None }
            }
            (args, _) => ModelToolCall::from_text(id, name, args.clone().unwrap_or_default(), cut),
        }
    }

    /// Whether the block holds more than its text, or than its call's name and arguments.
    pub(super) fn needs_verbatim(&self) -> bool {
        match self.item["type"].as_str() {
            Some("text") => self.item["citations"].as_array().is_some_and(|it| !it.is_empty()),
            Some("thinking") => self.is_signed(),
            Some("tool_use") => {
                let caller = &self.item["caller"]["type"];
                !(caller.is_null() || caller == "direct") || self.item["toolset_name"].is_string()
            }
            _ => true,
        }
    }

    /// The block as it is sent back; `None` if the provider would refuse it: thinking without its
    /// signature, and blank text.
    pub(super) fn into_item(mut self) -> Option<Value> {
        if self.is_call() {
            let args = self.call(false).args.ok().filter(Value::is_object);
            self.item["input"] = args.unwrap_or_else(|| json!({}));
        }
        match self.item["type"].as_str()? {
            "text" => !self.item["text"].as_str()?.trim().is_empty(),
            "thinking" => self.is_signed(),
            kind => !kind.ends_with("_tool_result") || result_run_id(&self.item).is_some(),
        }
        .then_some(self.item)
    }

    fn is_signed(&self) -> bool {
        text_field(&self.item, "signature").is_some()
    }
}

/// The text of a field; `None` if it is empty.
fn text_field(value: &Value, name: &str) -> Option<String> {
    let text = value[name].as_str().filter(|text| !text.is_empty());
    text.map(str::to_owned)
}
