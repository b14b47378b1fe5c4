//! Decodes server-sent events from bytes that may be split anywhere.

use std::mem;

use super::format::Frame;
use super::response_reader::FrameTooLargeError;

/// The largest event: as large as a whole reply.
const MAX_EVENT_BYTES: usize = super::MAX_REPLY_BYTES;

/// Collects bytes into events. Comments and fields other than `event` and `data` are skipped.
#[derive(Debug, Default)]
pub(super) struct SseDecoder {
    line: Vec<u8>,
    event: String,
    data: Option<String>,
    after_cr: bool,
    has_begun: bool,
}

impl SseDecoder {
    /// Takes the next bytes and returns the events that they complete.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> Result<Vec<Frame>, FrameTooLargeError> {
        let mut events = Vec::new();
        while let Some(&first) = bytes.first() {
            if mem::take(&mut self.after_cr) && first == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                self.extend(bytes)?;
                break;
            };
            self.extend(&bytes[..end])?;
            self.after_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            events.extend(self.end_line());
        }
        Ok(events)
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), FrameTooLargeError> {
        let held = self.line.len() + self.event.len() + self.data.as_ref().map_or(0, String::len);
        if held + bytes.len() > MAX_EVENT_BYTES {
            return Err(FrameTooLargeError);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    /// Handles a complete line: a blank one ends an event, any other adds to it.
    fn end_line(&mut self) -> Option<Frame> {
        let line = mem::take(&mut self.line);
        let mut line = String::from_utf8_lossy(&line);
        if !mem::replace(&mut self.has_begun, true) {
            let bare = line.trim_start_matches('\u{feff}').to_owned();
            line = bare.into();
        }
        if line.is_empty() {
            let event = mem::take(&mut self.event);
            return self.data.take().map(|data| Frame { event, data });
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match (field, &mut self.data) {
            ("data", Some(data)) => data.extend(["\n", value]),
            ("data", none) => *none = Some(value.to_owned()),
            ("event", _) => self.event = value.to_owned(),
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(pieces: &[&[u8]]) -> Vec<String> {
        let mut decoder = SseDecoder::default();
        let fed = pieces.iter().flat_map(|piece| decoder.feed(piece).unwrap_or_default());
        fed.map(|frame| frame.data).collect()
    }

    #[test]
    fn events_are_the_same_wherever_the_bytes_are_split() {
        let stream = "\u{feff}: hello\r\ndata: grüß\r\ndata:two\r\n\r\nid: 7\rdata:  x 🦀\r\r\
                      event: a\n\n\ndata\n\ndata: {}\n\ndata: cut"
            .as_bytes();
        let whole = decoded(&[stream]);
        assert_eq!(whole, ["grüß\ntwo", " x 🦀", "", "{}"]);
        for at in 0..=stream.len() {
            assert_eq!(decoded(&[&stream[..at], &stream[at..]]), whole, "split at {at}");
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(decoded(&bytes), whole);
    }

    #[test]
    fn an_event_has_its_name_and_the_next_has_none() {
        let fed = SseDecoder::default().feed(b"event: ping\ndata: {}\n\ndata: 1\n\n");
        let frame = |event: &str, data: &str| Frame { event: event.into(), data: data.into() };
        assert_eq!(fed, Ok(vec![frame("ping", "{}"), frame("", "1")]));
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut decoder = SseDecoder::default();
        let piece = vec![b'x'; MAX_EVENT_BYTES / 2];
        assert_eq!(decoder.feed(&piece), Ok(Vec::new()));
        assert_eq!(decoder.feed(&piece), Ok(Vec::new()));
        assert_eq!(decoder.feed(b"x"), Err(FrameTooLargeError));
    }

    #[test]
    fn lines_without_end_are_refused_too() {
        let mut decoder = SseDecoder::default();
        let line = [b"data: ".as_slice(), &vec![b'x'; MAX_EVENT_BYTES / 4], b"\n"].concat();
        let fed: Vec<_> = (0..5).map(|_| decoder.feed(&line)).collect();
        assert_eq!(fed.last(), Some(&Err(FrameTooLargeError)));
    }

    #[test]
    fn bytes_that_are_not_text_are_replaced() {
        assert_eq!(decoded(&[b"data: a\xffb\n\n"]), ["a\u{fffd}b"]);
    }
}
