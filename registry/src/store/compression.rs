//! Compression of what a store writes: each value by itself, with a dictionary of the words that all of
//! them have, so that also a short event becomes a third (`operations/compression.md`).
//!
//! A compressed value is a zstd frame. It begins with a byte that no JSON begins with, so that what is
//! plain stays readable, and it names its dictionary and the length of the value.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io;
use std::sync::LazyLock;

use zstd::bulk::{Compressor, Decompressor};
use zstd::dict::{DecoderDictionary, EncoderDictionary};
use zstd::zstd_safe;

/// Trained by `compression/train.py`. What it has compressed needs it for ever.
const DICTIONARY: &[u8] = include_bytes!("compression/dictionary-1");
/// The default of zstd. Of short values, a higher one saves nothing.
const LEVEL: i32 = 3;
/// The first bytes of a zstd frame.
const MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();
/// A shorter value stays plain: it would save some fifty bytes, and cost as much as a longer one.
pub(super) const MIN_BYTES: usize = 128;
/// A longer value stays plain: it would hold up its node for longer than four milliseconds.
const MAX_BYTES: usize = 1 << 20;
/// A value of which less than this part would be left stays plain, so that what is read by its stored
/// bytes stays bounded by them.
const MAX_RATIO: usize = 16;

static ENCODER: LazyLock<EncoderDictionary<'static>> =
    LazyLock::new(|| EncoderDictionary::copy(DICTIONARY, LEVEL));
static DECODER: LazyLock<DecoderDictionary<'static>> =
    LazyLock::new(|| DecoderDictionary::copy(DICTIONARY));

thread_local! {
    // A context has some hundred kilobytes, and is dearer to make than to use.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> =
        RefCell::new(Compressor::with_prepared_dictionary(&ENCODER).ok());
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> =
        RefCell::new(Decompressor::with_prepared_dictionary(&DECODER).ok());
}

/// Whether a store compresses what it writes. It reads both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    Zstd,
}

impl Compression {
    /// The value as it is stored: compressed, if that is shorter.
    pub(super) fn compress(self, value: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
        if self == Self::None || !(MIN_BYTES..=MAX_BYTES).contains(&value.len()) {
            return value;
        }
        let compress =
            |compressor: &mut Option<Compressor<'_>>| compressor.as_mut()?.compress(&value).ok();
        let bounds = value.len() / MAX_RATIO..value.len();
        let frame = COMPRESSOR.with_borrow_mut(compress);
        frame.filter(|frame| bounds.contains(&frame.len())).map_or(value, Cow::Owned)
    }
}

/// The value that is stored like this, whether it is compressed or not.
///
/// # Errors
///
/// If the frame is damaged, has another dictionary, or claims no length or more than a mebibyte.
pub fn decompress(stored: &[u8]) -> io::Result<Cow<'_, [u8]>> {
    if !stored.starts_with(&MAGIC) {
        return Ok(Cow::Borrowed(stored));
    }
    let length = claimed_len(stored).filter(|length| *length <= MAX_BYTES);
    let length = length.ok_or(io::ErrorKind::InvalidData)?;
    DECOMPRESSOR.with_borrow_mut(|decompressor| {
        let decompressor = decompressor.as_mut().ok_or(io::ErrorKind::OutOfMemory)?;
        decompressor.decompress(stored, length).map(Cow::Owned)
    })
}

/// How long the value is that is stored like this, as far as [`decompress`] reads it.
pub(super) fn decompressed_len(stored: &[u8]) -> usize {
    let claimed = stored.starts_with(&MAGIC).then(|| claimed_len(stored)).flatten();
    claimed.map_or(stored.len(), |length| length.min(MAX_BYTES))
}

/// The length of the value of a frame, if the frame says it.
fn claimed_len(frame: &[u8]) -> Option<usize> {
    zstd_safe::get_frame_content_size(frame).ok().flatten()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    const EVENT: &str = r#"{"seq":3,"at":"2026-11-29T11:50:06.733Z","turn_id":"turn_k_01a2","type":"turn_started","data":{"agent":"support","revision":"bb3e47c1c33d2c48","max_steps":25}}"#;

    fn compress(value: &[u8]) -> Vec<u8> {
        Compression::Zstd.compress(value.into()).into_owned()
    }

    #[test]
    fn an_event_becomes_less_than_half_and_is_read_back() {
        let frame = compress(EVENT.as_bytes());
        assert!(2 * frame.len() < EVENT.len(), "{} of {}", frame.len(), EVENT.len());
        assert_eq!(*decompress(&frame).unwrap(), *EVENT.as_bytes());
    }

    #[test]
    fn what_is_plain_stays_readable() {
        assert!(matches!(decompress(EVENT.as_bytes()), Ok(Cow::Borrowed(_))));
    }

    /// The frame of a release: it must be readable for ever.
    #[test]
    fn what_was_ever_compressed_is_read() {
        let frame = data_encoding::BASE64
            .decode(b"KLUv/SEBn3UBABNCBb8ql6pC5cs0JR4lI6p+zCCCnPxADAj8sPgrdi+Iwb4DQuYReIWq1scCIAE=")
            .unwrap();
        assert_eq!(*decompress(&frame).unwrap(), *EVENT.as_bytes());
    }

    #[test]
    fn a_value_stays_plain_if_it_is_short_or_long_or_would_be_as_long_or_tiny() {
        let short = EVENT.as_bytes()[..MIN_BYTES - 1].to_vec();
        let long: Vec<u8> = EVENT.bytes().cycle().take(MAX_BYTES + 1).collect();
        let random = (0..500_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for value in [short, long, random, vec![b'x'; 4_000]] {
            assert!(compress(&value) == value);
        }
    }

    #[test]
    fn a_frame_is_refused_that_claims_no_length_or_more_than_a_value_may_have() {
        let zeros = vec![b' '; MAX_BYTES + 1];
        let bomb = zstd::bulk::compress(&zeros, LEVEL).unwrap();
        let mut silent = zstd::Encoder::new(Vec::new(), LEVEL).unwrap();
        silent.write_all(b"[]").unwrap();
        silent.flush().unwrap();
        let silent = silent.finish().unwrap();
        let mut twice = compress(EVENT.as_bytes());
        twice.extend(zstd::bulk::compress(&zeros[1..], LEVEL).unwrap());
        for frame in [&bomb[..], &silent, &twice, &MAGIC] {
            assert!(decompress(frame).is_err());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_back(value in proptest::collection::vec(any::<u8>(), 0..600)) {
            prop_assume!(!value.starts_with(&MAGIC));
            let stored = compress(&value);
            prop_assert_eq!(&*decompress(&stored).unwrap(), &*value);
            prop_assert_eq!(decompressed_len(&stored), value.len());
        }

        #[test]
        fn a_damaged_frame_panics_nowhere(at in 0..60_usize, bit in 0..8_u32, cut in 0..60_usize) {
            let mut frame = compress(EVENT.as_bytes());
            let length = frame.len();
            frame[at % length] ^= 1 << bit;
            frame.truncate(length - cut % length);
            let _ = decompress(&frame);
        }
    }
}
