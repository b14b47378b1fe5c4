//! Servers that know who connects: by a certificate, or as a user with few rights.

use std::path::Path;
use std::sync::Arc;

use abide_actors::journal::StoreError;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use super::super::super::Store;
use super::super::super::conformance::*;
use super::super::{CertificateError, CertificateFiles, Durability, OpenError, Redis, RedisUrl};
use super::members::member;
use super::servers::{Server, free_port};
use crate::membership::Membership;

/// What the book's page on Redis says that the user of the nodes needs.
const RULES: &str = include_str!("../../../../../deploy/docs/src/operations/redis-user.acl");

/// A directory with the certificates of an authority: those of a server and of a client.
fn certificates() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    renew(dir.path());
    dir
}

/// Writes certificates of a new authority.
fn renew(dir: &Path) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap();
    std::fs::write(dir.join("ca.pem"), authority.pem()).unwrap();
    let issuer = Issuer::new(params, key);
    for name in ["server", "client"] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &issuer).unwrap();
        std::fs::write(dir.join(format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(dir.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

fn files(dir: &Path) -> CertificateFiles {
    CertificateFiles {
        authorities: Some(dir.join("ca.pem")),
        client: Some((dir.join("client.pem"), dir.join("client.key"))),
    }
}

/// A server that asks for certificates on another port.
async fn tls_server(dir: &Path) -> (Server, RedisUrl) {
    let port = free_port();
    let port_text = port.to_string();
    let mut args = ["--appendfsync", "no", "--tls-auth-clients", "yes", "--tls-port", &port_text]
        .map(str::to_owned)
        .to_vec();
    for (setting, file) in [("ca-cert", "ca.pem"), ("cert", "server.pem"), ("key", "server.key")] {
        let path = dir.join(file).to_str().unwrap().to_owned();
        args.extend([format!("--tls-{setting}-file"), path]);
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let server = Server::start(&args).await;
    (server, format!("rediss://127.0.0.1:{port}").parse().unwrap())
}

#[tokio::test]
async fn a_server_and_its_nodes_show_each_other_certificates_that_may_be_renewed() {
    let dir = certificates();
    let (mut server, url) = tls_server(dir.path()).await;
    let trusting = url.clone().with_certificates(files(dir.path())).unwrap();
    let store = Redis::open(&trusting, Durability::Os).await.unwrap();
    store.enter(&member("a", "1", 60_000)).await.unwrap();

    let shows_nothing = CertificateFiles { client: None, ..files(dir.path()) };
    let trusts_others = CertificateFiles { authorities: None, ..files(dir.path()) };
    for files in [shows_nothing, trusts_others] {
        let url = url.clone().with_certificates(files).unwrap();
        let refused = Redis::open(&url, Durability::Os).await;
        assert!(matches!(refused, Err(OpenError::Away { .. })));
    }

    server.kill();
    renew(dir.path());
    server.restart().await;
    // The first attempt only finds that the connection is broken.
    let renewed = async || store.enter(&member("a", "2", 60_000)).await;
    let first: Result<_, StoreError> = renewed().await;
    if first.is_err() {
        super::servers::wait_until("a connection", async || renewed().await.is_ok()).await;
    }
}

#[test]
fn certificates_that_cannot_be_used_are_refused_with_their_file() {
    let dir = certificates();
    let url: RedisUrl = "rediss://127.0.0.1".parse().unwrap();
    let plain: RedisUrl = "redis://127.0.0.1".parse().unwrap();
    let refusal = |url: &RedisUrl| url.clone().with_certificates(files(dir.path())).err();
    assert!(matches!(refusal(&plain), Some(CertificateError::NoTls)));
    assert!(refusal(&url).is_none());
    std::fs::write(dir.path().join("client.key"), "no key").unwrap();
    assert!(matches!(refusal(&url), Some(CertificateError::Malformed(_))));
    std::fs::remove_file(dir.path().join("client.key")).unwrap();
    let named = refusal(&url).unwrap().to_string();
    assert!(named.contains("client.key: "), "{named}");
}

/// A server on which the nodes are the user of the book.
struct Restricted {
    server: Server,
    store: Arc<Redis>,
}

impl Restricted {
    async fn start() -> Self {
        let server = Server::start(&["--appendfsync", "no"]).await;
        let rules: Vec<&str> = RULES.split_whitespace().collect();
        let [_user, name, rules @ ..] = &rules[..] else { panic!("no rules") };
        let set = [&["ACL", "SETUSER", name], rules, &["on", ">secret"]].concat();
        server.ask::<()>(&set).await;
        let url = format!("redis://{name}:secret@127.0.0.1:{}", server.port).parse().unwrap();
        let store = Arc::new(Redis::open(&url, Durability::Os).await.unwrap());
        Self { server, store }
    }

    async fn fresh(&self) -> Arc<dyn Store> {
        self.server.ask::<()>(&["FLUSHDB"]).await;
        Arc::clone(&self.store) as Arc<dyn Store>
    }
}

conformance!(as one: a_user_with_the_rules_of_the_book_keeps_every_promise, Restricted::start().await);

#[tokio::test]
async fn the_user_of_the_book_reaches_nothing_else() {
    let restricted = Restricted::start().await;
    let port = restricted.server.port;
    let client = redis::Client::open(format!("redis://abide:secret@127.0.0.1:{port}")).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    for command in
        [&["GET", "other"][..], &["FLUSHALL"], &["KEYS", "*"], &["CONFIG", "SET", "maxmemory", "1"]]
    {
        let refused: redis::RedisResult<redis::Value> =
            super::servers::words(command).query_async(&mut connection).await;
        assert_eq!(refused.unwrap_err().code(), Some("NOPERM"), "{command:?}");
    }
    let store = &restricted.store;
    assert!(store.enter(&member("a", "1", 60_000)).await.is_ok());
}
