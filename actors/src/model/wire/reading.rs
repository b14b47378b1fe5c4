//! A response that is being read, piece by piece, within its limits.

use std::collections::VecDeque;
use std::pin::Pin;

use reqwest::Response;
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::format::{Frame, Framing, Reply};
use super::{Limits, failure, lines, sse};
use crate::model::{ModelError, ReplyChunk};

pub(super) struct Reading {
    response: Response,
    limits: Limits,
    /// Of the whole reply; of the stream's tail once the message has ended.
    deadline: Pin<Box<Sleep>>,
    /// Until when the next part must have come.
    quiet: Pin<Box<Sleep>>,
    decoder: Decoder,
    /// `None` once its end is among what is ready.
    reply: Option<Box<dyn Reply>>,
    ready: VecDeque<Result<ReplyChunk, ModelError>>,
}

/// Cuts bytes, which may be split anywhere, into frames.
enum Decoder {
    Sse(sse::Decoder),
    Lines(lines::Decoder),
}

/// A frame is larger than it may be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

impl Reading {
    pub(super) fn new(
        response: Response,
        limits: Limits,
        framing: Framing,
        reply: Box<dyn Reply>,
    ) -> Self {
        let decoder = match framing {
            Framing::Sse => Decoder::Sse(Default::default()),
            Framing::Lines => Decoder::Lines(Default::default()),
        };
        let (reply, ready) = (Some(reply), VecDeque::new());
        let deadline = Box::pin(sleep(limits.total));
        let quiet = Box::pin(sleep(limits.quiet));
        Self { response, limits, deadline, quiet, decoder, reply, ready }
    }

    pub(super) async fn next(mut self) -> Result<Option<(ReplyChunk, Self)>, ModelError> {
        loop {
            if let Some(part) = self.ready.pop_front() {
                return Ok(Some((part?, self)));
            }
            let Some(reply) = self.reply.take() else { return Ok(None) };
            // What came before a failure is handed on before it.
            if let Err(failure) = self.read(reply).await {
                self.ready.push_back(Err(failure));
            }
        }
    }

    /// Reads one piece of the body into the reply, and ends the reply if that was the last.
    async fn read(&mut self, mut reply: Box<dyn Reply>) -> Result<(), ModelError> {
        let finished = reply.finished();
        let chunk = tokio::select! {
            biased;
            () = &mut self.deadline => None,
            () = &mut self.quiet, if !finished => return Err(failure::silent(self.limits.quiet)),
            chunk = timeout(self.limits.idle, self.response.chunk()) => Some(chunk),
        };
        let frames = match chunk {
            Some(Ok(Ok(Some(bytes)))) => self.decoder.feed(&bytes),
            // The last line may have no end.
            Some(Ok(Ok(None))) if !finished => match self.decoder.rest() {
                Some(frame) => Ok(vec![frame]),
                None => return Err(failure::ended()),
            },
            None | Some(Ok(Ok(None) | Err(_)) | Err(_)) if finished => {
                self.ready.extend(reply.end()?.into_iter().map(Ok));
                return Ok(());
            }
            None => return Err(failure::endless(self.limits.total)),
            Some(Ok(Ok(None))) => return Err(failure::ended()),
            Some(Ok(Err(error))) => return Err(failure::transport(error)),
            Some(Err(_)) => return Err(failure::silent(self.limits.idle)),
        };
        for frame in frames.map_err(|TooLarge| failure::too_large())? {
            let parts = reply.take(frame)?;
            if !parts.is_empty() {
                self.quiet.as_mut().reset(Instant::now() + self.limits.quiet);
            }
            self.ready.extend(parts.into_iter().map(Ok));
            if reply.done() {
                self.ready.extend(reply.end()?.into_iter().map(Ok));
                return Ok(());
            }
        }
        if reply.finished() && !finished {
            self.deadline = Box::pin(sleep(self.limits.tail));
        }
        self.reply = Some(reply);
        Ok(())
    }
}

impl Decoder {
    fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Frame>, TooLarge> {
        match self {
            Self::Sse(decoder) => decoder.feed(bytes),
            Self::Lines(decoder) => decoder.feed(bytes),
        }
    }

    /// A frame that the end of the body completes.
    fn rest(&mut self) -> Option<Frame> {
        match self {
            Self::Sse(_) => None,
            Self::Lines(decoder) => decoder.rest(),
        }
    }
}
