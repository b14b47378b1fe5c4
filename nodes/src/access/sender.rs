//! What somebody may do whose message is sent later, without them: what they may do then.

use abide_actors::access::Access;
use abide_actors::credentials::Credentials;
use abide_conversation::identity::{AuthMethod, Identity};

use super::control::AccessControl;
use super::credential::Credential;
use super::permission::{Permission, Rule, Send, caller_access};
use crate::problem::{Kind, Problem};

impl AccessControl {
    /// Whether callers are authenticated.
    pub(crate) fn is_guarded(&self) -> bool {
        self.guard().is_some()
    }

    /// What a message of this identity may do now. A token's is over with the token's scopes, which the
    /// identity does not tell.
    pub(crate) async fn sender_access(&self, identity: &Identity) -> Result<Access, Problem> {
        let away = |error: abide_actors::credentials::CredentialsError| {
            Problem::new(Kind::Unavailable, error.to_string())
        };
        let is_admitted = self.admits(identity).await.map_err(away)?;
        if !is_admitted || identity.auth == AuthMethod::Token {
            return Err(Problem::forbidden(Send::NEEDS));
        }
        let Rule::Conversation(verb) = Send::RULE else {
            return Err(Problem::forbidden(Send::NEEDS));
        };
        let credential = Credential {
            identity: identity.clone(),
            grant: None,
            mfa_at: None,
            expires_at: None,
            valid_until: None,
            queues: Default::default(),
        };
        Ok(Access::Caller(Box::new(caller_access(&credential, verb, Send::NEEDS))))
    }
}
