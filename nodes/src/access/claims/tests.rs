//! What a JWT's claims must say, and what becomes of them.
#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::super::document::AuthDocument;
use super::*;

const NOW: i64 = 1_800_000_000;
const ISSUER: &str = "https://login.example.com/";

fn document() -> AuthDocument {
    let document = json!({
        "tenants": {"acme": {}, "default": {}},
        "issuers": [{"issuer": ISSUER, "audience": ["abide", "other"], "claims": {"tenant": "/org",
            "name": "/profile/name"}, "roles": {"lead": ["user", "approver"], "bot": ["backend"]}}],
    });
    AuthDocument::parse(&document.to_string(), &mut |_| unreachable!()).unwrap()
}

fn identified(change: impl FnOnce(&mut Value)) -> Result<Credential, CredentialError> {
    let mut claims = json!({"iss": ISSUER, "sub": "u1", "aud": "abide", "org": "acme",
        "exp": NOW + 600, "roles": ["lead", "unknown"], "groups": ["finance"],
        "profile": {"name": "Ada"}});
    change(&mut claims);
    let document = document();
    let now = Timestamp::from_second(NOW).unwrap();
    identify(&document.issuers[ISSUER], &document.tenants, &claims, now)
}

#[test]
fn claims_become_an_identity_by_the_tables_of_the_file() {
    let found = identified(|_| {}).unwrap();
    let identity = json!({"tenant": "acme", "iss": ISSUER, "sub": "u1", "name": "Ada",
        "roles": ["user", "approver"], "groups": ["finance"], "auth": "jwt"});
    assert_eq!(json!(found.identity), identity);
    assert_eq!(found.expires_at, Timestamp::from_second(NOW + 600).ok());
    assert_eq!(found.valid_until, Timestamp::from_second(NOW + 660).ok());
    let words = identified(|claims| claims["roles"] = json!("bot lead")).unwrap();
    assert_eq!(words.identity.subject.roles.len(), 3);
    let nobody = identified(|claims| claims["roles"] = json!({"lead": true})).unwrap();
    assert!(nobody.identity.subject.roles.is_empty());
}

#[test]
fn claims_that_do_not_hold_are_refused() {
    let set =
        |name: &'static str, value: Value| identified(move |claims| claims[name] = value).err();
    for (name, value, refusal) in [
        ("iss", json!("https://login.example.com"), Some(CredentialError::UnknownIssuer)),
        ("aud", json!("abide other"), Some(CredentialError::Audience)),
        ("aud", json!(null), Some(CredentialError::Audience)),
        ("aud", json!(["x", "other"]), None),
        ("exp", json!(null), Some(CredentialError::Claims)),
        ("exp", json!("tomorrow"), Some(CredentialError::Claims)),
        ("exp", json!(NOW - 60), Some(CredentialError::Expired)),
        ("exp", json!(NOW - 59), None),
        ("exp", json!(NOW + 3_660), None),
        ("exp", json!(NOW + 3_661), Some(CredentialError::NotYet)),
        ("exp", json!(1e300), Some(CredentialError::Claims)),
        ("exp", json!(i64::MAX), Some(CredentialError::Claims)),
        ("nbf", json!(NOW + 60), None),
        ("nbf", json!(NOW + 61), Some(CredentialError::NotYet)),
        ("nbf", json!("x"), Some(CredentialError::NotYet)),
        ("iat", json!(NOW + 61), Some(CredentialError::NotYet)),
        ("sub", json!(""), Some(CredentialError::Claims)),
        ("sub", json!("system"), Some(CredentialError::Claims)),
        ("sub", json!("a\nb"), Some(CredentialError::Claims)),
        ("sub", json!("x".repeat(256)), Some(CredentialError::Claims)),
        ("sub", json!(7), Some(CredentialError::Claims)),
        ("org", json!("nobody"), Some(CredentialError::Tenant)),
        ("org", json!("ACME"), Some(CredentialError::Claims)),
        ("org", json!(null), Some(CredentialError::Claims)),
        ("groups", json!("a b"), None),
        ("groups", json!(null), None),
        ("groups", json!(vec!["g"; MAX_GROUPS]), None),
        ("groups", json!(vec!["g"; MAX_GROUPS + 1]), Some(CredentialError::Claims)),
        ("groups", json!(["a", "x".repeat(256)]), Some(CredentialError::Claims)),
        ("name", json!(7), None),
    ] {
        assert_eq!(set(name, value.clone()), refusal, "{name}: {value}");
    }
}

#[test]
fn a_login_with_a_second_factor_is_known() {
    let mfa_at = |amr: Value, auth_time: Value| {
        let found = identified(|claims| {
            claims["amr"] = amr;
            claims["auth_time"] = auth_time;
        });
        found.unwrap().mfa_at
    };
    let at = Timestamp::from_second(NOW - 30).ok();
    assert_eq!(mfa_at(json!(["pwd", "otp"]), json!(NOW - 30)), at);
    assert_eq!(mfa_at(json!(["mfa"]), json!(f64::from(1_799_999_970_u32) + 0.5)), at);
    assert_eq!(mfa_at(json!(["pwd"]), json!(NOW - 30)), None);
    assert_eq!(mfa_at(json!(["mfa"]), json!(null)), None);
    let ahead = Timestamp::from_second(NOW + 60).ok();
    assert_eq!(mfa_at(json!(["mfa"]), json!(NOW + 60)), ahead, "a clock that is ahead");
    assert_eq!(mfa_at(json!(["mfa"]), json!(NOW + 61)), None, "a login that is still to come");
}
