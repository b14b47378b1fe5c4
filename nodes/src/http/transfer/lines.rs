//! The lines of a body, one after the other: no more than one is in memory.

use std::time::Duration;

use abide_registry::transfer::MAX_LINE_BYTES;
use axum::body::{Body, BodyDataStream};
use axum::extract::Request;
use axum::http::header;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use tokio::time::Instant;

use crate::problem::{Kind, Problem};

/// The largest body.
const MAX_IMPORT_BYTES: u64 = 1 << 30;
/// How long the next piece of a body may take.
const PIECE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the whole body may take: a gigabyte at 300 kB a second. Other imports and blobs wait for its
/// place meanwhile.
const BODY_TIMEOUT: Duration = Duration::from_secs(3_600);

/// The lines of a body.
pub(super) struct Lines {
    pieces: BodyDataStream,
    buffer: BytesMut,
    /// How much of the buffer has no line feed.
    searched: usize,
    received_bytes: u64,
    max_bytes: u64,
    number: usize,
    has_ended: bool,
    deadline: Instant,
}

impl Lines {
    /// The lines of a request's body, unless it announces that it is too large.
    pub(super) fn of(request: Request) -> Result<Self, Problem> {
        let announced = request.headers().get(header::CONTENT_LENGTH);
        let announced = announced.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|bytes| bytes > MAX_IMPORT_BYTES) {
            return Err(too_large(MAX_IMPORT_BYTES));
        }
        Ok(Self::new(request.into_body(), MAX_IMPORT_BYTES))
    }

    fn new(body: Body, max_bytes: u64) -> Self {
        Self {
            pieces: body.into_data_stream(),
            buffer: BytesMut::new(),
            searched: 0,
            received_bytes: 0,
            max_bytes,
            number: 0,
            has_ended: false,
            deadline: Instant::now() + BODY_TIMEOUT,
        }
    }

    /// The number of the line that was read last, from 1.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// The next line that is not empty, without its line feed; `None` after the last one.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            let Some(line) = self.any().await? else { return Ok(None) };
            self.number += 1;
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line));
            }
        }
    }

    async fn any(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            let rest = &self.buffer[self.searched..];
            if let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(self.searched + at + 1);
                self.searched = 0;
                return Ok(Some(line.freeze()));
            }
            self.searched = self.buffer.len();
            if self.searched > MAX_LINE_BYTES {
                let detail =
                    format!("line {} is longer than {MAX_LINE_BYTES} bytes", self.number + 1);
                return Err(Problem::new(Kind::PayloadTooLarge, detail));
            }
            if self.has_ended {
                let last = std::mem::take(&mut self.buffer).freeze();
                self.searched = 0;
                return Ok((!last.is_empty()).then_some(last));
            }
            self.receive().await?;
        }
    }

    async fn receive(&mut self) -> Result<(), Problem> {
        let deadline = self.deadline.min(Instant::now() + PIECE_TIMEOUT);
        let piece = tokio::time::timeout_at(deadline, self.pieces.next()).await;
        let late = |_| Problem::unreadable("the body did not arrive in time");
        let Some(piece) = piece.map_err(late)? else {
            self.has_ended = true;
            return Ok(());
        };
        let piece = piece.map_err(|_| Problem::unreadable("the body could not be read"))?;
        self.received_bytes += piece.len() as u64;
        if self.received_bytes > self.max_bytes {
            return Err(too_large(self.max_bytes));
        }
        self.buffer.extend_from_slice(&piece);
        Ok(())
    }
}

fn too_large(max_bytes: u64) -> Problem {
    let detail = format!("the body is larger than {max_bytes} bytes");
    Problem::new(Kind::PayloadTooLarge, detail)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_found_however_the_body_is_cut() {
        let text = b"{\"a\":1}\n\n \n{\"b\":2}\r\n{\"c\":3}";
        for size in 1..text.len() {
            let pieces: Vec<_> =
                text.chunks(size).map(|piece| Ok::<_, std::io::Error>(piece.to_vec())).collect();
            let mut lines = Lines::new(Body::from_stream(futures::stream::iter(pieces)), 1_000);
            let mut found = Vec::new();
            while let Some(line) = lines.next().await.unwrap() {
                let line = String::from_utf8(line.trim_ascii().to_vec()).unwrap();
                found.push((lines.number(), line));
            }
            let expected = [(1, "{\"a\":1}"), (4, "{\"b\":2}"), (5, "{\"c\":3}")];
            assert_eq!(found, expected.map(|(at, line)| (at, line.to_owned())));
        }
    }

    #[tokio::test]
    async fn a_body_that_is_too_large_is_refused_before_it_is_read() {
        let length = (MAX_IMPORT_BYTES + 1).to_string();
        let request = Request::builder().header("Content-Length", length);
        let refused = Lines::of(request.body(Body::empty()).unwrap());
        assert!(refused.is_err_and(|problem| problem.status() == 413));
    }

    #[tokio::test]
    async fn a_body_of_unknown_length_is_read_up_to_the_limit_and_refused_there() {
        let read = async |max_bytes: u64| {
            let pieces = (0..5).map(|_| Ok::<_, std::io::Error>(b"{\"a\":1}\n".to_vec()));
            let body = Body::from_stream(futures::stream::iter(pieces));
            let mut lines = Lines::new(body, max_bytes);
            let mut count = 0;
            loop {
                match lines.next().await {
                    Ok(Some(_)) => count += 1,
                    Ok(None) => return (count, None),
                    Err(problem) => return (count, Some(problem.status().as_u16())),
                }
            }
        };
        assert_eq!(read(40).await, (5, None));
        assert_eq!(read(39).await, (4, Some(413)));
        assert_eq!(read(7).await, (0, Some(413)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_trickles_is_refused_in_the_end() {
        let pieces = futures::stream::repeat(()).then(async |()| {
            tokio::time::sleep(PIECE_TIMEOUT / 2).await;
            Ok::<_, std::io::Error>(b"{}\n".to_vec())
        });
        let mut lines = Lines::new(Body::from_stream(Box::pin(pieces)), MAX_IMPORT_BYTES);
        let began = Instant::now();
        let refused = loop {
            match lines.next().await {
                Ok(line) => assert!(line.is_some()),
                Err(problem) => break problem,
            }
        };
        assert_eq!(refused.status(), 400);
        assert_eq!(began.elapsed(), BODY_TIMEOUT);
    }

    #[tokio::test]
    async fn a_line_without_an_end_is_refused() {
        let piece = || Ok::<_, std::io::Error>(vec![b'x'; 1 << 20]);
        let pieces = futures::stream::repeat_with(piece);
        let mut lines = Lines::new(Body::from_stream(pieces), MAX_IMPORT_BYTES);
        let refused = lines.next().await;
        assert!(refused.is_err_and(|problem| problem.status() == 413));
    }
}
