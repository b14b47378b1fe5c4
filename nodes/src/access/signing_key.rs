//! An Ed25519 key that signs conversation tokens.

use std::fmt;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use jsonwebtoken::{DecodingKey, EncodingKey};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject;
use sha2::{Digest, Sha256};

/// The bytes of the public key's digest that name a key.
const KID_BYTES: usize = 8;

/// A key pair, and the id that tokens name it by.
pub struct SigningKey {
    kid: String,
    private: EncodingKey,
    public: DecodingKey,
}

impl SigningKey {
    /// The key of a PEM file with an Ed25519 private key in PKCS #8, as `openssl genpkey -algorithm
    /// ed25519` writes it.
    pub fn from_pem(pem: &[u8]) -> Option<Self> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem).ok()?;
        let pair = Ed25519KeyPair::from_pkcs8(der.secret_pkcs8_der()).ok()?;
        let public = pair.public_key().as_ref();
        let digest = Sha256::digest(public);
        Some(Self {
            kid: digest.iter().take(KID_BYTES).map(|byte| format!("{byte:02x}")).collect(),
            private: EncodingKey::from_ed_der(der.secret_pkcs8_der()),
            public: DecodingKey::from_ed_der(public),
        })
    }

    /// The id of the key: the beginning of the SHA-256 of its public half.
    pub fn kid(&self) -> &str {
        &self.kid
    }

    pub(super) fn private(&self) -> &EncodingKey {
        &self.private
    }

    pub(super) fn public(&self) -> &DecodingKey {
        &self.public
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("kid", &self.kid).finish_non_exhaustive()
    }
}
