//! Tokens of issuers: those that are good are accepted, whatever the issuer does, and no others.

use std::time::Duration;

use futures::StreamExt;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use crate::access::{GuardedApi, key, key_line};
use crate::api::ApiResponse;
use crate::issuer::{Answer, Issuer, IssuerKey, base64, now};

async fn guarded(issuer: &Issuer) -> GuardedApi {
    let keys = json!([key_line("gateway", &["backend"]), key_line("person", &["user"])]);
    GuardedApi::start(&json!({"issuers": [issuer.entry()], "keys": keys})).await
}

async fn me(guarded: &GuardedApi, token: &str) -> ApiResponse {
    guarded.api.send(guarded.api.request("GET", "/v1/me").bearer_auth(token)).await
}

#[tokio::test]
async fn a_token_by_each_algorithm_is_accepted_and_its_roles_are_ours() {
    let keys = [IssuerKey::ed25519("ed"), IssuerKey::p256("ec"), IssuerKey::rsa("rsa")];
    let issuer = Issuer::start(&keys.each_ref()).await;
    let guarded = guarded(&issuer).await;
    for key in &keys {
        let answer = me(&guarded, &issuer.token(key, "ada", &["lead", "unknown"])).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.body["subject"], "ada");
        assert_eq!(answer.body["roles"], json!(["user", "approver"]));
        assert_eq!(answer.body["auth"], "jwt");
    }
    assert_eq!(issuer.fetches(), 1);
}

#[tokio::test]
async fn a_token_that_is_not_the_issuers_is_refused() {
    let (rsa, other) = (IssuerKey::rsa("rsa"), IssuerKey::rsa("rsa"));
    let ed = IssuerKey::ed25519("ed");
    let issuer = Issuer::start(&[&rsa, &ed]).await;
    let guarded = guarded(&issuer).await;
    let good = issuer.claims("ada", &["lead"]);
    assert_eq!(me(&guarded, &rsa.sign(&good)).await.status, 200);
    let with = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        rsa.sign(&claims)
    };
    let signed = |header: Header, key: &IssuerKey| {
        jsonwebtoken::encode(&header, &good, &key.private).unwrap()
    };
    let unsigned =
        |header: &Value| format!("{}.{}.", base64(header.to_string()), base64(good.to_string()));
    let mut hmac = Header::new(Algorithm::HS256);
    hmac.kid = Some("rsa".to_owned());
    let public = EncodingKey::from_secret(rsa.public["n"].as_str().unwrap().as_bytes());
    let parts: Vec<String> = rsa.sign(&good).split('.').map(str::to_owned).collect();
    let changed = base64(good.to_string().replace("ada", "eve"));
    let mut embedded = other.header();
    embedded.kid = None;
    embedded.jwk = serde_json::from_value(other.public.clone()).ok();
    let mut elsewhere = other.header();
    elsewhere.jku = Some(format!("{}/keys", issuer.url));
    let path = Header { kid: Some("../../etc/passwd".to_owned()), ..rsa.header() };
    let critical = Header { crit: Some(vec!["b64".to_owned()]), ..rsa.header() };
    let confused = Header { kid: Some("ed".to_owned()), ..rsa.header() };
    for (what, token) in [
        ("none", unsigned(&json!({"alg": "none", "kid": "rsa"}))),
        ("no signature", unsigned(&json!({"alg": "RS256", "kid": "rsa"}))),
        ("a public key as a secret", jsonwebtoken::encode(&hmac, &good, &public).unwrap()),
        ("other claims", format!("{}.{changed}.{}", parts[0], parts[2])),
        ("another's key", other.sign(&good)),
        ("a key in the header", signed(embedded, &other)),
        ("a URL in the header", signed(elsewhere, &other)),
        ("a path as kid", signed(path, &rsa)),
        ("another key's kid", signed(confused, &rsa)),
        ("an unknown extension", signed(critical, &rsa)),
        ("another audience", with("aud", json!("other"))),
        ("another issuer", with("iss", json!("https://login.example.com/"))),
        ("our own issuer", with("iss", json!("abide"))),
        ("expired", with("exp", json!(now() - 61))),
        ("not yet", with("nbf", json!(now() + 120))),
        ("for a day", with("exp", json!(now() + 86_400))),
        ("the program itself", with("sub", json!("system"))),
    ] {
        let answer = me(&guarded, &token).await;
        assert_eq!(answer.status, 401, "{what}: {answer:?}");
    }
    assert_eq!(me(&guarded, &with("exp", json!(now() - 30))).await.status, 200, "clocks differ");
}

#[tokio::test]
async fn an_algorithm_that_the_file_does_not_name_is_refused() {
    let (rsa, ec) = (IssuerKey::rsa("rsa"), IssuerKey::p256("ec"));
    let issuer = Issuer::start(&[&rsa, &ec]).await;
    let mut entry = issuer.entry();
    entry["algorithms"] = json!(["ES256"]);
    let guarded = GuardedApi::start(&json!({"issuers": [entry]})).await;
    assert_eq!(me(&guarded, &issuer.token(&ec, "ada", &[])).await.status, 200);
    assert_eq!(me(&guarded, &issuer.token(&rsa, "ada", &[])).await.status, 401);
}

