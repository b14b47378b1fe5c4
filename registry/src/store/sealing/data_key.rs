//! A data key, and the form of what it seals.

use std::fmt;

use abide_actors::journal::StoreError;
use abide_conversation::{Revision, Scoped};
use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::rand;

use super::unreadable;

/// The first byte of what a conversation's data key has sealed.
pub(super) const IN_CONVERSATION: u8 = 1;
/// The first byte of what the store's data key has sealed.
pub(super) const IN_STORE: u8 = 2;

/// The bytes of a key.
pub(super) const KEY_BYTES: usize = 32;
/// The bytes before what is sealed: the first byte and the nonce.
const HEADER_BYTES: usize = 1 + NONCE_LEN;

/// What a sealed value is, and where it belongs: it cannot be opened as anything else.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Label<'a> {
    pub(in super::super) kind: &'static str,
    /// A tenant and a name: of a conversation, an agent, a blob. It has no NUL.
    pub(in super::super) owner: &'a str,
    /// What tells apart the values of one owner and kind, such as a `seq`.
    pub(in super::super) part: &'a str,
}

impl<'a> Label<'a> {
    /// The definition of an agent, by its revision.
    pub(in super::super) fn definition(revision: &'a Scoped<Revision>) -> Self {
        Self { kind: "agent", owner: revision.as_str(), part: "" }
    }

    pub(in super::super) fn webhook(webhook: &'a str) -> Self {
        Self { kind: "webhook", owner: webhook, part: "" }
    }

    /// The entry of this `seq` in the chain of a tenant, or of the cluster if it is empty.
    pub(in super::super) fn operation(chain: &'a str, seq: &'a str) -> Self {
        Self { kind: "operation", owner: chain, part: seq }
    }

    fn bytes(&self) -> Vec<u8> {
        [self.kind, self.owner, self.part].join("\0").into_bytes()
    }
}

/// A key of 256 bits. AES-256-GCM-SIV takes random nonces for 2^32 values and more, and a nonce that
/// repeats shows only that two values are equal.
pub(in super::super) struct DataKey {
    bytes: [u8; KEY_BYTES],
    aead: LessSafeKey,
}

impl fmt::Debug for DataKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("DataKey")
    }
}

impl DataKey {
    /// A new key from the randomness of the system.
    pub(in super::super) fn generate() -> Result<Self, StoreError> {
        let mut bytes = [0; KEY_BYTES];
        rand::fill(&mut bytes).map_err(|_| no_randomness())?;
        Self::new(bytes).ok_or_else(no_randomness)
    }

    pub(super) fn new(bytes: [u8; KEY_BYTES]) -> Option<Self> {
        let aead = LessSafeKey::new(UnboundKey::new(&AES_256_GCM_SIV, &bytes).ok()?);
        Some(Self { bytes, aead })
    }

    pub(super) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.bytes
    }

    /// The value sealed: the first byte, a nonce, the ciphertext with its tag.
    pub(super) fn seal(
        &self,
        first: u8,
        label: Label<'_>,
        value: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).map_err(|_| no_randomness())?;
        let mut sealed = Vec::with_capacity(HEADER_BYTES + value.len() + AES_256_GCM_SIV.tag_len());
        sealed.push(first);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(value);
        let (nonce, aad) = (Nonce::assume_unique_for_key(nonce), Aad::from(label.bytes()));
        let text = sealed.get_mut(HEADER_BYTES..).unwrap_or_default();
        let tag = self.aead.seal_in_place_separate_tag(nonce, aad, text);
        let too_long = |_| StoreError::Unavailable("a value is too long to be sealed".to_owned());
        sealed.extend_from_slice(tag.map_err(too_long)?.as_ref());
        Ok(sealed)
    }

    /// Opens what [`seal`](Self::seal) made with the same label.
    pub(super) fn open(&self, label: Label<'_>, sealed: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.open_text(label, sealed).ok_or_else(|| {
            let Label { kind, owner, part } = label;
            let why = "it was changed, or belongs elsewhere, or has another key";
            unreadable(&format!("{owner} ({kind} {part})"), why)
        })
    }

    pub(super) fn open_text(&self, label: Label<'_>, sealed: &[u8]) -> Option<Vec<u8>> {
        let nonce = sealed.get(1..HEADER_BYTES)?.try_into().ok()?;
        let mut text = sealed.get(HEADER_BYTES..)?.to_vec();
        let aad = Aad::from(label.bytes());
        let nonce = Nonce::assume_unique_for_key(nonce);
        let length = self.aead.open_in_place(nonce, aad, &mut text).ok()?.len();
        text.truncate(length);
        Some(text)
    }
}

fn no_randomness() -> StoreError {
    StoreError::Unavailable("the system has no randomness".to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const LABEL: Label<'_> = Label { kind: "event", owner: "acme/c", part: "7" };

    #[test]
    fn a_value_is_opened_only_where_it_belongs_and_only_unchanged() {
        let key = DataKey::generate().unwrap();
        let sealed = key.seal(IN_CONVERSATION, LABEL, b"text").unwrap();
        assert_eq!(key.open(LABEL, &sealed).unwrap(), b"text");
        let others = [
            Label { kind: "state", ..LABEL },
            Label { owner: "c", ..LABEL },
            Label { part: "8", ..LABEL },
        ];
        for label in others {
            assert!(key.open(label, &sealed).is_err(), "{label:?}");
        }
        for at in 1..sealed.len() {
            for bit in 0..8 {
                let mut changed = sealed.clone();
                changed[at] ^= 1 << bit;
                assert!(key.open(LABEL, &changed).is_err(), "byte {at}");
            }
        }
        for length in 0..sealed.len() {
            assert!(key.open(LABEL, &sealed[..length]).is_err(), "{length} bytes");
        }
        assert!(DataKey::generate().unwrap().open(LABEL, &sealed).is_err());
    }

    #[test]
    fn equal_values_are_sealed_to_different_ones_that_show_nothing() {
        let key = DataKey::generate().unwrap();
        let seal = || key.seal(IN_STORE, LABEL, &[b'x'; 100]).unwrap();
        let (one, other) = (seal(), seal());
        assert_ne!(one, other);
        assert!(!one.windows(4).any(|window| window == b"xxxx"));
        assert_eq!(format!("{key:?}"), "DataKey");
    }
}
