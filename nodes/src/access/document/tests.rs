//! The mistakes of an auth file, each told with its field.
#![allow(clippy::unwrap_used)]

use std::io;
use std::path::Path;

use serde_json::{Value, json};

use super::*;

/// An Ed25519 key of `openssl genpkey`, for tests alone.
const PEM: &str = "-----BEGIN PRIVATE KEY-----\n\
    MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n\
    -----END PRIVATE KEY-----\n";

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    match path.to_str() {
        Some("token.pem") => Ok(PEM.into()),
        Some("junk.pem") => Ok(b"junk".to_vec()),
        Some("jwks.json") => Ok(json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k",
            "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]})
        .to_string()
        .into()),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

fn parse(document: &Value) -> Result<AuthDocument, Vec<String>> {
    let parsed = AuthDocument::parse(&document.to_string(), &mut read_file);
    parsed.map_err(|mistakes| mistakes.0.iter().map(Mistake::to_string).collect())
}

fn mistakes(document: &Value) -> Vec<String> {
    parse(document).err().unwrap_or_default()
}

fn key(id: &str, members: Value) -> Value {
    let mut key = json!({"id": id, "sha256": "0".repeat(64), "tenant": "default"});
    key.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    key
}

#[test]
fn the_example_of_the_reference_is_valid() {
    let text = "
keys:
  - {id: ops1, sha256: \"0000000000000000000000000000000000000000000000000000000000000000\", \
roles: [operator], name: ops}
  - {id: shop, sha256: \"0000000000000000000000000000000000000000000000000000000000000001\", \
tenant: acme, roles: [backend], name: shop}
issuers:
  - issuer: https://login.example.com/
    audience: [abide]
    jwks: https://login.example.com/keys
    algorithms: [ES256, RS256]
    claims: {tenant: /org_id, roles: /roles, groups: /groups, name: /name}
    roles: {support-lead: [user, approver], bot: [backend]}
tokens: {keys: [file:token.pem], ttl: 15m}
tenants:
  default: {}
  acme: {agents_over_http: data, allowed_hosts: [api.acme.internal], variables: [\"ACME_*\"], \
quotas: {requests_per_minute: 6000, open_streams: 500, conversations: 1000000, blob_bytes: 10GiB, \
tokens_per_day: 50000000}, retention: {idle: 365d}}
";
    let document = AuthDocument::parse(text, &mut read_file).unwrap();
    assert_eq!(document.keys.keys().collect::<Vec<_>>(), ["ops1", "shop"]);
    assert_eq!(document.keys["ops1"].tenant, None);
    let acme = &document.tenants[&Tenant::parse("acme").unwrap()];
    assert_eq!(acme.quotas.blob_bytes, Some(10 << 30));
    assert_eq!(acme.retention.map(|idle| idle.as_secs()), Some(365 * 86_400));
    assert_eq!(acme.agents_over_http, Some(AgentsOverHttp::Data));
    let issuer = &document.issuers["https://login.example.com/"];
    assert!(matches!(&issuer.jwks, JwksSource::Url(url) if url.path() == "/keys"));
    assert_eq!(issuer.claims.tenant, ClaimSource::Pointer("/org_id".to_owned()));
    let tokens = document.tokens.unwrap();
    assert_eq!(tokens.ttl.as_secs(), 900);
    assert!(tokens.find(tokens.first.kid()).is_some() && tokens.find("other").is_none());
}

#[test]
fn a_file_by_which_nobody_is_known_is_a_mistake() {
    for text in ["", "{}", "keys: []\n", "keys:\nissuers: []\n", "tenants: {acme: {}}"] {
        let told = AuthDocument::parse(text, &mut read_file).err().unwrap().to_string();
        assert!(told.starts_with("keys: must have a key"), "{text}: {told}");
    }
    let document = json!({"keys": [key("a", json!({"roles": ["user"]}))]});
    assert!(parse(&document).unwrap().tenants.keys().eq([&Tenant::default()]));
}

#[test]
fn all_mistakes_are_told_at_once_each_with_its_path() {
    let document = json!({
        "keys": [
            key("a_b", json!({"sha256": "short", "roles": ["king", "user"]})),
            key("b", json!({"tenant": "acme", "roles": []})),
            key("c", json!({"tenant": null, "roles": ["backend"]})),
            key("c", json!({"roles": ["user"], "color": "red"})),
            key("c", json!({"roles": ["user"]})),
        ],
        "issuers": [
            {"issuer": "http://example.com", "audience": []},
            {"issuer": "https://i", "audience": ["a"], "jwks": "ftp://x", "algorithms": []},
            {"issuer": "https://i", "audience": ["a"], "jwks": "file:none", "claims":
                {"roles": "roles", "tenant": {"const": "acme"}}, "roles": {"lead": ["boss"]}},
        ],
        "tokens": {"keys": ["token.pem", "file:junk.pem", "file:none"], "ttl": "2h"},
        "tenants": {"default": {"quotas": {"blob_bytes": "10GB"}, "variables": ["A-B"],
            "allowed_hosts": ["a.b:80", "*.a.b", "http://a.b"], "retention": {"idle": "0s"}}, "A": {}},
        "extra": 1,
    });
    let told = mistakes(&document);
    for path in [
        "extra: is unknown",
        "tenants.default.variables[0]: ",
        "tenants.default.allowed_hosts[1]: ",
        "tenants.default.allowed_hosts[2]: ",
        "tenants.default.quotas.blob_bytes: ",
        "tenants.default.retention.idle: ",
        "tenants.A: ",
        "keys[0].id: ",
        "keys[0].sha256: must be 64 hex digits",
        "keys[0].roles[0]: must be one of user, ",
        "keys[1].tenant: is not named under tenants",
        "keys[1].roles: must name at least one role",
        "keys[2].tenant: is required",
        "keys[3].color: unknown field",
        "keys[4].id: is the id of another key",
        "issuers[0].audience: ",
        "issuers[0].issuer: must be a URL with https",
        "issuers[1].algorithms: ",
        "issuers[1].jwks: ",
        "issuers[2].claims.roles: must be a JSON pointer",
        "issuers[2].claims.tenant: is not named under tenants",
        "issuers[2].roles.lead[0]: ",
        "issuers[2].jwks: cannot be read: ",
        "tokens.keys[0]: must be file:PATH",
        "tokens.keys[1]: holds no Ed25519 private key",
        "tokens.keys[2]: cannot be read: ",
        "tokens.ttl: ",
    ] {
        assert!(told.iter().any(|told| told.starts_with(path)), "{path}: {told:#?}");
    }
}

#[test]
fn a_text_that_is_no_document_is_refused() {
    for text in ["keys: [", "- a", "keys: {a: b}", "tenants: []", "a: 1\na: 2"] {
        assert!(AuthDocument::parse(text, &mut read_file).is_err(), "{text}");
    }
}

#[test]
fn an_issuers_keys_are_where_nobody_can_change_them() {
    let issuer = |issuer: &str, jwks: Option<&str>| {
        mistakes(&json!({"issuers": [{"issuer": issuer, "audience": ["a"], "jwks": jwks}]}))
    };
    for (name, jwks) in [
        ("https://i/", None),
        ("http://127.0.0.1:1", None),
        ("http://localhost", Some("http://[::1]:2/keys")),
        ("https://i", Some("file:jwks.json")),
    ] {
        assert_eq!(issuer(name, jwks), Vec::<String>::new(), "{name}");
    }
    for (name, jwks) in [
        ("http://i", None),
        ("https://i", Some("http://i/keys")),
        ("https://i", Some("https://me:secret@i/keys")),
        ("https://i", Some("file:")),
        ("i", None),
    ] {
        assert_eq!(issuer(name, jwks).len(), 1, "{name}");
    }
}

#[test]
fn an_issuer_of_several_tenants_says_where_the_tenant_is() {
    let document = |claims: Value| {
        json!({"tenants": {"a": {}, "b": null},
            "issuers": [{"issuer": "https://i", "audience": ["x"], "claims": claims}]})
    };
    assert_eq!(mistakes(&document(json!({}))).len(), 1);
    assert!(mistakes(&document(json!({"tenant": "/org"}))).is_empty());
    assert!(mistakes(&document(json!({"tenant": {"const": "b"}}))).is_empty());
    assert_eq!(mistakes(&document(json!({"tenant": {"const": 1}}))).len(), 1);
}

#[test]
fn how_people_sign_in_is_checked_and_its_origins_are_known() {
    let with = |console: Value| {
        json!({"issuers": [{"issuer": "https://a.example:8443/tenant", "audience": ["abide"],
            "jwks": "file:jwks.json", "console": console}]})
    };
    let all = json!({"client_id": "c", "scope": "openid", "resource": "https://abide.example",
        "token": "id_token", "connect": ["https://b.example/token", "https://b.example/keys"]});
    let document = parse(&with(all)).unwrap();
    let sign_in = document.issuers["https://a.example:8443/tenant"].sign_in.clone().unwrap();
    assert_eq!(sign_in.origins(), ["https://a.example:8443", "https://b.example"]);
    assert_eq!(sign_in.issuer, "https://a.example:8443/tenant");
    assert_eq!((sign_in.scope.as_str(), sign_in.token.member()), ("openid", "id_token"));
    let bad = json!({"client_id": "", "connect": ["http://b.example/token"]});
    let rule = "must be a URL with https, or with http and a loopback host";
    let expected = [
        "issuers[0].console.client_id: must not be empty".to_owned(),
        format!("issuers[0].console.connect[0]: {rule}"),
    ];
    assert_eq!(mistakes(&with(bad)), expected);
    assert_eq!(mistakes(&with(json!({"client_id": "c", "token": "both"}))).len(), 1);
    assert_eq!(mistakes(&with(json!({"client_id": "c", "secret": "s"}))).len(), 1);
}
