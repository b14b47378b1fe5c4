//! Reads a body within bounds, unpacking it on the way.

use std::io::{self, ErrorKind, Write};
use std::mem;

use flate2::write::MultiGzDecoder;
use reqwest::Response;
use reqwest::header::CONTENT_ENCODING;

use super::failure::FetchError;

/// What is read of a page, as it is sent and as it is unpacked.
pub(super) const LARGEST_PAGE: usize = 1_000_000;
/// The one that every server knows.
pub(super) const ENCODING: &str = "gzip";

/// As much of a body as was read.
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    /// Whether there was more.
    pub(super) truncated: bool,
}

/// Reads until the body ends, or either bound is reached; what comes later is never read.
pub(super) async fn read(mut response: Response) -> Result<Body, FetchError> {
    let broke = |_| FetchError::failed("the connection broke");
    let mut unpacked = Unpacked::of(&response)?;
    let mut room = LARGEST_PAGE;
    while let Some(chunk) = response.chunk().await.map_err(broke)? {
        let part = chunk.get(..room).unwrap_or(&chunk);
        room -= part.len();
        let is_full = !unpacked.push(part)?;
        if is_full || part.len() < chunk.len() {
            return Ok(Body { bytes: unpacked.kept(), truncated: true });
        }
    }
    let is_empty = room == LARGEST_PAGE;
    let truncated = !is_empty && !unpacked.end()?;
    Ok(Body { bytes: unpacked.kept(), truncated })
}

/// A body on its way from its encoding to what is kept of it.
enum Unpacked {
    Plain(Kept),
    Gzip(Box<MultiGzDecoder<Kept>>),
}

impl Unpacked {
    fn of(response: &Response) -> Result<Self, FetchError> {
        let encoding = response.headers().get(CONTENT_ENCODING);
        let encoding = encoding.map_or(&b""[..], |encoding| encoding.as_bytes());
        let encoding = String::from_utf8_lossy(encoding).trim().to_ascii_lowercase();
        match encoding.as_str() {
            "" | "identity" => Ok(Self::Plain(Kept::default())),
            ENCODING | "x-gzip" => Ok(Self::Gzip(Box::new(MultiGzDecoder::new(Kept::default())))),
            other => Err(FetchError::failed(format!("packed as {other}, which was not asked for"))),
        }
    }

    /// Takes the next part; false if it does not fit.
    fn push(&mut self, part: &[u8]) -> Result<bool, FetchError> {
        fits(match self {
            Self::Plain(kept) => kept.write_all(part),
            Self::Gzip(decoder) => decoder.write_all(part),
        })
    }

    /// Unpacks what is left; false if it does not fit.
    fn end(&mut self) -> Result<bool, FetchError> {
        fits(match self {
            Self::Plain(_) => Ok(()),
            Self::Gzip(decoder) => decoder.try_finish(),
        })
    }

    fn kept(mut self) -> Vec<u8> {
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
        Err(_) => Err(FetchError::failed("the body is not the gzip that it is said to be")),
    }
}

/// Keeps what is written to it up to the bound, and then takes no more.
#[derive(Default)]
struct Kept(Vec<u8>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = LARGEST_PAGE - self.0.len();
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
