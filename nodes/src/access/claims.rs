//! The claims of an issuer's JWT whose signature is right: who they say it is, or why that is nobody.

use std::collections::{BTreeMap, BTreeSet};

use abide_conversation::Timestamp;
use abide_conversation::identity::{AuthMethod, Identity, Role, Subject, Tenant};
use abide_conversation::limits::{is_name, is_subject};
use jiff::SignedDuration;
use serde_json::Value;

use super::credential::Credential;
use super::credential_error::CredentialError;
use super::document::{IssuerRules, MAX_TTL, TenantSettings};

/// How far the clocks of issuers may differ from ours.
const LEEWAY: SignedDuration = SignedDuration::from_secs(60);
/// The groups that are kept of a JWT.
const MAX_GROUPS: usize = 200;
/// The methods (RFC 8176) that are a second factor.
const SECOND_FACTORS: [&str; 4] = ["mfa", "otp", "hwk", "swk"];

/// The person or program that these claims name.
pub(super) fn identify(
    rules: &IssuerRules,
    tenants: &BTreeMap<Tenant, TenantSettings>,
    claims: &Value,
    now: Timestamp,
) -> Result<Credential, CredentialError> {
    if text(&claims["iss"]) != Some(&rules.issuer) {
        return Err(CredentialError::UnknownIssuer);
    }
    let expires_at = check_times(claims, now)?;
    if !is_for(&rules.audience, &claims["aud"]) {
        return Err(CredentialError::Audience);
    }
    let sub = text(&claims["sub"]).filter(|sub| is_subject(sub)).ok_or(CredentialError::Claims)?;
    let tenant = rules.claims.tenant.value(claims).and_then(text);
    let tenant = tenant.and_then(|name| Tenant::parse(name).ok()).ok_or(CredentialError::Claims)?;
    if !tenants.contains_key(&tenant) {
        return Err(CredentialError::Tenant);
    }
    let groups = groups(rules, claims).ok_or(CredentialError::Claims)?;
    let name = rules.claims.name.value(claims).and_then(text).filter(|name| is_name(name));
    let subject = Subject {
        iss: rules.issuer.clone(),
        sub: sub.to_owned(),
        name: name.map(str::to_owned),
        roles: roles(rules, claims),
        groups,
    };
    let identity = Identity {
        tenant: Some(tenant),
        subject,
        auth: AuthMethod::Jwt,
        key_id: None,
        jti: text(&claims["jti"]).filter(|jti| is_name(jti)).map(str::to_owned),
        on_behalf_of: None,
        minted_by: None,
    };
    Ok(Credential {
        identity,
        grant: None,
        mfa_at: mfa_at(claims, now),
        expires_at: Some(expires_at),
        queues: Default::default(),
        valid_until: Some(add(expires_at, LEEWAY)),
    })
}

/// Whether these times hold now; returns the last one. A JWT for more than an hour is refused.
fn check_times(claims: &Value, now: Timestamp) -> Result<Timestamp, CredentialError> {
    let expires_at = time(&claims["exp"]).ok_or(CredentialError::Claims)?;
    let (earliest, latest) = (add(now, -LEEWAY), add(now, LEEWAY));
    if expires_at <= earliest {
        return Err(CredentialError::Expired);
    }
    let max_ttl = SignedDuration::try_from(MAX_TTL).unwrap_or(SignedDuration::MAX);
    let is_early = |claim: &Value| !claim.is_null() && time(claim).is_none_or(|at| at > latest);
    if expires_at > add(latest, max_ttl) || is_early(&claims["nbf"]) || is_early(&claims["iat"]) {
        return Err(CredentialError::NotYet);
    }
    Ok(expires_at)
}

/// Whether one of the names in `aud`, a text or a list, is ours.
fn is_for(audience: &[String], aud: &Value) -> bool {
    let named = aud.as_array().map_or(std::slice::from_ref(aud), Vec::as_slice);
    named.iter().filter_map(text).any(|aud| audience.iter().any(|ours| ours == aud))
}

/// Our roles for the issuer's words.
fn roles(rules: &IssuerRules, claims: &Value) -> BTreeSet<Role> {
    let words = rules.claims.roles.value(claims).into_iter().flat_map(strings);
    words.filter_map(|word| rules.roles.get(word)).flatten().copied().collect()
}

/// The groups; `None` if they are too many, or one is no name. A condition may ask because of a group,
/// so that none is left out.
fn groups(rules: &IssuerRules, claims: &Value) -> Option<Vec<String>> {
    let groups = rules.claims.groups.value(claims).into_iter().flat_map(strings);
    let groups: Vec<String> = groups.take(MAX_GROUPS + 1).map(str::to_owned).collect();
    (groups.len() <= MAX_GROUPS && groups.iter().all(|group| is_name(group))).then_some(groups)
}

/// When the person used a second factor: their login, if it had one. A login in the future proves
/// nothing.
fn mfa_at(claims: &Value, now: Timestamp) -> Option<Timestamp> {
    let has_factor = strings(&claims["amr"]).any(|method| SECOND_FACTORS.contains(&method));
    time(&claims["auth_time"]).filter(|at| has_factor && *at <= add(now, LEEWAY))
}

fn text(claim: &Value) -> Option<&str> {
    claim.as_str()
}

/// The texts of a list, or the words of one text.
fn strings(claim: &Value) -> impl Iterator<Item = &str> {
    let list = claim.as_array().into_iter().flatten().filter_map(Value::as_str);
    list.chain(claim.as_str().into_iter().flat_map(str::split_whitespace))
}

/// A time in seconds since 1970, which may have a fraction.
fn time(claim: &Value) -> Option<Timestamp> {
    let seconds = claim.as_i64().or_else(|| {
        let seconds = claim.as_f64()?.floor();
        // Beyond this, a timestamp does not exist, and the conversion would not be exact.
        (seconds.abs() < 1e15).then_some(seconds as i64)
    })?;
    Timestamp::from_second(seconds).ok()
}

fn add(at: Timestamp, span: SignedDuration) -> Timestamp {
    at.checked_add(span).unwrap_or(at)
}

#[cfg(test)]
mod tests;
