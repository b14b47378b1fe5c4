//! What the patterns of a schema cost: the memory of their automata, and the time of a match.

use std::borrow::Cow;
use std::sync::LazyLock;

use jsonschema::{FancyRegex, PatternOptions};
use regex::{Captures, Regex};
use regex_automata::dfa::dense;
use regex_automata::nfa::thompson::{self, NFA};

/// The longest pattern. A longer one is not meant for people.
const MAX_PATTERN_BYTES: usize = 1_024;
/// The automaton of one pattern. `.{1,500}` takes 200 kB of it, and a class of Unicode letters
/// 30 kB each time that it is repeated.
const MAX_AUTOMATON_BYTES: usize = 512 * 1024;
/// The library's own limit for an automaton, which it measures in another way.
const MAX_LIBRARY_AUTOMATON_BYTES: usize = 4 * MAX_AUTOMATON_BYTES;
/// The cache of a pattern's matches. A pattern whose states fit into it is matched in linear time.
const MAX_MATCH_CACHE_BYTES: usize = 128 * 1024;
/// Backtracking steps of a pattern with look-arounds; one that needs more counts as not matching.
const MAX_BACKTRACKS: usize = 10_000;
/// A compiled pattern takes this multiple of its automaton, as measured: it is kept in both
/// directions, with tables for its first characters.
const COMPILED_BYTES_PER_AUTOMATON_BYTE: usize = 5;
/// Bytes that are matched in a step by an automaton whose states are cached.
const CACHED_BYTES_PER_STEP: u64 = 8;

/// A look-around, or a reference to a group, none of which has an automaton.
static LOOK_AROUND: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\(\?<?[=!]|\\[1-9][0-9]?|\\k<[^>]*>").ok());

/// The limits within which patterns are compiled.
pub(super) fn options() -> PatternOptions<FancyRegex> {
    PatternOptions::fancy_regex()
        .backtrack_limit(MAX_BACKTRACKS)
        .size_limit(MAX_LIBRARY_AUTOMATON_BYTES)
        .dfa_size_limit(MAX_MATCH_CACHE_BYTES)
}

/// What matching a string costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MatchCost {
    /// Steps for each eight bytes of a string.
    steps_per_word: u64,
    /// Whether a pattern looks around, which may take time that grows with the square of a string's
    /// length.
    is_quadratic: bool,
}

impl MatchCost {
    /// Nothing is matched.
    pub(super) const FREE: Self = Self { steps_per_word: 0, is_quadratic: false };
    /// A format that is read once.
    pub(super) const FORMAT: Self = Self { steps_per_word: 8, is_quadratic: false };
    /// Encoded or nested text, which is decoded or parsed.
    pub(super) const CONTENT: Self = Self { steps_per_word: 32, is_quadratic: false };
    /// A string that must be a pattern, which is parsed.
    pub(super) const PATTERN: Self = Self { steps_per_word: 64, is_quadratic: false };

    /// Whether matching some kilobytes takes less than a millisecond.
    pub(super) fn is_low(self) -> bool {
        !self.is_quadratic && self.steps_per_word <= 2 * Self::FORMAT.steps_per_word
    }

    pub(super) fn steps(self, bytes: usize) -> u64 {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let linear = bytes.saturating_mul(self.steps_per_word) / CACHED_BYTES_PER_STEP;
        let squared = if self.is_quadratic { bytes.saturating_mul(bytes) / 16 } else { 0 };
        linear.saturating_add(squared)
    }

    /// What matching against any of both costs.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            steps_per_word: self.steps_per_word.max(other.steps_per_word),
            is_quadratic: self.is_quadratic || other.is_quadratic,
        }
    }

    /// What matching against each of both costs.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            steps_per_word: self.steps_per_word.saturating_add(other.steps_per_word),
            is_quadratic: self.is_quadratic || other.is_quadratic,
        }
    }
}

/// A pattern, measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct PatternSize {
    pub(super) compiled_bytes: usize,
    pub(super) match_cost: MatchCost,
}

/// Measures a pattern before it is compiled.
///
/// One that looks around has no automaton; it is measured with plain groups in their place.
pub(super) fn measure(pattern: &str) -> Result<PatternSize, String> {
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(format!("a pattern must be at most {MAX_PATTERN_BYTES} bytes"));
    }
    let (nfa, look_arounds) = match automaton(pattern) {
        Err(Unbuilt::Syntax) => {
            let plain = without_look_arounds(pattern);
            (automaton(&plain), LOOK_AROUND.as_ref().map_or(0, |it| it.find_iter(pattern).count()))
        }
        built => (built, 0),
    };
    let nfa = nfa.map_err(|unbuilt| match unbuilt {
        Unbuilt::Size => "a pattern is too large when it is compiled".to_owned(),
        Unbuilt::Syntax => "a pattern is not a valid regular expression".to_owned(),
    })?;
    let steps_per_word = if has_few_states(&nfa) { 1 } else { states(&nfa) };
    Ok(PatternSize {
        compiled_bytes: nfa.memory_usage() * COMPILED_BYTES_PER_AUTOMATON_BYTE
            + (1 + look_arounds) * MAX_MATCH_CACHE_BYTES,
        match_cost: MatchCost { steps_per_word, is_quadratic: look_arounds > 0 },
    })
}

/// Why a pattern has no automaton.
enum Unbuilt {
    Size,
    Syntax,
}

fn automaton(pattern: &str) -> Result<NFA, Unbuilt> {
    let pattern = jsonschema_regex::to_rust_regex(pattern).unwrap_or(Cow::Borrowed(pattern));
    let config = thompson::Config::new().nfa_size_limit(Some(MAX_AUTOMATON_BYTES));
    let built = thompson::Compiler::new().configure(config).build(&pattern);
    built
        .map_err(|error| if error.size_limit().is_some() { Unbuilt::Size } else { Unbuilt::Syntax })
}

fn without_look_arounds(pattern: &str) -> Cow<'_, str> {
    match LOOK_AROUND.as_ref() {
        Some(regex) => {
            regex.replace_all(
                pattern,
                |found: &Captures<'_>| {
                    if found[0].starts_with('(') { "(?:" } else { "" }
                },
            )
        }
        None => Cow::Borrowed(pattern),
    }
}

/// Whether all states of a deterministic automaton fit into the cache.
fn has_few_states(nfa: &NFA) -> bool {
    let config = dense::Config::new()
        .dfa_size_limit(Some(MAX_MATCH_CACHE_BYTES / 2))
        .determinize_size_limit(Some(MAX_MATCH_CACHE_BYTES));
    dense::Builder::new().configure(config).build_from_nfa(nfa).is_ok()
}

fn states(nfa: &NFA) -> u64 {
    u64::try_from(nfa.states().len()).unwrap_or(u64::MAX)
}
