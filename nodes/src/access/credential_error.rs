//! Why a credential is refused. Clients read one text for all reasons; operators read which.

/// Why a request has no valid credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CredentialError {
    #[error("no credential")]
    Missing,
    #[error("not one Authorization header with one bearer credential")]
    Malformed,
    #[error("a credential in the URL")]
    InUrl,
    #[error("an unknown or revoked key")]
    UnknownKey,
    #[error("a key with another secret")]
    WrongSecret,
    #[error("expired")]
    Expired,
    #[error("not valid yet, or for longer than an hour")]
    NotYet,
    #[error("an issuer that the file does not name")]
    UnknownIssuer,
    #[error("signed by a key that its issuer does not have")]
    UnknownKid,
    #[error("an algorithm that is not permitted")]
    Algorithm,
    #[error("a wrong signature")]
    Signature,
    #[error("for another audience")]
    Audience,
    #[error("claims that say nobody")]
    Claims,
    #[error("a tenant that is not served")]
    Tenant,
    #[error("a caller who may not act for others")]
    NotGateway,
    /// Nobody can tell whether the credential is valid.
    #[error("the issuer's keys, or the store of keys, cannot be read")]
    Unavailable,
}

impl CredentialError {
    /// The value of the label `result` of `abide_auth_total`.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Malformed => "malformed",
            Self::InUrl => "in_url",
            Self::UnknownKey => "unknown_key",
            Self::WrongSecret => "wrong_secret",
            Self::Expired => "expired",
            Self::NotYet => "not_yet",
            Self::UnknownIssuer => "unknown_issuer",
            Self::UnknownKid => "unknown_kid",
            Self::Algorithm => "algorithm",
            Self::Signature => "signature",
            Self::Audience => "audience",
            Self::Claims => "claims",
            Self::Tenant => "tenant",
            Self::NotGateway => "not_gateway",
            Self::Unavailable => "unavailable",
        }
    }
}