#[tokio::test]
async fn a_rotated_key_is_found_and_ten_thousand_unknown_ones_ask_the_issuer_once() {
    let (old, new) = (IssuerKey::ed25519("old"), IssuerKey::ed25519("new"));
    let issuer = Issuer::start(&[&old]).await;
    let guarded = guarded(&issuer).await;
    assert_eq!(me(&guarded, &issuer.token(&old, "ada", &[])).await.status, 200);
    issuer.rotate(&[&old, &new]);
    assert_eq!(me(&guarded, &issuer.token(&new, "ada", &[])).await.status, 200);
    assert_eq!(issuer.fetches(), 2);
    let claims = issuer.claims("ada", &[]);
    let token = |n: usize| {
        let header = Header { kid: Some(format!("k{n}")), ..new.header() };
        jsonwebtoken::encode(&header, &claims, &new.private).unwrap()
    };
    let client = reqwest::Client::new();
    let url = format!("http://{}/v1/me", guarded.api.node.public);
    let status = async |n| client.get(&url).bearer_auth(token(n)).send().await.unwrap().status();
    let statuses = futures::stream::iter(0..10_000).map(status).buffer_unordered(32);
    assert!(statuses.all(|status| std::future::ready(status == 401)).await);
    assert_eq!(issuer.fetches(), 2);
}

#[tokio::test]
async fn known_keys_hold_while_their_issuer_is_away_and_unknown_ones_are_not_judged() {
    let (known, unknown) = (IssuerKey::ed25519("known"), IssuerKey::ed25519("unknown"));
    let issuer = Issuer::start(&[&known]).await;
    let guarded = guarded(&issuer).await;
    issuer.answer(Answer::Nothing);
    let answer = me(&guarded, &issuer.token(&known, "ada", &[])).await;
    answer.is_problem(503, "unavailable");
    assert!(answer.headers.contains_key("retry-after"));
    issuer.answer(Answer::Keys);
    while me(&guarded, &issuer.token(&known, "ada", &[])).await.status == 503 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    issuer.answer(Answer::Nothing);
    assert_eq!(me(&guarded, &issuer.token(&known, "bob", &[])).await.status, 200);
    let refused = me(&guarded, &issuer.token(&unknown, "bob", &[])).await;
    refused.is_problem(503, "unavailable");
}

#[tokio::test]
async fn a_token_that_was_accepted_is_refused_once_the_file_has_its_issuer_no_longer() {
    let issuers_key = IssuerKey::ed25519("k");
    let issuer = Issuer::start(&[&issuers_key]).await;
    let guarded = guarded(&issuer).await;
    let token = issuer.token(&issuers_key, "ada", &["lead"]);
    assert_eq!(me(&guarded, &token).await.status, 200);
    guarded.replace(&json!({"keys": [key_line("new", &["user"])]}), "new").await;
    me(&guarded, &token).await.is_problem(401, "unauthorized");
}

#[tokio::test]
async fn an_issuer_that_lies_about_its_keys_is_not_believed() {
    let key = IssuerKey::ed25519("k");
    for (answer, fetches) in [
        (Answer::ElsewhereWithoutTls, 0),
        (Answer::AnotherIssuer, 0),
        (Answer::Redirect, 1),
        (Answer::Garbage, 1),
    ] {
        let issuer = Issuer::start(&[&key]).await;
        issuer.answer(answer);
        let guarded = guarded(&issuer).await;
        me(&guarded, &issuer.token(&key, "ada", &[])).await.is_problem(503, "unavailable");
        assert_eq!(issuer.fetches(), fetches);
    }
}

#[tokio::test]
async fn many_requests_wait_for_one_answer_of_a_slow_issuer() {
    let key = IssuerKey::ed25519("k");
    let issuer = Issuer::start(&[&key]).await;
    issuer.answer(Answer::Late(Duration::from_millis(300)));
    let guarded = guarded(&issuer).await;
    let tokens: Vec<String> = (0..50).map(|n| issuer.token(&key, &format!("u{n}"), &[])).collect();
    let answers = futures::future::join_all(tokens.iter().map(|token| me(&guarded, token))).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    assert_eq!(issuer.fetches(), 1);
}

#[tokio::test]
async fn a_gateway_acts_for_a_person_who_proves_to_be_themselves() {
    let issuers_key = IssuerKey::ed25519("k");
    let issuer = Issuer::start(&[&issuers_key]).await;
    let guarded = guarded(&issuer).await;
    let person = issuer.token(&issuers_key, "ada", &["lead"]);
    let send = async |id: &str, person: &str| {
        let request = guarded.api.request("GET", "/v1/me").bearer_auth(key(id));
        guarded.api.send(request.header("Abide-On-Behalf-Of", person)).await
    };
    let me = send("gateway", &person).await.body;
    assert_eq!((&me["subject"], &me["roles"]), (&json!("ada"), &json!(["user", "approver"])));
    for (id, person) in
        [("person", person.as_str()), ("gateway", "ada"), ("gateway", &key("gateway"))]
    {
        send(id, person).await.is_problem(401, "unauthorized");
    }
}

#[tokio::test]
async fn what_a_gateway_does_for_a_person_is_journalled_with_both() {
    let issuers_key = IssuerKey::ed25519("k");
    let issuer = Issuer::start(&[&issuers_key]).await;
    let guarded = guarded(&issuer).await;
    let person = issuer.token(&issuers_key, "ada", &["lead"]);
    let path = "/v1/conversations/c/messages";
    let request = guarded.api.request("POST", path).bearer_auth(key("gateway"));
    let request = request.header("Abide-On-Behalf-Of", &person);
    let sent = guarded.api.send(request.json(&json!({"agent": "demo", "text": "hi"}))).await;
    assert_eq!(sent.status, 202, "{sent:?}");
    let journal = guarded.get("gateway", "/v1/conversations/c/journal").await.body;
    assert_eq!(journal["events"][0]["data"]["owner"], "ada");
    let message = &journal["events"][1]["data"];
    assert_eq!(message["principal"], "ada");
    assert_eq!(message["identity"]["sub"], "key:gateway");
    assert_eq!(message["identity"]["on_behalf_of"]["sub"], "ada");
    assert_eq!(message["identity"]["on_behalf_of"]["iss"], issuer.url);
}
