//! How people sign in to the console with an issuer: the code flow with PKCE, in the page.

use serde::Deserialize;
use url::Url;

use super::is_safe;
use super::reader::Reader;

/// What the console needs to know of an issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignIn {
    /// The exact `iss`: a text that names the same place in another way is another issuer.
    pub issuer: String,
    pub client_id: String,
    pub scope: String,
    /// The `resource` of RFC 8707, for issuers that want it.
    pub resource: Option<String>,
    pub token: SignInToken,
    /// The issuer, and its endpoints at other origins.
    endpoints: Vec<Url>,
}

/// Which of the issuer's tokens is the credential.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignInToken {
    #[default]
    AccessToken,
    IdToken,
}

impl SignInToken {
    /// The member of the issuer's answer that has the token.
    pub fn member(self) -> &'static str {
        match self {
            Self::AccessToken => "access_token",
            Self::IdToken => "id_token",
        }
    }
}

impl SignIn {
    /// The origins that the page sends requests to.
    pub fn origins(&self) -> Vec<String> {
        let origin = |url: &Url| url.origin().ascii_serialization();
        let mut origins: Vec<_> = self.endpoints.iter().map(origin).collect();
        origins.sort();
        origins.dedup();
        origins
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    client_id: String,
    scope: Option<String>,
    resource: Option<String>,
    #[serde(default)]
    token: SignInToken,
    #[serde(default)]
    connect: Vec<String>,
}

pub(super) fn read(path: &str, issuer: &str, entry: Entry, reader: &mut Reader) -> Option<SignIn> {
    let Entry { client_id, scope, resource, token, connect } = entry;
    if client_id.is_empty() {
        reader.mistake(&format!("{path}.client_id"), "must not be empty");
    }
    let mut endpoints = vec![Url::parse(issuer).ok()?];
    for (index, text) in connect.iter().enumerate() {
        match Url::parse(text).ok().filter(is_safe) {
            Some(url) => endpoints.push(url),
            None => {
                let rule = "must be a URL with https, or with http and a loopback host";
                reader.mistake(&format!("{path}.connect[{index}]"), rule);
            }
        }
    }
    let scope = scope.unwrap_or_else(|| "openid profile".to_owned());
    Some(SignIn { issuer: issuer.to_owned(), client_id, scope, resource, token, endpoints })
}
