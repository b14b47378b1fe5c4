//! Counts the tokens of messages: exactly if the tokenizer is available, otherwise by a generous
//! estimate.

mod estimate;
#[cfg(test)]
mod tests;

use abide_conversation::message::Message;
use abide_conversation::message::blocks::{BlockKind, Media, as_text};
use serde_json::Value;
use tiktoken_rs::tokenizer::{Tokenizer, get_tokenizer};
use tiktoken_rs::{CoreBPE, cl100k_base_singleton, o200k_base_singleton};

use super::{ModelSettings, ModelToolCall, Provider, ToolSpec};
use crate::limits::encoded_len;

/// A longer text is estimated: tokenizing it would take more than some hundredths of a second.
const MAX_EXACT_BYTES: usize = 200_000;
/// A text is tokenized in pieces of this size, so that none is one endless word; each seam adds a
/// token.
const PIECE_BYTES: usize = 16 * 1024;

/// The amount of text that is estimated within a tenth of a millisecond.
const MAX_QUICK_BYTES: usize = 64 * 1024;

/// The overhead of a message in addition to its content, and of a call or a tool in addition to its
/// texts.
const MESSAGE_TOKENS: u64 = 4;
/// More characters than a token of an ordinary text has on average, in any script; English has about 4.
const MAX_CHARS_PER_TOKEN: u64 = 8;
const CALL_TOKENS: u64 = 10;

/// Counts tokens for one model. Cheap to copy.
#[derive(Clone, Copy)]
pub(crate) struct TokenCounter {
    provider: Provider,
    /// `None`: texts are estimated.
    encoder: Option<&'static CoreBPE>,
}

impl TokenCounter {
    /// The counter of a model. The first one for a tokenizer loads its vocabulary on a blocking
    /// thread, since that takes a while.
    pub(crate) async fn for_model(settings: &ModelSettings) -> Self {
        let provider = settings.provider;
        let Some(load) = encoder_of(settings) else { return Self::estimating(provider) };
        let encoder = tokio::task::spawn_blocking(load).await.ok();
        Self { provider, encoder }
    }

    /// A counter that estimates every text.
    pub(crate) fn estimating(provider: Provider) -> Self {
        Self { provider, encoder: None }
    }

    /// Whether it counts as well as can be for this model: its tokenizer, if it has one, was loaded.
    pub(crate) fn is_best_for(&self, settings: &ModelSettings) -> bool {
        self.encoder.is_some() || encoder_of(settings).is_none()
    }

    /// Whether counting this many bytes of JSON takes a negligible time.
    pub(crate) fn is_quick(&self, bytes: usize) -> bool {
        self.encoder.is_none() && bytes <= MAX_QUICK_BYTES
    }

    /// The tokens of a text.
    pub(crate) fn text(&self, mut text: &str) -> u64 {
        let Some(encoder) = self.encoder.filter(|_| text.len() <= MAX_EXACT_BYTES) else {
            return estimate::estimate(text);
        };
        let mut tokens = 0;
        while !text.is_empty() {
            let (piece, rest) = text.split_at(text.floor_char_boundary(PIECE_BYTES));
            tokens += encoder.count_ordinary(piece) as u64;
            text = rest;
        }
        tokens
    }

    /// The tokens of a message's blocks.
    pub(crate) fn content(&self, blocks: &[Value]) -> u64 {
        blocks.iter().map(|block| self.block(block)).sum()
    }

    /// The tokens of a message.
    pub(crate) fn message(&self, message: &Message) -> u64 {
        let calls = message.tool_calls.iter();
        let calls = calls.map(|call| self.call(&call.name, &call.args.to_string())).sum::<u64>();
        MESSAGE_TOKENS + self.content(&message.content) + calls
    }

