//! A credential that was verified, with what is needed to verify it again.

use std::fmt;

use axum::http::{HeaderMap, HeaderName, Uri, header};
use sha2::{Digest, Sha256};
use url::form_urlencoded;

use super::api_key::key_id;
use super::credential::Credential;
use super::credential_error::CredentialError;

/// The person for whom a gateway makes a request, as a JWT of an issuer.
const ON_BEHALF_OF: HeaderName = HeaderName::from_static("abide-on-behalf-of");
const MAX_CREDENTIAL_BYTES: usize = 16 << 10;
/// A shorter text in a URL is taken for a name.
const MIN_SECRET_CHARS: usize = 40;
/// Parameters that other APIs take credentials in.
const CREDENTIAL_PARAMETERS: [&str; 4] = ["access_token", "token", "api_key", "authorization"];

/// What a request brings to prove who makes it. It is never logged and never shown.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Presented {
    pub(super) bearer: String,
    pub(super) on_behalf_of: Option<String>,
}

impl Presented {
    /// Takes the credentials of a request.
    pub(super) fn of(headers: &HeaderMap, uri: &Uri) -> Result<Self, CredentialError> {
        if is_in_url(uri) {
            return Err(CredentialError::InUrl);
        }
        let bearer = single(headers, &header::AUTHORIZATION)?.ok_or(CredentialError::Missing)?;
        let (scheme, bearer) = bearer.split_once(' ').ok_or(CredentialError::Malformed)?;
        if !scheme.eq_ignore_ascii_case("bearer") || !is_token(bearer) {
            return Err(CredentialError::Malformed);
        }
        let on_behalf_of = single(headers, &ON_BEHALF_OF)?;
        if !on_behalf_of.is_none_or(is_token) {
            return Err(CredentialError::Malformed);
        }
        let on_behalf_of = on_behalf_of.map(str::to_owned);
        Ok(Self { bearer: bearer.to_owned(), on_behalf_of })
    }

    /// The token in the path of a reply link; `None` if it cannot be one.
    pub(super) fn of_link(token: &str) -> Option<Self> {
        let is_whole = is_token(token) && key_id(token).is_none();
        is_whole.then(|| Self { bearer: token.to_owned(), on_behalf_of: None })
    }

    /// A digest that no other credentials have.
    pub(super) fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(self.bearer.as_bytes());
        if let Some(person) = &self.on_behalf_of {
            hash.update([b' ']);
            hash.update(person.as_bytes());
        }
        hash.finalize().into()
    }
}

/// A caller's verified credential.
pub(crate) struct Session {
    pub(super) presented: Presented,
    credential: Credential,
}

impl Session {
    pub(super) fn new(presented: Presented, credential: Credential) -> Self {
        Self { presented, credential }
    }

    pub(crate) fn credential(&self) -> &Credential {
        &self.credential
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("credential", &self.credential).finish_non_exhaustive()
    }
}

/// A header that is given at most once.
fn single<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a str>, CredentialError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() || value.len() > MAX_CREDENTIAL_BYTES {
        return Err(CredentialError::Malformed);
    }
    value.to_str().map(Some).map_err(|_| CredentialError::Malformed)
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
}

/// Whether a URL holds what may be a credential: proxies and browsers log and keep URLs.
fn is_in_url(uri: &Uri) -> bool {
    let is_named =
        |name: &str| CREDENTIAL_PARAMETERS.iter().any(|known| name.eq_ignore_ascii_case(known));
    let holds = |text: &str| text.split(['&', '=']).any(looks_like_credential);
    // Whoever finds the URL in a log decodes what is escaped in it.
    let decoded = |text| form_urlencoded::parse(str::as_bytes(text));
    let mut in_query = decoded(uri.query().unwrap_or_default());
    let mut in_path = uri.path().split('/').flat_map(decoded);
    in_query.any(|(name, value)| is_named(&name) || holds(&name) || holds(&value))
        || in_path.any(|(name, value)| holds(&name) || holds(&value))
}

fn looks_like_credential(text: &str) -> bool {
    let is_key = key_id(text).is_some() && text.len() > MIN_SECRET_CHARS;
    let mut parts = text.split('.');
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    };
    let is_jwt = text.len() > MIN_SECRET_CHARS
        && text.starts_with("eyJ")
        && parts.by_ref().take(3).filter(|part| is_part(part)).count() == 3
        && parts.next().is_none();
    is_key || is_jwt
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn presented(headers: &[(&'static str, &'static str)]) -> Result<Presented, CredentialError> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        Presented::of(&map, &Uri::from_static("/v1/agents"))
    }

    #[test]
    fn a_request_has_one_bearer_credential() {
        for (headers, expected) in [
            (&[][..], Err(CredentialError::Missing)),
            (&[("authorization", "Bearer abc")], Ok("abc")),
            (&[("authorization", "bearer abc")], Ok("abc")),
            (&[("authorization", "Basic abc")], Err(CredentialError::Malformed)),
            (&[("authorization", "abc")], Err(CredentialError::Malformed)),
            (&[("authorization", "Bearer ")], Err(CredentialError::Malformed)),
            (&[("authorization", "Bearer a b")], Err(CredentialError::Malformed)),
            (&[("authorization", "Bearer a,Bearer b")], Err(CredentialError::Malformed)),
            (
                &[("authorization", "Bearer a"), ("authorization", "Bearer a")],
                Err(CredentialError::Malformed),
            ),
            (
                &[
                    ("authorization", "Bearer a"),
                    ("abide-on-behalf-of", "a"),
                    ("abide-on-behalf-of", "b"),
                ],
                Err(CredentialError::Malformed),
            ),
        ] {
            let bearer = presented(headers).map(|presented| presented.bearer);
            assert_eq!(bearer.as_deref().map_err(|it| *it), expected, "{headers:?}");
        }
    }

    #[test]
    fn another_person_has_another_digest() {
        let of = |bearer: &str, person: Option<&str>| {
            let on_behalf_of = person.map(str::to_owned);
            Presented { bearer: bearer.to_owned(), on_behalf_of }.digest()
        };
        let all = [of("a", None), of("a", Some("b")), of("a", Some("c")), of("ab", None)];
        for (index, one) in all.iter().enumerate() {
            assert!(all[index + 1..].iter().all(|other| other != one));
        }
    }

    #[test]
    fn a_credential_in_a_url_is_seen() {
        let jwt = "eyJhbGciOiJFZERTQSJ9.eyJpc3MiOiJhYmlkZSJ9.c2lnbmF0dXJl-_AAAA";
        let key = format!("abide_ops_{}", "s".repeat(43));
        for url in [
            format!("/v1/conversations/{key}"),
            format!("/v1/conversations/c/events?after={jwt}"),
            "/v1/agents?access_token=x".to_owned(),
            "/v1/agents?limit=1&Token=x".to_owned(),
            "/v1/agents?access%5Ftoken=x".to_owned(),
            format!("/v1/agents?cursor=%61{}", &key[1..]),
            format!("/v1/agents?cursor=a=%65{}", &jwt[1..]),
            format!("/v1/conversations/{}%73", &key[..key.len() - 1]),
        ] {
            assert!(is_in_url(&url.parse().unwrap()), "{url}");
        }
        for url in ["/v1/conversations/abide_demo_1", "/v1/agents?cursor=eyJ.a.b", "/a/b.c.d?e=f"] {
            assert!(!is_in_url(&url.parse().unwrap()), "{url}");
        }
    }
}
