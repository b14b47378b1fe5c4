//! What became of the credentials of those who voted.

use abide_conversation::identity::Identity;
use async_trait::async_trait;

/// Knows the credentials that are valid.
#[async_trait]
pub trait Credentials: Send + Sync + 'static {
    /// Whether the credential by which this identity was proved was revoked. One that has merely
    /// expired was not.
    async fn is_revoked(&self, identity: &Identity) -> Result<bool, CredentialsError>;

    /// Whether this node would let somebody make requests whom another node has let: the files of
    /// the two may differ, and the stricter one decides.
    async fn admits(&self, identity: &Identity) -> Result<bool, CredentialsError> {
        Ok(!self.is_revoked(identity).await?)
    }

    /// Identifies the rules by which callers are authenticated; `None` if nobody is.
    fn fingerprint(&self) -> Option<String> {
        None
    }
}

/// Nobody can tell at the moment which credentials were revoked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the credentials of earlier voters cannot be verified: {0}")]
pub struct CredentialsError(pub String);

/// The credentials of a node that authenticates nobody: none is ever revoked.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCredentials;

#[async_trait]
impl Credentials for NoCredentials {
    async fn is_revoked(&self, _: &Identity) -> Result<bool, CredentialsError> {
        Ok(false)
    }
}
