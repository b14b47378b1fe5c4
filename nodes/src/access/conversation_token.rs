//! Conversation tokens: minted for pages and reply links, signed with a key of this cluster.

use std::collections::BTreeSet;

use abide_conversation::identity::{
    ABIDE_ISSUER, AuthMethod, Identity, Role, Subject, Tenant, TokenMinter,
};
use abide_conversation::limits::is_subject;
use abide_conversation::{AgentName, CallId, ConversationId, Timestamp};
use jsonwebtoken::Header;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::credential::{Credential, Scope, TokenGrant, TokenTarget};
use super::credential_error::CredentialError;
use super::document::{Algorithm, TokenKeys};
use super::jwt;

/// The `typ` of a token, which no issuer's JWT has.
const TOKEN_TYPE: &str = "abide+jwt";

/// What a token says. Exactly one of `conversation`, `prefix` and `calls` is there.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Claims {
    iss: String,
    tenant: Tenant,
    sub: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conversation: Option<ConversationId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    calls: Option<Vec<(CallId, u32)>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    born: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<AgentName>,
    scope: BTreeSet<Scope>,
    /// The roles and groups of a caller who minted the token for themselves. They permit nothing: a
    /// condition reads them, and a policy.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    roles: BTreeSet<Role>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    groups: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    minted_by: Option<Box<TokenMinter>>,
    /// In seconds since 1970.
    exp: i64,
    jti: String,
}

/// What a token is to say.
pub(crate) struct TokenRequest {
    pub(crate) tenant: Tenant,
    pub(crate) sub: String,
    pub(crate) name: Option<String>,
    pub(crate) roles: BTreeSet<Role>,
    pub(crate) groups: Vec<String>,
    /// Who mints it, unless the subject does.
    pub(crate) minted_by: Option<TokenMinter>,
    pub(crate) grant: TokenGrant,
    pub(crate) expires_at: Timestamp,
    pub(crate) jti: String,
}

/// Signs a token with the first key.
pub(crate) fn mint(keys: &TokenKeys, request: TokenRequest) -> Result<String, String> {
    let TokenRequest { tenant, sub, name, roles, groups, minted_by, grant, expires_at, jti } =
        request;
    let TokenGrant { target, scopes, agent } = grant;
    let mut claims = Claims {
        iss: ABIDE_ISSUER.to_owned(),
        tenant,
        sub,
        name,
        conversation: None,
        prefix: None,
        calls: None,
        born: None,
        agent,
        scope: scopes,
        roles,
        groups,
        minted_by: minted_by.map(Box::new),
        exp: expires_at.as_second(),
        jti,
    };
    match target {
        TokenTarget::Conversation { id, born } => {
            claims.conversation = Some(id);
            claims.born = born;
        }
        TokenTarget::Prefix(prefix) => claims.prefix = Some(prefix),
        TokenTarget::Calls { id, born, calls } => {
            claims.conversation = Some(id);
            claims.born = Some(born);
            claims.calls = Some(calls);
        }
    }
    let mut header = Header::new(Algorithm::EdDSA.into());
    header.typ = Some(TOKEN_TYPE.to_owned());
    header.kid = Some(keys.first.kid().to_owned());
    jsonwebtoken::encode(&header, &claims, keys.first.private()).map_err(|error| error.to_string())
}

/// What a token permits, if one of our keys has signed it and it has not expired.
pub(super) fn verify(
    keys: Option<&TokenKeys>,
    header: &Header,
    token: &str,
    now: Timestamp,
) -> Result<Credential, CredentialError> {
    if header.typ.as_deref() != Some(TOKEN_TYPE) || header.alg != Algorithm::EdDSA.into() {
        return Err(CredentialError::Algorithm);
    }
    let kid = header.kid.as_deref().ok_or(CredentialError::UnknownKid)?;
    let key = keys.and_then(|keys| keys.find(kid)).ok_or(CredentialError::UnknownKid)?;
    let claims: Value = jwt::verify(token, key.public(), Algorithm::EdDSA)?;
    let claims: Claims = serde_json::from_value(claims).map_err(|_| CredentialError::Claims)?;
    if claims.iss != ABIDE_ISSUER || !is_subject(&claims.sub) {
        return Err(CredentialError::Claims);
    }
    let expires_at = Timestamp::from_second(claims.exp).map_err(|_| CredentialError::Claims)?;
    if expires_at <= now {
        return Err(CredentialError::Expired);
    }
    let Claims { tenant, sub, name, conversation, prefix, calls, born, agent, .. } = claims;
    // Whoever may approve by a token is an approver to the policies of approvals.
    let approver = claims.scope.contains(&Scope::Approve).then_some(Role::Approver);
    let target = match (conversation, prefix, calls, born) {
        (Some(id), None, None, born) => TokenTarget::Conversation { id, born },
        (None, Some(prefix), None, None) => TokenTarget::Prefix(prefix),
        (Some(id), None, Some(calls), Some(born)) => TokenTarget::Calls { id, born, calls },
        _ => return Err(CredentialError::Claims),
    };
    let subject = Subject {
        iss: ABIDE_ISSUER.to_owned(),
        sub,
        name,
        roles: claims.roles.into_iter().chain(approver).collect(),
        groups: claims.groups,
    };
    let identity = Identity {
        tenant: Some(tenant),
        subject,
        auth: AuthMethod::Token,
        key_id: None,
        jti: Some(claims.jti),
        on_behalf_of: None,
        minted_by: claims.minted_by,
    };
    let grant = Some(TokenGrant { target, scopes: claims.scope, agent });
    let until = Some(expires_at);
    Ok(Credential {
        identity,
        grant,
        mfa_at: None,
        expires_at: until,
        queues: Default::default(),
        valid_until: until,
    })
}
