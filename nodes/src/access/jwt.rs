//! The signatures of JWTs.

use jsonwebtoken::{DecodingKey, Header, Validation};
use serde_json::Value;

use super::credential_error::CredentialError;
use super::document::Algorithm;

impl From<Algorithm> for jsonwebtoken::Algorithm {
    fn from(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::RS256 => Self::RS256,
            Algorithm::ES256 => Self::ES256,
            Algorithm::EdDSA => Self::EdDSA,
        }
    }
}

/// What a JWT says about itself, which nobody has verified.
pub(super) struct Unverified {
    pub(super) header: Header,
    pub(super) issuer: String,
}

/// The header and the issuer. `jku`, `x5u`, `jwk` and `x5c` in a header are never looked at.
pub(super) fn read(token: &str) -> Result<Unverified, CredentialError> {
    let header = jsonwebtoken::decode_header(token).map_err(|_| CredentialError::Malformed)?;
    // Whoever does not understand a critical extension must refuse the token (RFC 7515, 4.1.11).
    if header.crit.is_some() {
        return Err(CredentialError::Malformed);
    }
    let claims: Value = jsonwebtoken::dangerous::insecure_decode_claims(token)
        .map_err(|_| CredentialError::Malformed)?;
    let issuer = claims["iss"].as_str().ok_or(CredentialError::UnknownIssuer)?.to_owned();
    Ok(Unverified { header, issuer })
}

/// The claims of a token with a signature by this key, of this algorithm and no other. Times and
/// names are not looked at.
pub(super) fn verify(
    token: &str,
    key: &DecodingKey,
    algorithm: impl Into<jsonwebtoken::Algorithm>,
) -> Result<Value, CredentialError> {
    let mut validation = Validation::new(algorithm.into());
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_aud = false;
    let verified = jsonwebtoken::decode::<Value>(token, key, &validation);
    verified.map(|token| token.claims).map_err(|_| CredentialError::Signature)
}
