//! How much a model reads, and how much of that a conversation may take.

use crate::agent::Definition;
use crate::model::{ModelSettings, Provider};

/// Of a model that is in no table and whose definition says nothing.
const DEFAULT_WINDOW_TOKENS: u64 = 128_000;

/// The windows of families of models, by how their names begin; the first that fits holds.
const WINDOWS_BY_PREFIX: [(&str, u64); 14] = [
    ("gpt-3.5", 16_385),
    ("gpt-4-32k", 32_768),
    ("gpt-4-turbo", 128_000),
    ("gpt-4.1", 1_047_576),
    ("gpt-4o", 128_000),
    ("gpt-4", 8_192),
    ("gpt-5", 400_000),
    ("o1-mini", 128_000),
    ("o1", 200_000),
    ("o3", 200_000),
    ("o4", 200_000),
    ("claude", 200_000),
    ("gemini-1.5-pro", 2_097_152),
    ("gemini", 1_048_576),
];

/// How many tokens the model reads at most.
pub(crate) fn window(settings: &ModelSettings) -> u64 {
    let known = WINDOWS_BY_PREFIX.iter().find(|(family, _)| settings.name.starts_with(family));
    let usual = match settings.provider {
        // It reads nothing that could be too long for it.
        Provider::Scripted => u64::MAX,
        Provider::Openai
        | Provider::OpenaiResponses
        | Provider::Anthropic
        | Provider::Gemini
        | Provider::Ollama => known.map_or(DEFAULT_WINDOW_TOKENS, |(_, window)| *window),
    };
    settings.window.map_or(usual, u64::from)
}

/// What is left of a window for what is sent: the answer needs some of it.
pub(crate) fn sendable(window: u64) -> u64 {
    percent_of(window, 75)
}

/// So many percent.
pub(crate) fn percent_of(tokens: u64, percent: u64) -> u64 {
    tokens.saturating_mul(percent) / 100
}

impl Definition {
    /// How many tokens a prompt may have before it is reduced, without what hooks add.
    pub fn context_budget(&self) -> u64 {
        let working = self.working_budget.saturating_sub(self.injection_reserve);
        u64::from(working).min(sendable(window(&self.model)))
    }
}
