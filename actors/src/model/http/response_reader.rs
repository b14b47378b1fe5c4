//! Reads a streamed response piece by piece, within its timeouts.

use std::collections::VecDeque;
use std::pin::Pin;

use reqwest::Response;
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::format::{Frame, Framing, ReplyDecoder};
use super::{HttpTimeouts, error, ndjson, sse};
use crate::model::{CallPieceSink, ModelError, ReplyChunk};

pub(super) struct ResponseReader {
    response: Response,
    timeouts: HttpTimeouts,
    /// Ends the whole reply; once the message has ended, ends the rest of the stream.
    total_deadline: Pin<Box<Sleep>>,
    /// When the next chunk must have arrived.
    progress_deadline: Pin<Box<Sleep>>,
    frames: FrameDecoder,
    /// `None` once its last chunks are among those in `ready`.
    decoder: Option<Box<dyn ReplyDecoder>>,
    ready: VecDeque<Result<ReplyChunk, ModelError>>,
    call_pieces: CallPieceSink,
}

/// Divides bytes, which may be split anywhere, into frames.
enum FrameDecoder {
    Sse(sse::SseDecoder),
    Ndjson(ndjson::NdjsonDecoder),
}

/// A frame exceeds its bound.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FrameTooLargeError;

impl ResponseReader {
    pub(super) fn new(
        response: Response,
        limits: HttpTimeouts,
        framing: Framing,
        (reply, call_pieces): (Box<dyn ReplyDecoder>, CallPieceSink),
    ) -> Self {
        let decoder = match framing {
            Framing::Sse => FrameDecoder::Sse(Default::default()),
            Framing::Ndjson => FrameDecoder::Ndjson(Default::default()),
        };
        let (reply, ready) = (Some(reply), VecDeque::new());
        let deadline = Box::pin(sleep(limits.total));
        let quiet = Box::pin(sleep(limits.progress));
        Self {
            response,
            timeouts: limits,
            total_deadline: deadline,
            progress_deadline: quiet,
            frames: decoder,
            decoder: reply,
            ready,
            call_pieces,
        }
    }

    pub(super) async fn next_chunk(mut self) -> Result<Option<(ReplyChunk, Self)>, ModelError> {
        loop {
            if let Some(chunk) = self.ready.pop_front() {
                return Ok(Some((chunk?, self)));
            }
            let Some(decoder) = self.decoder.take() else { return Ok(None) };
            // Chunks that arrived before an error are passed on before it.
            if let Err(error) = self.read(decoder).await {
                self.ready.push_back(Err(error));
            }
        }
    }

    /// Reads one piece of the body into the decoder, and finishes the reply if that was the last
    /// one.
    async fn read(&mut self, mut decoder: Box<dyn ReplyDecoder>) -> Result<(), ModelError> {
        let message_complete = decoder.is_message_complete();
        let chunk = tokio::select! {
            biased;
            () = &mut self.total_deadline => None,
            () = &mut self.progress_deadline, if !message_complete => {
                return Err(error::idle_timeout(self.timeouts.progress));
            }
            chunk = timeout(self.timeouts.idle, self.response.chunk()) => Some(chunk),
        };
        let frames = match chunk {
            Some(Ok(Ok(Some(bytes)))) => self.frames.feed(&bytes),
            // The last line may lack its line break.
            Some(Ok(Ok(None))) if !message_complete => match self.frames.take_partial_frame() {
                Some(frame) => Ok(vec![frame]),
                None => return Err(error::stream_cut()),
            },
            None | Some(Ok(Ok(None) | Err(_)) | Err(_)) if message_complete => {
                self.ready.extend(decoder.finish()?.into_iter().map(Ok));
                return Ok(());
            }
            None => return Err(error::total_timeout(self.timeouts.total)),
            Some(Ok(Ok(None))) => return Err(error::stream_cut()),
            Some(Ok(Err(error))) => return Err(error::from_transport(error)),
            Some(Err(_)) => return Err(error::idle_timeout(self.timeouts.idle)),
        };
        for frame in frames.map_err(|FrameTooLargeError| error::too_large())? {
            let chunks = decoder.push(frame)?;
            decoder.take_call_pieces().into_iter().for_each(|piece| self.call_pieces.send(piece));
            if !chunks.is_empty() {
                self.progress_deadline.as_mut().reset(Instant::now() + self.timeouts.progress);
            }
            self.ready.extend(chunks.into_iter().map(Ok));
            if decoder.is_stream_complete() {
                self.ready.extend(decoder.finish()?.into_iter().map(Ok));
                return Ok(());
            }
        }
        if decoder.is_message_complete() && !message_complete {
            self.total_deadline = Box::pin(sleep(self.timeouts.trailer));
        }
        self.decoder = Some(decoder);
        Ok(())
    }
}

impl FrameDecoder {
    fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Frame>, FrameTooLargeError> {
        match self {
            Self::Sse(decoder) => decoder.feed(bytes),
            Self::Ndjson(decoder) => decoder.feed(bytes),
        }
    }

    /// Takes a frame that the end of the body completes.
    fn take_partial_frame(&mut self) -> Option<Frame> {
        match self {
            Self::Sse(_) => None,
            Self::Ndjson(decoder) => decoder.take_partial_line(),
        }
    }
}
