//! Servers that know who connects: by a certificate, or as a user with few rights.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use abide_actors::journal::{Journal, StoreError};
use abide_actors::usage_counts::UsageCounts;
use abide_conversation::Seq;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use super::super::super::Store;
use super::super::super::conformance::*;
use super::super::{CertificateError, CertificateFiles, Durability, OpenError, Redis, RedisUrl};
use super::members::member;
use super::servers::{Server, free_port};
use super::single::assert_unavailable;
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

/// The commands of a text: what stands behind each of these pieces, up to its quote.
fn commands(text: &str, pieces: &[&str]) -> BTreeSet<String> {
    let behind = |piece: &&str| -> Vec<String> {
        let found = text.split(*piece).skip(1);
        let word = |rest: &str| rest.split(['"', '\'']).next().unwrap_or_default().to_lowercase();
        found.map(word).collect()
    };
    pieces.iter().flat_map(behind).collect()
}

/// The texts of all files below a directory with this ending, but for those of tests.
fn texts(dir: &Path, ending: &str) -> String {
    let paths = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
    let read = |path: PathBuf| {
        if path.is_dir() {
            return if path.ends_with("tests") { String::new() } else { texts(&path, ending) };
        }
        let is_ours = path.extension().is_some_and(|it| it == ending);
        if is_ours { std::fs::read_to_string(path).unwrap() } else { String::new() }
    };
    paths.map(read).collect()
}

#[test]
fn the_user_of_the_book_may_what_the_store_and_its_scripts_use() {
    let store = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/redis");
    let mut used = commands(&texts(&store, "lua"), &["redis.call('", "each('", "redis.pcall('"]);
    used.extend(commands(&texts(&store, "rs"), &["cmd(\"", "command(\""]));
    // What sentinels are asked, and those are other servers.
    used.remove("sentinel");
    let words = RULES.split_whitespace().filter_map(|word| word.strip_prefix('+'));
    let granted: BTreeSet<String> =
        words.map(|word| word.split('|').next().unwrap_or_default().to_owned()).collect();
    assert_eq!(used.difference(&granted).collect::<Vec<_>>(), [""; 0], "not granted");
    // The client itself connects, and sends scripts by their hashes.
    let own = ["ping", "hello", "select", "client", "script", "evalsha", "wait"];
    let unused = granted.difference(&used).filter(|it| !own.contains(&it.as_str()));
    assert_eq!(unused.collect::<Vec<_>>(), [""; 0], "granted and not used");
}

#[tokio::test]
async fn a_commit_that_may_not_read_all_that_it_needs_is_refused_whole() {
    let Restricted { server, store } = Restricted::start().await;
    let commit_of = |seq: u64, owner: &str| {
        let mut commit = commit(seq, seq);
        commit.summary.participants.owner = Some(owner.to_owned());
        commit.usage = Some(UsageCounts { turns: 1, ..UsageCounts::default() });
        commit.responses = vec![response(&format!("key:{seq}"), owner, 60)];
        commit
    };
    let held = claim_conversation(&*store, "a").await;
    store.append(&id("a"), &held, commit_of(1, "ann")).await.unwrap();
    server.ask::<()>(&["ACL", "SETUSER", "abide", "-hlen"]).await;
    // Another row of the same day needs the number of rows.
    let refused = store.append(&id("a"), &held, commit_of(2, "bob")).await;
    assert_unavailable(refused, "can't run this command");
    assert_eq!(store.summary(&id("a")).await.unwrap().unwrap().last_seq, Seq::new(1));
    assert_eq!(store.events(&id("a"), Seq::ZERO, 9).await.unwrap().len(), 1);
    let stored = async || store.stored_response(&scope_of("a"), "key:2", at(0)).await;
    assert_eq!(stored().await, Ok(None));
    server.ask::<()>(&["ACL", "SETUSER", "abide", "+hlen"]).await;
    store.append(&id("a"), &held, commit_of(2, "bob")).await.unwrap();
    assert_eq!(stored().await, Ok(Some(response("key:2", "bob", 60))));
}

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
