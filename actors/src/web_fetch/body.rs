//! Reads a bounded response body and decompresses it.

use std::io::{self, ErrorKind, Write};
use std::mem;

use flate2::write::MultiGzDecoder;
use reqwest::Response;
use reqwest::header::CONTENT_ENCODING;

use super::error::FetchError;

/// The part of a page that is read, in bytes as sent and in bytes after decompression.
pub(super) const MAX_PAGE_BYTES: usize = 1_000_000;
/// The encoding that every server knows.
pub(super) const ACCEPTED_ENCODING: &str = "gzip";

/// The part of a body that was read.
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    /// Whether the body was longer.
    pub(super) truncated: bool,
}

/// Reads until the body ends or either limit is reached; the rest is never read.
pub(super) async fn read(mut response: Response) -> Result<Body, FetchError> {
    let broke = |_| FetchError::failed("the connection broke");
    let mut unpacked = Decoder::of(&response)?;
    let mut room = MAX_PAGE_BYTES;
    while let Some(chunk) = response.chunk().await.map_err(broke)? {
        let part = chunk.get(..room).unwrap_or(&chunk);
        room -= part.len();
        let is_full = !unpacked.push(part)?;
        if is_full || part.len() < chunk.len() {
            return Ok(Body { bytes: unpacked.into_bytes(), truncated: true });
        }
    }
    let is_empty = room == MAX_PAGE_BYTES;
    let truncated = !is_empty && !unpacked.finish()?;
    Ok(Body { bytes: unpacked.into_bytes(), truncated })
}

/// Decodes a body into a bounded buffer.
enum Decoder {
    Plain(BoundedBuffer),
    Gzip(Box<MultiGzDecoder<BoundedBuffer>>),
}

impl Decoder {
    fn of(response: &Response) -> Result<Self, FetchError> {
        let encoding = response.headers().get(CONTENT_ENCODING);
        let encoding = encoding.map_or(&b""[..], |encoding| encoding.as_bytes());
        let encoding = String::from_utf8_lossy(encoding).trim().to_ascii_lowercase();
        match encoding.as_str() {
            "" | "identity" => Ok(Self::Plain(BoundedBuffer::default())),
            ACCEPTED_ENCODING | "x-gzip" => {
                Ok(Self::Gzip(Box::new(MultiGzDecoder::new(BoundedBuffer::default()))))
            }
            other => {
                Err(FetchError::failed(format!("encoded as {other}, which was not requested")))
            }
        }
    }

    /// Decodes the next part; false if the buffer is full.
    fn push(&mut self, part: &[u8]) -> Result<bool, FetchError> {
        fits(match self {
            Self::Plain(kept) => kept.write_all(part),
            Self::Gzip(decoder) => decoder.write_all(part),
        })
    }

    /// Decodes the rest; false if the buffer is full.
    fn finish(&mut self) -> Result<bool, FetchError> {
        fits(match self {
            Self::Plain(_) => Ok(()),
            Self::Gzip(decoder) => decoder.try_finish(),
        })
    }

    fn into_bytes(mut self) -> Vec<u8> {
        match &mut self {
            Self::Plain(kept) => mem::take(&mut kept.0),
            Self::Gzip(decoder) => mem::take(&mut decoder.get_mut().0),
        }
    }
}

fn fits(written: io::Result<()>) -> Result<bool, FetchError> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::StorageFull => Ok(false),
        Err(_) => Err(FetchError::failed("the body is not valid gzip")),
    }
}

/// A buffer that refuses writes beyond `MAX_PAGE_BYTES`.
#[derive(Default)]
struct BoundedBuffer(Vec<u8>);

impl Write for BoundedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = MAX_PAGE_BYTES - self.0.len();
        if room == 0 && !bytes.is_empty() {
            return Err(ErrorKind::StorageFull.into());
        }
        let part = bytes.get(..room).unwrap_or(bytes);
        self.0.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
