//! The public keys of an issuer (RFC 7517).

use jsonwebtoken::DecodingKey;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use serde::Deserialize;
use serde_json::Value;

use super::document::Algorithm;

/// How many keys of an issuer are looked at.
const MAX_KEYS: usize = 100;

/// The keys of an issuer that can verify a JWT.
#[derive(Clone, Debug, Default)]
pub struct KeySet(Vec<VerifyingKey>);

/// A public key, and the one algorithm that it is for.
#[derive(Clone, Debug)]
pub(super) struct VerifyingKey {
    kid: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
}

/// A text that is no set of keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    #[error("is not a JSON Web Key Set: {0}")]
    NotJson(String),
    #[error("has no key for RS256, ES256 or EdDSA")]
    NoKey,
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<Value>,
}

impl KeySet {
    /// Parses a set. Keys that are not for signatures, and those of other algorithms, are left out.
    pub fn parse(json: &[u8]) -> Result<Self, KeySetError> {
        let document: Document = serde_json::from_slice(json)
            .map_err(|error| KeySetError::NotJson(error.to_string()))?;
        let keys = document.keys.into_iter().take(MAX_KEYS);
        let keys: Vec<VerifyingKey> = keys.filter_map(verifying_key).collect();
        if keys.is_empty() { Err(KeySetError::NoKey) } else { Ok(Self(keys)) }
    }

    /// The key of this id; without one, the only key.
    pub(super) fn find(&self, kid: Option<&str>) -> Option<&VerifyingKey> {
        match (kid, self.0.as_slice()) {
            (Some(kid), keys) => keys.iter().find(|key| key.kid.as_deref() == Some(kid)),
            (None, [only]) => Some(only),
            (None, _) => None,
        }
    }
}

fn verifying_key(jwk: Value) -> Option<VerifyingKey> {
    let jwk: Jwk = serde_json::from_value(jwk).ok()?;
    let (algorithm, named) = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
            (Algorithm::ES256, KeyAlgorithm::ES256)
        }
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            (Algorithm::EdDSA, KeyAlgorithm::EdDSA)
        }
        _ => return None,
    };
    let common = &jwk.common;
    let signs = common.public_key_use.as_ref().is_none_or(|it| *it == PublicKeyUse::Signature);
    let fits = common.key_algorithm.is_none_or(|it| it == named);
    if !signs || !fits {
        return None;
    }
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    Some(VerifyingKey { kid: common.key_id.clone(), algorithm, key })
}
