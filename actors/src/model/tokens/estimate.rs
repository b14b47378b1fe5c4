//! Estimates the tokens of a text, for models whose tokenizers are not available.
//!
//! The estimate is calibrated on OpenAI's tokenizers, the only available ones: on the samples of
//! the tests it is at most a tenth below the larger count of `cl100k_base` and `o200k_base`.

/// The resolution of the estimate: integers, so that every machine counts the same.
const PARTS_PER_TOKEN: u64 = 16;

/// The estimated tokens of a text, rather too many than too few. Takes one pass and no memory.
pub(super) fn estimate(text: &str) -> u64 {
    let mut parts = 0_u64;
    let mut run = CharRun::default();
    for c in text.chars() {
        let kind = CharClass::of(c);
        if !run.continues_with(kind) {
            parts = parts.saturating_add(run.cost(kind));
            run = CharRun { inside_word: kind.is_word() && run.is_word(), ..CharRun::default() };
        }
        run.add(kind);
    }
    parts.saturating_add(run.cost(CharClass::Break)).div_ceil(PARTS_PER_TOKEN)
}

/// The class of a character as tokenizers treat it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CharClass {
    #[default]
    Lower,
    Upper,
    Digit,
    Space,
    Break,
    Mark,
    /// A character of a script whose characters cost this many parts each.
    Other(u64),
}

impl CharClass {
    fn of(c: char) -> Self {
        match c {
            'a'..='z' => Self::Lower,
            'A'..='Z' => Self::Upper,
            '0'..='9' => Self::Digit,
            ' ' | '\t' => Self::Space,
            '\n' | '\r' => Self::Break,
            '\0'..='\u{7f}' => Self::Mark,
            // Accented Latin letters occur within words and split them.
            '\u{80}'..='\u{24f}' => Self::Other(PARTS_PER_TOKEN * 2),
            // Cyrillic, Greek.
            '\u{400}'..='\u{52f}' => Self::Other(PARTS_PER_TOKEN * 5 / 8),
            '\u{370}'..='\u{3ff}' => Self::Other(PARTS_PER_TOKEN * 9 / 8),
            '\u{530}'..='\u{7ff}' => Self::Other(PARTS_PER_TOKEN),
            // Kana.
            '\u{3040}'..='\u{30ff}' => Self::Other(PARTS_PER_TOKEN * 9 / 8),
            // CJK with its punctuation, and Hangul.
            '\u{3000}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}' | '\u{ff00}'..='\u{ffef}' => {
                Self::Other(PARTS_PER_TOKEN * 7 / 4)
            }
            '\u{800}'..='\u{ffff}' => Self::Other(PARTS_PER_TOKEN * 2),
            // Emoji, and rarer characters.
            _ => Self::Other(PARTS_PER_TOKEN * 3),
        }
    }
}

impl CharClass {
    fn is_word(self) -> bool {
        matches!(self, Self::Lower | Self::Upper | Self::Digit)
    }
}

/// A run of characters that a tokenizer takes together.
#[derive(Default)]
struct CharRun {
    class: Option<CharClass>,
    length: u64,
    /// Whether letters or digits directly precede it, as in `camelCase` and in base64.
    inside_word: bool,
}

impl CharRun {
    fn continues_with(&self, kind: CharClass) -> bool {
        match (self.class, kind) {
            (None, _) => true,
            // A capital letter starts a word.
            (Some(CharClass::Upper), CharClass::Lower) => self.length == 1,
            (Some(CharClass::Space | CharClass::Break), CharClass::Space | CharClass::Break) => {
                true
            }
            (Some(one), other) => one == other,
        }
    }

    fn add(&mut self, kind: CharClass) {
        self.length = self.length.saturating_add(1);
        let is_broken = self.class == Some(CharClass::Break) && kind == CharClass::Space;
        if !is_broken {
            self.class = Some(kind);
        }
    }

    fn is_word(&self) -> bool {
        self.class.is_some_and(CharClass::is_word)
    }

    /// The cost of the run, in parts, if a character of class `next` follows it.
    fn cost(&self, next: CharClass) -> u64 {
        let length = self.length;
        let within = if self.inside_word { PARTS_PER_TOKEN / 4 } else { 0 };
        match self.class {
            None => 0,
            Some(CharClass::Lower) => {
                PARTS_PER_TOKEN
                    + within
                    + length.saturating_sub(5).saturating_mul(PARTS_PER_TOKEN) / 4
            }
            Some(CharClass::Upper) => length.div_ceil(2).saturating_mul(PARTS_PER_TOKEN),
            Some(CharClass::Digit) => length.div_ceil(3).saturating_mul(PARTS_PER_TOKEN),
            // One space belongs to the word after it.
            Some(CharClass::Space) if length == 1 && next != CharClass::Digit => 0,
            Some(CharClass::Space | CharClass::Break) => {
                PARTS_PER_TOKEN + length.saturating_mul(PARTS_PER_TOKEN) / 8
            }
            Some(CharClass::Mark) => {
                PARTS_PER_TOKEN + (length - 1).saturating_mul(PARTS_PER_TOKEN) / 2
            }
            Some(CharClass::Other(each)) => length.saturating_mul(each),
        }
    }
}
