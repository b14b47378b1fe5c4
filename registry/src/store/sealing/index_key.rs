//! What names the indexed metadata of an encrypted store.

use std::fmt;

use aws_lc_rs::digest::SHA256_OUTPUT_LEN;
use aws_lc_rs::hmac;

use super::DataKey;

/// Separates this use of the store's data key from its others.
const PURPOSE: &[u8] = b"abide index of lists";

/// The key of a hash that only the store's data key can compute.
pub(in super::super) struct IndexKey(hmac::Key);

impl IndexKey {
    /// Derives it. It never changes, because the store's data key is only ever wrapped anew.
    pub(super) fn of(store_key: &DataKey) -> Self {
        let store_key = hmac::Key::new(hmac::HMAC_SHA256, store_key.bytes());
        Self(hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&store_key, PURPOSE).as_ref()))
    }

    /// The hash of these texts, unlike that of any others.
    pub(in super::super) fn digest(&self, parts: &[&str]) -> [u8; SHA256_OUTPUT_LEN] {
        let mut context = hmac::Context::with_key(&self.0);
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part.as_bytes());
        }
        let mut digest = [0; SHA256_OUTPUT_LEN];
        digest.copy_from_slice(context.sign().as_ref());
        digest
    }
}

impl fmt::Debug for IndexKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("IndexKey")
    }
}
