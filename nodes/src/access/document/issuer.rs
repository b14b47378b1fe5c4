//! The issuers of JWTs, and how their claims become tenants and roles.

use std::collections::{BTreeMap, BTreeSet};

use abide_conversation::identity::{Role, Tenant};
use serde::Deserialize;
use serde_json::Value;
use url::{Host, Url};

use super::key::{read_roles, read_tenant};
use super::reader::Reader;
use super::sign_in::{self, SignIn};
use super::{ReadFile, file_path};
use crate::access::key_set::KeySet;

/// An issuer whose JWTs are accepted.
#[derive(Debug)]
pub struct IssuerRules {
    /// The exact `iss`.
    pub issuer: String,
    pub audience: Vec<String>,
    pub jwks: JwksSource,
    pub algorithms: Vec<Algorithm>,
    pub claims: ClaimSources,
    /// The issuer's word for a role → ours. A word that is not here is no role.
    pub roles: BTreeMap<String, BTreeSet<Role>>,
    /// How people sign in to the console with it; `None`: they do not.
    pub sign_in: Option<SignIn>,
}

/// Where an issuer's keys are.
#[derive(Debug)]
pub enum JwksSource {
    /// At this URL.
    Url(Url),
    /// Where this OpenID configuration says.
    Discovery(Url),
    /// In a file that was read with the document.
    File(KeySet),
}

/// A signature algorithm that may be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Algorithm {
    RS256,
    ES256,
    EdDSA,
}

/// Where the parts of an identity stand in the claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimSources {
    pub tenant: ClaimSource,
    pub roles: ClaimSource,
    pub groups: ClaimSource,
    pub name: ClaimSource,
}

/// A value that is in the claims, or the same for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimSource {
    /// A JSON pointer.
    Pointer(String),
    Const(Value),
}

