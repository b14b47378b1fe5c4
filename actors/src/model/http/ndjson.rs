//! Decodes lines of JSON from bytes that may be split anywhere.

use std::mem;

use super::format::Frame;
use super::response_reader::FrameTooLargeError;

/// Collects bytes into lines and skips blank ones.
#[derive(Debug, Default)]
pub(super) struct NdjsonDecoder {
    line: Vec<u8>,
}

impl NdjsonDecoder {
    /// Takes the next bytes and returns the lines that they complete.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> Result<Vec<Frame>, FrameTooLargeError> {
        let mut frames = Vec::new();
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.extend(&bytes[..end])?;
            bytes = &bytes[end + 1..];
            frames.extend(self.take_partial_line());
        }
        self.extend(bytes)?;
        Ok(frames)
    }

    /// Takes the line that has no end yet.
    pub(super) fn take_partial_line(&mut self) -> Option<Frame> {
        let line = mem::take(&mut self.line);
        let data = String::from_utf8_lossy(&line).trim().to_owned();
        (!data.is_empty()).then(|| Frame { event: String::new(), data })
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), FrameTooLargeError> {
        if self.line.len() + bytes.len() > super::MAX_REPLY_BYTES {
            return Err(FrameTooLargeError);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(pieces: &[&[u8]]) -> Vec<String> {
        let mut decoder = NdjsonDecoder::default();
        let fed: Vec<_> =
            pieces.iter().flat_map(|piece| decoder.feed(piece).unwrap_or_default()).collect();
        fed.into_iter().chain(decoder.take_partial_line()).map(|frame| frame.data).collect()
    }

    #[test]
    fn lines_are_the_same_wherever_the_bytes_are_split() {
        let stream = "{\"a\": \"grüß 🦀\"}\r\n\n \n{}\n{\"cut\": 1}".as_bytes();
        let whole = decoded(&[stream]);
        assert_eq!(whole, ["{\"a\": \"grüß 🦀\"}", "{}", "{\"cut\": 1}"]);
        for at in 0..=stream.len() {
            assert_eq!(decoded(&[&stream[..at], &stream[at..]]), whole, "split at {at}");
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut decoder = NdjsonDecoder::default();
        let piece = vec![b'x'; super::super::MAX_REPLY_BYTES];
        assert_eq!(decoder.feed(&piece), Ok(Vec::new()));
        assert_eq!(decoder.feed(b"x"), Err(FrameTooLargeError));
    }
}
