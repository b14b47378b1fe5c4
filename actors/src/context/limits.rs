//! The sizes of models' context windows, and how much of one a conversation may take.

use crate::definition::Definition;
use crate::model::{ModelSettings, Provider};

/// The window of a model that is not in the table and whose definition has no `window`.
const DEFAULT_WINDOW_TOKENS: u64 = 128_000;

/// The windows of model families, by the prefix of their names; the first match counts.
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

/// The model's context window in tokens.
pub(crate) fn window(settings: &ModelSettings) -> u64 {
    let known = WINDOWS_BY_PREFIX.iter().find(|(family, _)| settings.name.starts_with(family));
    let usual = match settings.provider {
        // No prompt is too long for a script.
        Provider::Scripted => u64::MAX,
        Provider::Openai
        | Provider::OpenaiResponses
        | Provider::Anthropic
        | Provider::Gemini
        | Provider::Ollama => known.map_or(DEFAULT_WINDOW_TOKENS, |(_, window)| *window),
    };
    settings.window.map_or(usual, u64::from)
}

/// The part of a window that a prompt may fill: the answer needs the rest.
pub(crate) fn sendable(window: u64) -> u64 {
    percent_of(window, 75)
}

/// `percent` percent of the tokens.
pub(crate) fn percent_of(tokens: u64, percent: u64) -> u64 {
    tokens.saturating_mul(percent) / 100
}

impl Definition {
    /// The largest prompt in tokens before it is reduced, not counting the context that hooks add.
    pub fn context_budget(&self) -> u64 {
        let working = self.working_budget.saturating_sub(self.injection_reserve);
        u64::from(working).min(sendable(window(&self.model)))
    }
}
