//! How many tokens a text has, nearly, for models whose tokenizers are not at hand.
//!
//! Calibrated on OpenAI's tokenizers, the only ones at hand: on the samples of the tests it is never
//! more than a tenth under the larger of `cl100k_base` and `o200k_base`.

/// Parts of a token: whole numbers, so that every machine counts the same.
const TOKEN: u64 = 16;

/// The tokens of a text, rather too many than too few. One pass, nothing is kept.
pub(super) fn estimate(text: &str) -> u64 {
    let mut parts = 0_u64;
    let mut run = Run::default();
    for c in text.chars() {
        let kind = Kind::of(c);
        if !run.takes(kind) {
            parts = parts.saturating_add(run.cost(kind));
            run = Run { within: kind.is_of_words() && run.is_of_words(), ..Run::default() };
        }
        run.add(kind);
    }
    parts.saturating_add(run.cost(Kind::Break)).div_ceil(TOKEN)
}

/// What a character is to a tokenizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Lower,
    Upper,
    Digit,
    Space,
    Break,
    Mark,
    /// Of a script whose characters cost so much each.
    Other(u64),
}

impl Kind {
    fn of(c: char) -> Self {
        match c {
            'a'..='z' => Self::Lower,
            'A'..='Z' => Self::Upper,
            '0'..='9' => Self::Digit,
            ' ' | '\t' => Self::Space,
            '\n' | '\r' => Self::Break,
            '\0'..='\u{7f}' => Self::Mark,
            // Latin with accents stands within words, and breaks them.
            '\u{80}'..='\u{24f}' => Self::Other(TOKEN * 2),
            // Cyrillic, Greek.
            '\u{400}'..='\u{52f}' => Self::Other(TOKEN * 5 / 8),
            '\u{370}'..='\u{3ff}' => Self::Other(TOKEN * 9 / 8),
            '\u{530}'..='\u{7ff}' => Self::Other(TOKEN),
            // Kana.
            '\u{3040}'..='\u{30ff}' => Self::Other(TOKEN * 9 / 8),
            // CJK and its marks, Hangul.
            '\u{3000}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}' | '\u{ff00}'..='\u{ffef}' => {
                Self::Other(TOKEN * 7 / 4)
            }
            '\u{800}'..='\u{ffff}' => Self::Other(TOKEN * 2),
            // Emoji, and what is rarer.
            _ => Self::Other(TOKEN * 3),
        }
    }
}

impl Kind {
    fn is_of_words(self) -> bool {
        matches!(self, Self::Lower | Self::Upper | Self::Digit)
    }
}

/// Characters that a tokenizer takes together.
#[derive(Default)]
struct Run {
    kind: Option<Kind>,
    length: u64,
    /// Whether letters or digits stand right before it, as in `camelCase` and in base64.
    within: bool,
}

impl Run {
    fn takes(&self, kind: Kind) -> bool {
        match (self.kind, kind) {
            (None, _) => true,
            // A capital begins a word.
            (Some(Kind::Upper), Kind::Lower) => self.length == 1,
            (Some(Kind::Space | Kind::Break), Kind::Space | Kind::Break) => true,
            (Some(one), other) => one == other,
        }
    }

    fn add(&mut self, kind: Kind) {
        self.length = self.length.saturating_add(1);
        let is_broken = self.kind == Some(Kind::Break) && kind == Kind::Space;
        if !is_broken {
            self.kind = Some(kind);
        }
    }

    fn is_of_words(&self) -> bool {
        self.kind.is_some_and(Kind::is_of_words)
    }

    /// What it costs before a character of this kind.
    fn cost(&self, next: Kind) -> u64 {
        let length = self.length;
        let within = if self.within { TOKEN / 4 } else { 0 };
        match self.kind {
            None => 0,
            Some(Kind::Lower) => {
                TOKEN + within + length.saturating_sub(5).saturating_mul(TOKEN) / 4
            }
            Some(Kind::Upper) => length.div_ceil(2).saturating_mul(TOKEN),
            Some(Kind::Digit) => length.div_ceil(3).saturating_mul(TOKEN),
            // One space belongs to the word after it.
            Some(Kind::Space) if length == 1 && next != Kind::Digit => 0,
            Some(Kind::Space | Kind::Break) => TOKEN + length.saturating_mul(TOKEN) / 8,
            Some(Kind::Mark) => TOKEN + (length - 1).saturating_mul(TOKEN) / 2,
            Some(Kind::Other(each)) => length.saturating_mul(each),
        }
    }
}