impl ClaimSource {
    /// The value for these claims.
    pub fn value<'a>(&'a self, claims: &'a Value) -> Option<&'a Value> {
        match self {
            Self::Pointer(pointer) => claims.pointer(pointer),
            Self::Const(value) => Some(value),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    issuer: String,
    audience: Vec<String>,
    jwks: Option<String>,
    algorithms: Option<Vec<Algorithm>>,
    #[serde(default)]
    claims: ClaimsEntry,
    #[serde(default)]
    roles: BTreeMap<String, Vec<String>>,
    console: Option<sign_in::Entry>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimsEntry {
    tenant: Option<Value>,
    roles: Option<Value>,
    groups: Option<Value>,
    name: Option<Value>,
}

pub(super) fn read(
    section: Option<&Value>,
    tenants: &BTreeSet<&Tenant>,
    reader: &mut Reader,
    read_file: &mut ReadFile<'_>,
) -> BTreeMap<String, IssuerRules> {
    let mut issuers = BTreeMap::new();
    for (path, entry) in reader.list::<Entry>("issuers", section) {
        let Some(rules) = rules(&path, entry, tenants, reader, read_file) else { continue };
        if issuers.insert(rules.issuer.clone(), rules).is_some() {
            reader.mistake(&format!("{path}.issuer"), "is that of another entry");
        }
    }
    issuers
}

fn rules(
    path: &str,
    entry: Entry,
    tenants: &BTreeSet<&Tenant>,
    reader: &mut Reader,
    read_file: &mut ReadFile<'_>,
) -> Option<IssuerRules> {
    let Entry { issuer, audience, jwks, algorithms, claims, roles, console } = entry;
    if audience.is_empty() || audience.iter().any(String::is_empty) {
        reader.mistake(&format!("{path}.audience"), "must be a list of texts, and not empty");
    }
    let all = vec![Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA];
    let algorithms = algorithms.unwrap_or(all);
    if algorithms.is_empty() {
        reader.mistake(&format!("{path}.algorithms"), "must name at least one");
    }
    let claims = claim_sources(&format!("{path}.claims"), claims, tenants, reader);
    let role = |(word, ours): (&String, &Vec<String>)| {
        (word.clone(), read_roles(&format!("{path}.roles.{word}"), ours, reader))
    };
    let roles = roles.iter().map(role).collect();
    let jwks = jwks_source(path, &issuer, jwks.as_deref(), reader, read_file);
    let sign_in =
        console.and_then(|entry| sign_in::read(&format!("{path}.console"), &issuer, entry, reader));
    Some(IssuerRules { issuer, audience, jwks: jwks?, algorithms, claims, roles, sign_in })
}

fn jwks_source(
    path: &str,
    issuer: &str,
    jwks: Option<&str>,
    reader: &mut Reader,
    read_file: &mut ReadFile<'_>,
) -> Option<JwksSource> {
    let is_issuer = Url::parse(issuer).is_ok_and(|url| is_safe(&url));
    if !is_issuer {
        let rule = "must be a URL with https, or with http and a loopback host";
        reader.mistake(&format!("{path}.issuer"), rule);
        return None;
    }
    let path = format!("{path}.jwks");
    let Some(jwks) = jwks else {
        let base = issuer.trim_end_matches('/');
        let discovery = Url::parse(&format!("{base}/.well-known/openid-configuration")).ok()?;
        return Some(JwksSource::Discovery(discovery));
    };
    if let Some(file) = file_path(jwks) {
        let keys = read_file(&file).map_err(|error| format!("cannot be read: {error}"));
        let keys = keys.and_then(|json| KeySet::parse(&json).map_err(|error| error.to_string()));
        return keys.map_err(|why| reader.mistake(&path, why)).ok().map(JwksSource::File);
    }
    match Url::parse(jwks).ok().filter(is_safe) {
        Some(url) => Some(JwksSource::Url(url)),
        None => {
            let rule = "must be a URL with https, or with http and a loopback host, or file:PATH";
            reader.mistake(&path, rule);
            None
        }
    }
}

/// Whether what this URL answers cannot be changed on the way.
pub(in crate::access) fn is_safe(url: &Url) -> bool {
    let is_loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => return false,
    };
    let has_secret = !url.username().is_empty() || url.password().is_some();
    !has_secret && (url.scheme() == "https" || url.scheme() == "http" && is_loopback)
}

fn claim_sources(
    path: &str,
    entry: ClaimsEntry,
    tenants: &BTreeSet<&Tenant>,
    reader: &mut Reader,
) -> ClaimSources {
    let ClaimsEntry { tenant, roles, groups, name } = entry;
    let mut source = |member: &str, given: Option<Value>, default: ClaimSource| {
        let Some(given) = given else { return default };
        claim_source(&given).unwrap_or_else(|| {
            let rule = "must be a JSON pointer such as /roles, or {const: VALUE}";
            reader.mistake(&format!("{path}.{member}"), rule);
            default
        })
    };
    let pointer = |name: &str| ClaimSource::Pointer(format!("/{name}"));
    let has_tenant = tenant.is_some();
    let default_tenant = ClaimSource::Const(Tenant::default().as_str().into());
    let sources = ClaimSources {
        tenant: source("tenant", tenant, default_tenant),
        roles: source("roles", roles, pointer("roles")),
        groups: source("groups", groups, pointer("groups")),
        name: source("name", name, pointer("name")),
    };
    let path = format!("{path}.tenant");
    match &sources.tenant {
        ClaimSource::Const(Value::String(name)) if has_tenant => {
            read_tenant(&path, Some(name), tenants, reader);
        }
        ClaimSource::Const(_) if has_tenant => reader.mistake(&path, "must be a tenant's name"),
        _ if !has_tenant && !tenants.iter().eq([&&Tenant::default()]) => {
            reader.mistake(&path, "is required where there are other tenants than default");
        }
        ClaimSource::Const(_) | ClaimSource::Pointer(_) => {}
    }
    sources
}

fn claim_source(given: &Value) -> Option<ClaimSource> {
    match given {
        Value::String(pointer) if pointer.starts_with('/') => {
            Some(ClaimSource::Pointer(pointer.clone()))
        }
        Value::Object(members) if members.len() == 1 => {
            members.get("const").cloned().map(ClaimSource::Const)
        }
        _ => None,
    }
}
