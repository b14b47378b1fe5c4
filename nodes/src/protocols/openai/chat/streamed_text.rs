//! The text of the message that a model is writing, as far as a client of a stream has it. It cannot be
//! taken back.

use abide_conversation::MessageId;

/// The text of the last message of a stream.
#[derive(Debug, Default)]
pub(super) struct StreamedText {
    message: Option<MessageId>,
    text: String,
    /// How many bytes of the text a message that was begun anew has repeated; `None` if the text is
    /// of no such message.
    repeated_bytes: Option<usize>,
}

/// A message that was begun anew does not repeat what the client has of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OtherText;

impl StreamedText {
    /// Whether the client has text of any message.
    pub(super) fn has_begun(&self) -> bool {
        self.message.is_some()
    }

    /// Takes the next piece of a message, and returns what the client is to be sent.
    pub(super) fn add(&mut self, message: &MessageId, piece: &str) -> Result<String, OtherText> {
        let is_other = self.message.replace(message.clone()).is_some_and(|last| last != *message);
        if let Some(repeated) = self.repeated_bytes {
            return self.repeat(repeated, piece);
        }
        if is_other {
            self.text.clear();
        }
        self.text.push_str(piece);
        let blank_line = if is_other { "\n\n" } else { "" };
        Ok(format!("{blank_line}{piece}"))
    }

    /// Takes a piece of a message that was begun anew: what goes on from the text is new.
    fn repeat(&mut self, repeated: usize, piece: &str) -> Result<String, OtherText> {
        let rest = self.text.get(repeated..).unwrap_or_default();
        if rest.starts_with(piece) {
            self.repeated_bytes = Some(repeated + piece.len());
            return Ok(String::new());
        }
        let new = piece.strip_prefix(rest).ok_or(OtherText)?;
        self.repeated_bytes = None;
        self.text.push_str(new);
        Ok(new.to_owned())
    }

    /// Notes that a message is begun anew: the next one is to repeat what the client has of it.
    pub(super) fn begin_anew(&mut self, message: &MessageId) {
        if self.message.as_ref() == Some(message) && !self.text.is_empty() {
            self.repeated_bytes = Some(0);
        }
    }

    /// Notes that the message is refused: if it was to repeat a text and has not yet, the next one is.
    pub(super) fn refuse(&mut self) {
        let unfinished = self.repeated_bytes.filter(|repeated| *repeated < self.text.len());
        self.repeated_bytes = unfinished.map(|_| 0);
    }

    /// Notes that the message is complete.
    pub(super) fn end(&mut self) -> Result<(), OtherText> {
        match self.repeated_bytes.take() {
            Some(repeated) if repeated < self.text.len() => Err(OtherText),
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text that a message repeats from its beginning, as far as it says.
    fn repeating(message: &MessageId, repeated: &str) -> StreamedText {
        let mut streamed = StreamedText::default();
        let void = MessageId::new("n");
        assert_eq!(streamed.add(&void, "two three"), Ok("two three".to_owned()));
        streamed.begin_anew(&void);
        assert_eq!(streamed.add(message, repeated), Ok(String::new()));
        streamed
    }

    #[test]
    fn the_message_after_one_that_was_refused_repeats_what_that_had_not() {
        let (message, next) = (MessageId::new("o"), MessageId::new("p"));
        let mut whole = repeating(&message, "two three");
        whole.refuse();
        assert_eq!(whole.add(&next, "Sorry."), Ok("\n\nSorry.".to_owned()));
        let mut part = repeating(&message, "two");
        part.refuse();
        assert_eq!(part.add(&next, "Sorry."), Err(OtherText));
    }
}
