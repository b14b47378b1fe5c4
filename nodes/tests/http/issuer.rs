//! An OpenID issuer of these tests, on a port of its own: it rotates its keys, is away, and lies.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair,
};
use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

/// The bytes in front of the PKCS #1 key in the PKCS #8 document of an RSA key.
const PKCS8_HEADER_BYTES: usize = 26;

/// An issuer that serves its OpenID configuration and its keys.
pub(crate) struct Issuer {
    pub(crate) url: String,
    shared: Arc<Shared>,
    _server: AbortOnDropHandle<()>,
}

struct Shared {
    url: String,
    keys: Mutex<Vec<Value>>,
    answer: Mutex<Answer>,
    fetches: AtomicUsize,
}

/// What the issuer answers when it is asked for its keys.
#[derive(Clone)]
pub(crate) enum Answer {
    Keys,
    Late(Duration),
    Nothing,
    Redirect,
    Garbage,
    /// The keys are elsewhere, where anybody could change them.
    ElsewhereWithoutTls,
    /// The configuration is another issuer's.
    AnotherIssuer,
}

/// A key pair of an issuer.
pub(crate) struct IssuerKey {
    pub(crate) kid: String,
    pub(crate) algorithm: Algorithm,
    pub(crate) private: EncodingKey,
    pub(crate) public: Value,
}

impl Issuer {
    pub(crate) async fn start(keys: &[&IssuerKey]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let keys = keys.iter().map(|key| key.public.clone()).collect();
        let shared = Arc::new(Shared {
            url: url.clone(),
            keys: Mutex::new(keys),
            answer: Mutex::new(Answer::Keys),
            fetches: AtomicUsize::new(0),
        });
        let (of_keys, of_configuration) = (shared.clone(), shared.clone());
        let router =
            Router::new().route("/keys", get(move || async move { of_keys.keys().await })).route(
                "/.well-known/openid-configuration",
                get(move || async move { of_configuration.configuration() }),
            );
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, shared, _server: AbortOnDropHandle::new(server) }
    }

    /// The entry of the file for this issuer.
    pub(crate) fn entry(&self) -> Value {
        json!({"issuer": self.url, "audience": ["abide"],
            "roles": {"lead": ["user", "approver"], "bot": ["backend"]}})
    }

    pub(crate) fn rotate(&self, keys: &[&IssuerKey]) {
        *self.shared.keys.lock().unwrap() = keys.iter().map(|key| key.public.clone()).collect();
    }

    pub(crate) fn answer(&self, answer: Answer) {
        *self.shared.answer.lock().unwrap() = answer;
    }

    /// How often the keys were asked for.
    pub(crate) fn fetches(&self) -> usize {
        self.shared.fetches.load(Ordering::SeqCst)
    }

    /// Claims that hold for ten minutes.
    pub(crate) fn claims(&self, sub: &str, roles: &[&str]) -> Value {
        json!({"iss": self.url, "sub": sub, "aud": "abide", "exp": now() + 600, "roles": roles})
    }

    /// A token with these claims.
    pub(crate) fn token(&self, key: &IssuerKey, sub: &str, roles: &[&str]) -> String {
        key.sign(&self.claims(sub, roles))
    }
}

impl Shared {
    async fn keys(&self) -> Response {
        self.fetches.fetch_add(1, Ordering::SeqCst);
        let keys = json!({"keys": *self.keys.lock().unwrap()}).to_string();
        let answer = self.answer.lock().unwrap().clone();
        match answer {
            Answer::Late(delay) => tokio::time::sleep(delay).await,
            Answer::Nothing => return StatusCode::BAD_GATEWAY.into_response(),
            Answer::Redirect => return Redirect::temporary("/elsewhere").into_response(),
            Answer::Garbage => return "<html>".into_response(),
            Answer::Keys | Answer::ElsewhereWithoutTls | Answer::AnotherIssuer => {}
        }
        keys.into_response()
    }

    fn configuration(&self) -> String {
        let (mut issuer, mut jwks_uri) = (self.url.clone(), format!("{}/keys", self.url));
        match *self.answer.lock().unwrap() {
            Answer::ElsewhereWithoutTls => jwks_uri = "http://keys.example.com/".to_owned(),
            Answer::AnotherIssuer => issuer = "https://login.example.com/".to_owned(),
            _ => {}
        }
        json!({"issuer": issuer, "jwks_uri": jwks_uri}).to_string()
    }
}

impl IssuerKey {
    pub(crate) fn ed25519(kid: &str) -> Self {
        let pair = Ed25519KeyPair::generate().unwrap();
        let public = json!({"kty": "OKP", "crv": "Ed25519", "x": base64(pair.public_key())});
        let private = EncodingKey::from_ed_der(pair.to_pkcs8v1().unwrap().as_ref());
        Self::new(kid, Algorithm::EdDSA, private, public)
    }

    pub(crate) fn p256(kid: &str) -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let point = pair.public_key().as_ref();
        let (x, y) = point[1..].split_at(32);
        let public = json!({"kty": "EC", "crv": "P-256", "x": base64(x), "y": base64(y)});
        let private = EncodingKey::from_ec_der(pair.to_pkcs8v1().unwrap().as_ref());
        Self::new(kid, Algorithm::ES256, private, public)
    }

    pub(crate) fn rsa(kid: &str) -> Self {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        let (n, e) = (pair.public_key().modulus(), pair.public_key().exponent());
        let (n, e) = (n.big_endian_without_leading_zero(), e.big_endian_without_leading_zero());
        let public = json!({"kty": "RSA", "n": base64(n), "e": base64(e)});
        let pkcs8 = AsDer::<aws_lc_rs::encoding::Pkcs8V1Der<'_>>::as_der(&pair).unwrap();
        let private = EncodingKey::from_rsa_der(&pkcs8.as_ref()[PKCS8_HEADER_BYTES..]);
        Self::new(kid, Algorithm::RS256, private, public)
    }

    fn new(kid: &str, algorithm: Algorithm, private: EncodingKey, mut public: Value) -> Self {
        public["kid"] = json!(kid);
        public["use"] = json!("sig");
        Self { kid: kid.to_owned(), algorithm, private, public }
    }

    pub(crate) fn header(&self) -> Header {
        Header { kid: Some(self.kid.clone()), ..Header::new(self.algorithm) }
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        jsonwebtoken::encode(&self.header(), claims, &self.private).unwrap()
    }
}

pub(crate) fn base64(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// The seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}
