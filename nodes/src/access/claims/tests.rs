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

fn identified(change: impl FnOnce(&mut Value)) -> Result<Credential, Refusal> {
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
        ("iss", json!("https://login.example.com"), Some(Refusal::UnknownIssuer)),
        ("aud", json!("abide other"), Some(Refusal::Audience)),
        ("aud", json!(null), Some(Refusal::Audience)),
        ("aud", json!(["x", "other"]), None),
        ("exp", json!(null), Some(Refusal::Claims)),
        ("exp", json!("tomorrow"), Some(Refusal::Claims)),
        ("exp", json!(NOW - 60), Some(Refusal::Expired)),
        ("exp", json!(NOW - 59), None),
        ("exp", json!(NOW + 3_660), None),
        ("exp", json!(NOW + 3_661), Some(Refusal::NotYet)),
        ("exp", json!(1e300), Some(Refusal::Claims)),
        ("exp", json!(i64::MAX), Some(Refusal::Claims)),
        ("nbf", json!(NOW + 60), None),
        ("nbf", json!(NOW + 61), Some(Refusal::NotYet)),
        ("nbf", json!("x"), Some(Refusal::NotYet)),
        ("iat", json!(NOW + 61), Some(Refusal::NotYet)),
        ("sub", json!(""), Some(Refusal::Claims)),
        ("sub", json!("system"), Some(Refusal::Claims)),
        ("sub", json!("a\nb"), Some(Refusal::Claims)),
        ("sub", json!("x".repeat(256)), Some(Refusal::Claims)),
        ("sub", json!(7), Some(Refusal::Claims)),
        ("org", json!("nobody"), Some(Refusal::Tenant)),
        ("org", json!("ACME"), Some(Refusal::Claims)),
        ("org", json!(null), Some(Refusal::Claims)),
        ("groups", json!("a b"), None),
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
}