    /// The tokens of a model's reply.
    pub(crate) fn reply(&self, content: &[Value], tool_calls: &[ModelToolCall]) -> u64 {
        let calls = tool_calls.iter().map(|call| match &call.args {
            Ok(args) => self.call(&call.name, &args.to_string()),
            Err(raw) => self.call(&call.name, raw),
        });
        // The provider's own runs are sent back together with their results.
        let provided = tool_calls
            .iter()
            .filter_map(|call| call.provider_result.as_ref())
            .map(|result| self.text(&result.to_string()));
        MESSAGE_TOKENS + self.content(content) + calls.sum::<u64>() + provided.sum::<u64>()
    }

    fn call(&self, name: &str, args: &str) -> u64 {
        CALL_TOKENS + self.text(name) + self.text(args)
    }

    /// The tokens of the system prompt and the tools, which precede all messages.
    pub(crate) fn head(&self, system: &str, tools: &[ToolSpec]) -> u64 {
        let tools = tools.iter().map(|tool| {
            let signature = self.call(&tool.name, &tool.parameters.to_string());
            signature + self.text(&tool.description)
        });
        MESSAGE_TOKENS + self.text(system) + tools.sum::<u64>()
    }

    /// Thinking counts as 0: providers drop it when it is sent back, or never receive it.
    fn block(&self, block: &Value) -> u64 {
        if block["type"] == "reasoning" {
            return 0;
        }
        if let Some(text) = block["text"].as_str().filter(|_| block["type"] == "text") {
            return self.text(text);
        }
        match Media::of(block) {
            Ok(media) => {
                media.document_text().map_or_else(|| self.media(&media), |it| self.text(&it))
            }
            Err(_) => match as_text(block) {
                Some(text) => self.text(&text),
                None => self.text(&block.to_string()),
            },
        }
    }

    /// Images are not measured: each counts as a large one by its provider's published rule, which
    /// is 1,568 pixels a side for Anthropic (width · height / 750, at most about 1,600 tokens), 765
    /// and more by tiles for OpenAI, and 258 per tile for Gemini. A document counts as several
    /// pages.
    fn media(&self, media: &Media<'_>) -> u64 {
        let picture = match self.provider {
            Provider::Anthropic => 1_600,
            Provider::Gemini => 4 * 258,
            Provider::Openai
            | Provider::OpenaiResponses
            | Provider::Ollama
            | Provider::Scripted => 1_105,
        };
        match media.kind {
            BlockKind::Image | BlockKind::GeneratedImage => picture,
            _ => 4 * picture,
        }
    }
}

/// The fewest tokens that a message can plausibly have. A provider that counts fewer is wrong.
pub(crate) fn plausible_minimum(message: &Message) -> u64 {
    let texts = message.content.iter().filter(|block| block["type"] != "reasoning");
    let texts = texts.filter_map(|block| block["text"].as_str());
    let chars = texts.map(|text| text.chars().count() as u64).sum::<u64>();
    let args = message.tool_calls.iter().map(|call| encoded_len(&call.args) as u64).sum::<u64>();
    chars.saturating_add(args) / MAX_CHARS_PER_TOKEN
}

/// The model's own tokenizer, if it is available. An unknown model of OpenAI counts as one of the
/// newer ones.
fn encoder_of(settings: &ModelSettings) -> Option<fn() -> &'static CoreBPE> {
    let tokenizer = match settings.provider {
        Provider::Openai | Provider::OpenaiResponses => {
            get_tokenizer(&settings.name).unwrap_or(Tokenizer::O200kBase)
        }
        Provider::Scripted | Provider::Anthropic | Provider::Gemini | Provider::Ollama => {
            return None;
        }
    };
    match tokenizer {
        // The two differ in special tokens, which texts have none of.
        Tokenizer::O200kBase | Tokenizer::O200kHarmony => Some(o200k_base_singleton),
        Tokenizer::Cl100kBase => Some(cl100k_base_singleton),
        // No model that chats has these; their vocabularies would be megabytes of the program.
        Tokenizer::P50kBase | Tokenizer::R50kBase | Tokenizer::P50kEdit | Tokenizer::Gpt2 => None,
    }
}
