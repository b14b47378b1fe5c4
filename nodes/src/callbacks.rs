//! The callbacks of HTTP tools, signed so that any node of the cluster believes them.

use abide_actors::external::{Callback, CallbackClaims, CallbackIssuer};
use abide_conversation::Timestamp;
use async_trait::async_trait;

use crate::access::ClientState;
use crate::public_url::PublicUrl;

/// The `typ` of the tokens, which no other token has.
pub(crate) const CALLBACK_TOKEN: &str = "abide-callback+jwt";

/// Makes callbacks to this address.
pub(crate) struct SignedCallbacks {
    pub(crate) signer: ClientState,
    /// `None`: it is not known where tools reach the cluster.
    pub(crate) public_url: Option<PublicUrl>,
}

#[async_trait]
impl CallbackIssuer for SignedCallbacks {
    async fn issue(&self, claims: CallbackClaims, expires_at: Timestamp) -> Option<Callback> {
        let public_url = self.public_url.as_ref()?;
        match self.signer.sign(CALLBACK_TOKEN, &claims).await {
            Ok(token) => {
                let url = public_url.join(&format!("/v1/callbacks/{token}"));
                Some(Callback { url, token, expires_at })
            }
            Err(problem) => {
                tracing::warn!(reason = problem.detail(), "callback not signed");
                None
            }
        }
    }
}
