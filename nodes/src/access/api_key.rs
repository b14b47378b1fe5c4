//! API keys: `abide_KEYID_SECRET`. Only their digests are stored.

use std::fmt;

use aws_lc_rs::rand;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// What every key begins with, so that scanners for leaked secrets recognise it.
const PREFIX: &str = "abide_";
const SECRET_BYTES: usize = 32;
const ID_BYTES: usize = 9;
const MAX_ID_CHARS: usize = 64;

/// The SHA-256 of a whole key, as it is sent.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyDigest([u8; 32]);

impl KeyDigest {
    /// The digest of a key.
    pub fn of(key: &str) -> Self {
        Self(Sha256::digest(key.as_bytes()).into())
    }

    /// Parses 64 hex digits.
    pub fn parse(hex: &str) -> Option<Self> {
        let digest = HEXLOWER_PERMISSIVE.decode(hex.as_bytes()).ok()?;
        digest.try_into().ok().map(Self)
    }

    /// Whether the key has this digest. Takes as long for a wrong key as for the right one.
    pub fn matches(&self, key: &str) -> bool {
        Self::of(key).0.ct_eq(&self.0).into()
    }
}

impl fmt::Display for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A key that was just made. Its text is shown once, and never again.
pub struct NewKey {
    pub id: String,
    pub text: String,
}

impl NewKey {
    /// Makes a key of 32 random bytes; `None` if the system has no randomness.
    pub fn generate() -> Option<Self> {
        let id = HEXLOWER.encode(&random_bytes::<ID_BYTES>()?);
        let secret = BASE64_URL_SAFE_NO_PAD.encode(random_bytes::<SECRET_BYTES>()?);
        let text = format!("{PREFIX}{id}_{secret}");
        Some(Self { id, text })
    }

    /// What is stored of the key.
    pub fn digest(&self) -> KeyDigest {
        KeyDigest::of(&self.text)
    }
}

fn random_bytes<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).ok()?;
    Some(bytes)
}

/// Whether a text can be the id of a key: `[A-Za-z0-9-]{1,64}`, without the `_` that ends it in a key.
pub fn is_key_id(id: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '-';
    (1..=MAX_ID_CHARS).contains(&id.len()) && id.chars().all(legal)
}

/// The id of what looks like a key; `None` for anything else.
pub(super) fn key_id(credential: &str) -> Option<&str> {
    let (id, secret) = credential.strip_prefix(PREFIX)?.split_once('_')?;
    (is_key_id(id) && !secret.is_empty()).then_some(id)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_new_key_has_its_id_in_it_and_matches_its_digest_alone() {
        let (one, other) = (NewKey::generate().unwrap(), NewKey::generate().unwrap());
        assert_eq!(key_id(&one.text), Some(one.id.as_str()));
        assert!(one.digest().matches(&one.text));
        assert!(!one.digest().matches(&other.text));
        assert!(one.text.len() > PREFIX.len() + 2 * ID_BYTES + SECRET_BYTES);
        assert_eq!(KeyDigest::parse(&one.digest().to_string()), Some(one.digest()));
    }

    #[test]
    fn only_64_hex_digits_are_a_digest() {
        let digits = "0123456789abcdefABCDEF0123456789abcdefABCDEF0123456789abcdefABCD";
        assert_eq!(KeyDigest::parse(digits).map(|it| it.to_string()), Some(digits.to_lowercase()));
        for wrong in ["", &digits[1..], &format!("+{}", &digits[1..]), &"ä".repeat(32)] {
            assert_eq!(KeyDigest::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_key_has_an_id_and_a_secret() {
        assert_eq!(key_id("abide_ops-1_s_e-c"), Some("ops-1"));
        for wrong in ["", "abide_", "abide_a", "abide_a_", "abide__s", "abide_a.b_s", "ABIDE_a_s"] {
            assert_eq!(key_id(wrong), None, "{wrong}");
        }
    }
}
