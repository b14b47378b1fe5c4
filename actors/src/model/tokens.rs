//! How many tokens messages have: exactly where the tokenizer is at hand, else rather too many.

mod estimate;
#[cfg(test)]
mod tests;

use abide_conversation::message::Message;
use abide_conversation::message::blocks::{BlockKind, Media, as_text};
use serde_json::Value;
use tiktoken_rs::tokenizer::{Tokenizer, get_tokenizer};
use tiktoken_rs::{CoreBPE, bpe_for_tokenizer};

use super::{ModelSettings, ModelToolCall, Provider, ToolSpec};

/// A longer text is estimated: tokenizing it would take more than some hundredths of a second.
const MAX_EXACT_BYTES: usize = 200_000;
/// What is tokenized in one piece, so that no text is one endless word; the seams add a token each.
const PIECE_BYTES: usize = 16 * 1024;

/// What is estimated in a tenth of a millisecond.
const MAX_QUICK_BYTES: usize = 64 * 1024;

/// What a message costs besides its content, and a call or a tool besides its texts.
const MESSAGE_TOKENS: u64 = 4;
const CALL_TOKENS: u64 = 10;

/// Counts for one model. Cheap to copy.
#[derive(Clone, Copy)]
pub(crate) struct TokenCounter {
    provider: Provider,
    /// `None`: texts are estimated.
    encoder: Option<&'static CoreBPE>,
}

impl TokenCounter {
    /// The first for a tokenizer loads its vocabulary, aside, since that takes a while.
    pub(crate) async fn for_model(settings: &ModelSettings) -> Self {
        let provider = settings.provider;
        let Some(tokenizer) = tokenizer(settings) else { return Self::estimating(provider) };
        let load = move || bpe_for_tokenizer(tokenizer).ok();
        let encoder = tokio::task::spawn_blocking(load).await.ok().flatten();
        Self { provider, encoder }
    }

    /// Estimates everything.
    pub(crate) fn estimating(provider: Provider) -> Self {
        Self { provider, encoder: None }
    }

    /// Whether so many bytes of JSON are counted in no time.
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

    /// The tokens of what a model said.
    pub(crate) fn reply(&self, content: &[Value], given: &[ModelToolCall]) -> u64 {
        let calls = given.iter().map(|call| match &call.args {
            Ok(args) => self.call(&call.name, &args.to_string()),
            Err(raw) => self.call(&call.name, raw),
        });
        // What the provider ran goes back with its results.
        let provided = given
            .iter()
            .filter_map(|call| call.provider_result.as_ref())
            .map(|result| self.text(&result.to_string()));
        MESSAGE_TOKENS + self.content(content) + calls.sum::<u64>() + provided.sum::<u64>()
    }

    fn call(&self, name: &str, args: &str) -> u64 {
        CALL_TOKENS + self.text(name) + self.text(args)
    }

    /// The tokens of what stands before all messages.
    pub(crate) fn head(&self, system: &str, tools: &[ToolSpec]) -> u64 {
        let tools = tools.iter().map(|tool| {
            let named = self.call(&tool.name, &tool.parameters.to_string());
            named + self.text(&tool.description)
        });
        MESSAGE_TOKENS + self.text(system) + tools.sum::<u64>()
    }

    /// Thinking counts nothing: providers drop it when it comes back, or never get it.
    fn block(&self, block: &Value) -> u64 {
        if block["type"] == "reasoning" {
            return 0;
        }
        if let Some(text) = block["text"].as_str().filter(|_| block["type"] == "text") {
            return self.text(text);
        }
        match Media::of(block) {
            Ok(media) => media.written().map_or_else(|| self.media(&media), |it| self.text(&it)),
            Err(_) => match as_text(block) {
                Some(text) => self.text(&text),
                None => self.text(&block.to_string()),
            },
        }
    }

    /// Pictures are not measured here: each counts as a large one by its provider's published rule,
    /// 1,568 pixels a side for Anthropic (width · height / 750, at most about 1,600), 765 and more by
    /// tiles for OpenAI, 258 a tile for Gemini. A document counts as some pages.
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

/// The model's own tokenizer, of those that are at hand; a model of OpenAI's that nobody knows yet is
/// taken for one of its newer.
fn tokenizer(settings: &ModelSettings) -> Option<Tokenizer> {
    match settings.provider {
        Provider::Openai | Provider::OpenaiResponses => {
            Some(get_tokenizer(&settings.name).unwrap_or(Tokenizer::O200kBase))
        }
        Provider::Scripted | Provider::Anthropic | Provider::Gemini | Provider::Ollama => None,
    }
}
