//! The keys that sign conversation tokens.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::reader::Reader;
use super::{ReadFile, file_path};
use crate::access::signing_key::SigningKey;

/// How long a token lives at most, and how far ahead the `exp` of an issuer's may be.
pub const MAX_TTL: Duration = Duration::from_secs(3_600);
/// How long a token lives unless the file says otherwise.
const DEFAULT_TTL: Duration = Duration::from_secs(15 * 60);

/// The keys of conversation tokens. The first signs, all verify.
#[derive(Debug)]
pub struct TokenKeys {
    pub first: SigningKey,
    pub others: Vec<SigningKey>,
    /// How long a token lives if its request does not say.
    pub ttl: Duration,
}

impl TokenKeys {
    /// The key of this id.
    pub fn find(&self, kid: &str) -> Option<&SigningKey> {
        std::iter::once(&self.first).chain(&self.others).find(|key| key.kid() == kid)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    keys: Vec<String>,
    ttl: Option<String>,
}

pub(super) fn read(
    section: Option<&Value>,
    reader: &mut Reader,
    read_file: &mut ReadFile<'_>,
) -> Option<TokenKeys> {
    let Entry { keys, ttl } = reader.value("tokens", section.filter(|value| !value.is_null())?)?;
    if keys.is_empty() {
        reader.mistake("tokens.keys", "must name at least one file");
    }
    let mut signing: Vec<SigningKey> = Vec::new();
    for (index, source) in keys.iter().enumerate() {
        let path = format!("tokens.keys[{index}]");
        let Some(file) = file_path(source) else {
            reader.mistake(&path, "must be file:PATH");
            continue;
        };
        let pem = match read_file(&file) {
            Ok(pem) => pem,
            Err(error) => {
                reader.mistake(&path, format!("cannot be read: {error}"));
                continue;
            }
        };
        match SigningKey::from_pem(&pem) {
            Some(key) if signing.iter().any(|other| other.kid() == key.kid()) => {
                reader.mistake(&path, "is the same key as another");
            }
            Some(key) => signing.push(key),
            None => reader.mistake(&path, "holds no Ed25519 private key (PKCS #8, PEM)"),
        }
    }
    let ttl = ttl.map_or(Some(DEFAULT_TTL), |text| read_ttl(&text));
    if ttl.is_none() {
        reader.mistake("tokens.ttl", "must be a duration of at most 1h, such as 15m");
    }
    let mut signing = signing.into_iter();
    Some(TokenKeys { first: signing.next()?, others: signing.collect(), ttl: ttl? })
}

/// The lifetime of a token: more than nothing, and at most [`MAX_TTL`].
pub(crate) fn read_ttl(text: &str) -> Option<Duration> {
    let ttl: jiff::SignedDuration = text.parse().ok()?;
    let ttl = Duration::try_from(ttl).ok()?;
    (!ttl.is_zero() && ttl <= MAX_TTL).then_some(ttl)
}
