//! The cluster's secret.

use std::fmt;

use argon2::{Algorithm, Argon2, Params, Version};
use rustls::Error;

use super::keys::{derive_cookie, derive_for};
use crate::member::Member;

/// The fewest characters of a secret: 32 hexadecimal digits are 128 bits, which nobody guesses.
pub const MIN_SECRET_CHARS: usize = 32;
/// The memory that one derivation takes, in KiB: what OWASP recommends for Argon2id with two passes.
const STRETCH_MEMORY_KIB: u32 = 19 << 10;
const STRETCH_PASSES: u32 = 2;
/// Separates this use of the secret from any other. It is the same on every node, because the nodes
/// must derive the same key before they have exchanged anything.
const STRETCH_SALT: &[u8] = b"abide cluster, handshake 1";

/// The text by which the nodes of a cluster authenticate each other. It is long, and is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterSecret(String);

/// What a node proves to others, and what it accepts from them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterSecrets {
    /// The secret that the node shows.
    pub shown: Option<ClusterSecret>,
    /// Another one that it accepts and never shows, while the nodes change from one to the other.
    pub also: Option<ClusterSecret>,
}

impl ClusterSecrets {
    /// The keys for a purpose of its own: that of the secret that the node shows, then that of the other.
    /// All nodes of a cluster derive the same ones. Where there is no secret the key is public. With a
    /// secret this takes memory and time, so it must not run on a thread of the runtime.
    pub fn keys_for(&self, purpose: &[u8]) -> Result<Vec<[u8; 32]>, Error> {
        let also = self.also.iter().map(Some);
        let secrets = std::iter::once(self.shown.as_ref()).chain(also);
        secrets.map(|secret| derive_for(secret, purpose)).collect()
    }

    /// The cookie of the sessions, which must be the same on all nodes at all times: that of the present
    /// members, and else one that is derived from the secret. It outlives a change of the secret, and
    /// protects nothing, because both ends of a session have proved a secret before.
    pub fn cookie(&self, members: &[Member]) -> Result<String, Error> {
        match members.iter().find_map(|member| member.cookie.clone()) {
            Some(cookie) => Ok(cookie),
            None => derive_cookie(self.shown.as_ref()),
        }
    }
}

/// The secret has fewer than [`MIN_SECRET_CHARS`] characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must have at least {MIN_SECRET_CHARS} characters, and has {chars}")]
pub struct ShortSecretError {
    pub chars: usize,
}

impl ClusterSecret {
    pub fn new(text: impl Into<String>) -> Result<Self, ShortSecretError> {
        let text = text.into();
        let chars = text.chars().count();
        if chars < MIN_SECRET_CHARS {
            return Err(ShortSecretError { chars });
        }
        Ok(Self(text))
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// A key from which the secret is found by guessing only slowly: each guess takes the memory and
    /// the time of this function, which a node spends once, at its start.
    pub(super) fn stretch(&self) -> Result<[u8; 32], Error> {
        let fails = |error: argon2::Error| Error::General(format!("the derivation fails: {error}"));
        let params = Params::new(STRETCH_MEMORY_KIB, STRETCH_PASSES, 1, None).map_err(fails)?;
        let mut key = [0; 32];
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into(self.as_bytes(), STRETCH_SALT, &mut key)
            .map_err(fails)?;
        Ok(key)
    }
}

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ClusterSecret")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_has_at_least_32_characters() {
        for short in ["", "summer2026", &"s".repeat(31), &"\u{e9}".repeat(31)] {
            let chars = short.chars().count();
            assert_eq!(ClusterSecret::new(short), Err(ShortSecretError { chars }));
        }
        for long in ["s".repeat(32), "\u{e9}".repeat(32), "0123456789abcdef".repeat(4)] {
            assert!(ClusterSecret::new(long).is_ok());
        }
        let text = ShortSecretError { chars: 10 }.to_string();
        assert_eq!(text, "must have at least 32 characters, and has 10");
    }

    #[test]
    fn a_secret_is_not_shown() {
        let secret = ClusterSecret::new("0123456789abcdef0123456789abcdef").unwrap();
        assert_eq!(format!("{secret:?}"), "ClusterSecret");
    }

    #[test]
    fn each_purpose_and_each_secret_has_a_key_of_its_own() {
        let secret = |text: &str| Some(ClusterSecret::new(text.repeat(32)).unwrap());
        let keys =
            |shown, also, purpose: &[u8]| ClusterSecrets { shown, also }.keys_for(purpose).unwrap();
        let both = keys(secret("a"), secret("b"), b"x");
        assert_eq!(both, [keys(secret("a"), None, b"x"), keys(secret("b"), None, b"x")].concat());
        let mut all = both;
        all.extend(keys(secret("a"), None, b"y"));
        all.extend(keys(None, None, b"x"));
        all.push(secret("a").unwrap().stretch().unwrap());
        let number = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), number);
    }

    /// Nodes of different builds must derive the same key.
    #[test]
    fn the_stretched_key_never_changes() {
        let secret = ClusterSecret::new("0123456789abcdef0123456789abcdef").unwrap();
        let key = secret.stretch().unwrap();
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "29bb50f10a25efac534f37dc999cec6e98275d0a653c9457867c79567c2aba78");
    }
}
