//! The places of a conversation at which an event stream resumes.

use std::fmt;
use std::str::FromStr;

use abide_conversation::{MessageId, Seq};

/// The longest id of a message in a place. Ours are shorter.
const MAX_MESSAGE_ID_BYTES: usize = 64;

/// No message has more characters.
const MAX_CHARS: usize = 1 << 30;

/// A place in a conversation: after an event, and perhaps inside the message that streams after it.
///
/// Written as `SEQ`, as `SEQ.CHARS`, or as `SEQ.CHARS.THINKING.MESSAGE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::http) struct Place {
    pub(in crate::http) seq: Seq,
    pub(in crate::http) inside: Option<Inside>,
}

/// A place inside a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::http) struct Inside {
    /// The characters of the message before the place, thinking and text together.
    pub(in crate::http) chars: usize,
    /// Tells the message apart from one that was begun anew in its stead.
    pub(in crate::http) mark: Option<MessageMark>,
}

/// The message of a place, and how many of the characters before the place are thinking: thinking may
/// go on after text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::http) struct MessageMark {
    pub(in crate::http) thinking: usize,
    pub(in crate::http) message: MessageId,
}

impl FromStr for Place {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (seq, rest) = split(text);
        let seq = Seq::new(number(seq)?);
        let inside = rest.map(str::parse).transpose()?;
        Ok(Self { seq, inside })
    }
}

impl FromStr for Inside {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (chars, rest) = split(text);
        let chars = number(chars)?;
        if chars > MAX_CHARS {
            return Err(());
        }
        let Some(rest) = rest else { return Ok(Self { chars, mark: None }) };
        let (thinking, message) = rest.split_once('.').ok_or(())?;
        let thinking = number(thinking)?;
        let is_id = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        let is_known_form = (1..=MAX_MESSAGE_ID_BYTES).contains(&message.len());
        if thinking > chars || !is_known_form || !message.bytes().all(is_id) {
            return Err(());
        }
        let mark = MessageMark { thinking, message: MessageId::new(message) };
        Ok(Self { chars, mark: Some(mark) })
    }
}

fn split(text: &str) -> (&str, Option<&str>) {
    text.split_once('.').map_or((text, None), |(first, rest)| (first, Some(rest)))
}

/// A number of decimal digits only.
fn number<T: FromStr>(text: &str) -> Result<T, ()> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().map_err(drop) } else { Err(()) }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.inside {
            Some(inside) => write!(f, "{}.{inside}", self.seq),
            None => write!(f, "{}", self.seq),
        }
    }
}

impl fmt::Display for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.chars)?;
        match &self.mark {
            Some(MessageMark { thinking, message }) => write!(f, ".{thinking}.{message}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_written_as_it_is_read() {
        for text in ["7", "7.0", "7.12", "7.12.3.msg_a", "7.12.12.msg_0-Z"] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_place_is_refused() {
        let long = format!("7.1.1.{}", "m".repeat(MAX_MESSAGE_ID_BYTES + 1));
        let huge = format!("1.{}", MAX_CHARS + 1);
        for wrong in [
            "",
            ".",
            "7.",
            ".7",
            "7.x",
            "7.-1",
            "+7",
            "7.+1",
            "7.1.2",
            "7.1.2.m",
            "7.1.1.",
            "7.1.x.m",
            "7.1.1.m.n",
            "7.1.1.m m",
            "7,1",
            "-7",
            &long,
            &huge,
        ] {
            assert_eq!(wrong.parse::<Place>(), Err(()), "{wrong}");
        }
    }
}
