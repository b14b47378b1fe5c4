//! Tests of who completes a handshake, from either side.
#![allow(clippy::unwrap_used)]

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_rustls::{TlsAcceptor, client};
use tokio_util::task::AbortOnDropHandle;

use super::super::keys::derive_cookie;
use super::super::secret::{ClusterSecret, ClusterSecrets, MIN_SECRET_CHARS};
use super::*;

/// A listening node.
struct Listener {
    handshake: Arc<Handshake>,
    address: String,
    events: UnboundedReceiver<LinkEvent>,
    _accept: AbortOnDropHandle<()>,
}

impl Listener {
    async fn start(name: &str, secret: &str) -> Self {
        Self::start_with(handshake(name, secret)).await
    }

    async fn start_with(handshake: Arc<Handshake>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, events) = unbounded_channel();
        let accept = tokio::spawn(handshake.clone().accept(listener, sender));
        Self { handshake, address, events, _accept: AbortOnDropHandle::new(accept) }
    }

    fn target(&self) -> Target {
        let (name, process) = (self.handshake.name.clone(), self.handshake.process.clone());
        Target { name, process, address: self.address.clone(), probe: false, legacy: false }
    }

    /// The names of the peers whose connections were accepted before `last` dials.
    async fn accepted_before(&mut self, last: &Handshake) -> Vec<NodeName> {
        last.dial(&self.target()).await.unwrap();
        let mut names = Vec::new();
        loop {
            let Some(LinkEvent::Accepted(Authenticated { name, dialled: false, .. })) =
                self.events.recv().await
            else {
                panic!("not an accepted connection");
            };
            if name == last.name {
                return names;
            }
            names.push(name);
        }
    }
}

/// The secret of this text, which the tests need not write out in full length.
fn secret(text: &str) -> ClusterSecret {
    ClusterSecret::new(text.repeat(MIN_SECRET_CHARS)).unwrap()
}

fn keys(shown: &str, also: Option<&str>) -> Keys {
    let secrets = ClusterSecrets { shown: Some(secret(shown)), also: also.map(secret) };
    Keys::derive(&secrets).unwrap()
}

fn handshake(name: &str, secret: &str) -> Arc<Handshake> {
    handshake_with(name, keys(secret, None))
}

fn handshake_with(name: &str, keys: Keys) -> Arc<Handshake> {
    let (name, process) = (NodeName::new(name), ProcessId::new(format!("p-{name}")));
    let has_legacy_members = AtomicBool::new(false);
    Arc::new(Handshake {
        name,
        process,
        keys,
        cookie: "cookie".to_owned(),
        has_legacy_members,
        rejections: RejectionLog::default(),
    })
}

/// Connects, and proves the secret.
async fn prove(address: &str, from: &Handshake) -> client::TlsStream<TcpStream> {
    let mut stream = connect(address, from).await;
    let proofs = Proofs::new(&from.keys.proof_key, stream.get_ref().1).unwrap();
    assert_eq!(proofs.dial(&mut stream).await.unwrap(), Verdict::Proved);
    stream
}

/// Connects, and proves nothing yet.
async fn connect(address: &str, from: &Handshake) -> client::TlsStream<TcpStream> {
    let tcp = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("abide").unwrap();
    from.keys.connector.connect(name, tcp).await.unwrap()
}

/// Sends this hello to a listener with the right key, and returns its answer.
async fn send_hello(listener: &Listener, from: &Handshake, hello: &Hello) -> Option<Hello> {
    let mut stream = prove(&listener.address, from).await;
    hello.send(&mut stream).await.unwrap();
    Hello::receive(&mut stream).await.ok()
}

#[tokio::test]
async fn a_peer_with_the_key_is_accepted_and_reaches_its_target() {
    let mut b = Listener::start("b", "secret").await;
    let a = handshake("a", "secret");
    let connection = a.dial(&b.target()).await.unwrap_or_else(|error| panic!("{error:?}"));
    let Authenticated { name, process, dialled, .. } = connection;
    assert_eq!((name.as_str(), process.as_str(), dialled), ("b", "p-b", true));
    assert_eq!(b.accepted_before(&handshake("z", "secret")).await, [NodeName::new("a")]);
}

#[tokio::test]
async fn a_peer_with_another_secret_is_not_accepted() {
    let mut b = Listener::start("b", "secret").await;
    assert_eq!(handshake("a", "other").dial(&b.target()).await.err(), Some(DialError::Unreachable));
    assert!(b.accepted_before(&handshake("z", "secret")).await.is_empty());
}

/// The three rolling restarts that change a secret: at any time there are nodes of two neighbouring
/// steps, and each of them dials each.
#[tokio::test]
async fn neighbouring_steps_of_a_change_of_the_secret_connect() {
    let steps = [("old", None), ("old", Some("new")), ("new", Some("old")), ("new", None)];
    for (at, (shown, also)) in steps.into_iter().enumerate() {
        let mut listener = Listener::start_with(handshake_with("b", keys(shown, also))).await;
        for (dialled_from, (shown, also)) in steps.into_iter().enumerate() {
            let dialler = handshake_with("a", keys(shown, also));
            let outcome = dialler.dial(&listener.target()).await.map(|_| ());
            // The last step has forgotten what the first one shows, and only that.
            let accepted = match (dialled_from, at) {
                (0 | 1, 3) | (2 | 3, 0) => Err(DialError::Unreachable),
                _ => Ok(()),
            };
            assert_eq!(outcome, accepted, "{dialled_from} dials {at}");
            if outcome.is_ok() {
                assert!(listener.events.recv().await.is_some());
            }
        }
    }
}

#[tokio::test]
async fn a_probe_learns_who_is_there_is_reported_and_is_not_accepted() {
    let mut b = Listener::start("b", "secret").await;
    let target = Target { probe: true, ..b.target() };
    assert!(handshake("a", "secret").dial(&target).await.is_ok());
    let Some(LinkEvent::Probed { process }) = b.events.recv().await else { panic!("no probe") };
    assert_eq!(process.as_str(), "p-a");
    assert!(b.accepted_before(&handshake("z", "secret")).await.is_empty());
}

#[tokio::test]
async fn a_peer_that_wants_another_process_learns_that_it_is_gone() {
    let mut b = Listener::start("b", "secret").await;
    let target = Target { process: ProcessId::new("p-before"), ..b.target() };
    assert_eq!(handshake("a", "secret").dial(&target).await.err(), Some(DialError::OtherProcess));
    assert!(b.accepted_before(&handshake("z", "secret")).await.is_empty());
}

#[tokio::test]
async fn an_address_without_a_listener_refuses() {
    let b = Listener::start("b", "secret").await;
    let target = b.target();
    drop(b);
    let a = handshake("a", "secret");
    // The listener goes when its task does.
    let refused = async {
        while a.dial(&target).await.err() != Some(DialError::Refused) {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(30), refused).await.unwrap();
}

#[tokio::test]
async fn a_node_of_another_wire_version_is_refused_by_both() {
    let mut b = Listener::start("b", "secret").await;
    let a = handshake("a", "secret");
    let to = Some(ProcessId::new("p-b"));
    let answer =
        send_hello(&b, &a, &Hello { protocol_version: PROTOCOL_VERSION + 1, to, ..a.hello() })
            .await
            .unwrap();
    // The peer learns our version from the answer, whatever its own is.
    assert_eq!(answer, b.handshake.hello());
    assert!(b.accepted_before(&handshake("z", "secret")).await.is_empty());

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let newer = b.handshake.clone();
    tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        let acceptor = TlsAcceptor::from(newer.keys.acceptor.clone());
        let mut stream = acceptor.accept(tcp).await.unwrap();
        let proofs = Proofs::new(&newer.keys.proof_key, stream.get_ref().1).unwrap();
        assert_eq!(Proofs::listen(&[proofs], &mut stream).await.unwrap(), Verdict::Proved);
        Hello::receive(&mut stream).await.unwrap();
        Hello { protocol_version: PROTOCOL_VERSION + 1, ..newer.hello() }
            .send(&mut stream)
            .await
            .unwrap();
    });
    let target = Target { address, ..b.target() };
    assert_eq!(a.dial(&target).await.err(), Some(DialError::Unreachable));
}

/// A relay leads the connection back, so that this node answers whichever process is the target.
#[tokio::test]
async fn a_handshake_that_comes_back_is_refused_at_both_ends() {
    let mut a = Listener::start("a", "secret").await;
    assert_eq!(a.handshake.dial(&a.target()).await.err(), Some(DialError::OtherProcess));
    let elsewhere = Target { process: ProcessId::new("p-b"), ..a.target() };
    assert_eq!(a.handshake.dial(&elsewhere).await.err(), Some(DialError::OtherProcess));
    let to = Some(ProcessId::new("p-a"));
    send_hello(&a, &a.handshake, &Hello { to, ..a.handshake.hello() }).await.unwrap();
    assert!(a.accepted_before(&handshake("z", "secret")).await.is_empty());
}

#[tokio::test]
async fn a_hello_that_is_too_long_or_no_hello_ends_the_connection() {
    let mut b = Listener::start("b", "secret").await;
    let a = handshake("a", "secret");
    for bytes in [&[0xff; 64][..], b"\x00\x02{}", b"\x00\x04\xf0\x9f\x92\xa9"] {
        let mut stream = prove(&b.address, &a).await;
        stream.write_all(bytes).await.unwrap();
        stream.flush().await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.is_empty());
    }
    assert!(b.accepted_before(&handshake("z", "secret")).await.is_empty());
}

#[tokio::test]
async fn the_listener_of_the_library_accepts_nobody_even_with_the_key() {
    let keys = keys("secret", None);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    let name = ServerName::try_from("abide").unwrap();
    let (inside, outside) =
        tokio::join!(keys.nobody.accept(accepted), keys.connector.connect(name, tcp));
    assert!(inside.is_err() && outside.is_err());
}

#[test]
fn equal_secrets_give_equal_keys_and_different_secrets_different_ones() {
    let derived = |shown: Option<ClusterSecret>| {
        let cookie = derive_cookie(shown.as_ref()).unwrap();
        let keys = Keys::derive(&ClusterSecrets { shown, also: None }).unwrap();
        [cookie, keys.proof_key.map(|byte| format!("{byte:02x}")).concat()]
    };
    let (one, again) = (derived(Some(secret("secret"))), derived(Some(secret("secret"))));
    let (other, none) = (derived(Some(secret("secre"))), derived(None));
    assert_eq!(one, again);
    for part in 0..2 {
        assert_ne!(one[part], other[part]);
        assert_ne!(one[part], none[part]);
        assert_eq!(none[part].len(), 64);
    }
    assert_ne!(one[0], one[1]);
}

/// What a stranger could test its guesses against, had it not the secret: the key of the TLS
/// connection, which is another for each process, and what the node sends before it has a proof.
#[tokio::test]
async fn a_stranger_sees_nothing_that_is_derived_from_the_secret() {
    let mut b = Listener::start("b", "secret").await;
    let mut again = Listener::start("b", "secret").await;
    let stranger = handshake("a", "other");
    let mut tls_keys = Vec::new();
    for listener in [&b, &again] {
        let stream = connect(&listener.address, &stranger).await;
        tls_keys.push(stream.get_ref().1.peer_certificates().unwrap()[0].as_ref().to_vec());
    }
    assert_ne!(tls_keys[0], tls_keys[1]);

    let mut stream = connect(&b.address, &stranger).await;
    stream.write_all(&[7; 32]).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert_eq!(answer, [0; 32], "the answer to a wrong proof is more than a refusal");
    for listener in [&mut b, &mut again] {
        assert!(listener.accepted_before(&handshake("z", "secret")).await.is_empty());
    }
}

/// A man in the middle has two connections, and a proof is good for one of them.
#[tokio::test]
async fn a_proof_is_worth_nothing_in_another_connection() {
    let mut b = Listener::start("b", "secret").await;
    let a = handshake("a", "secret");
    let (mut one, other) = (connect(&b.address, &a).await, connect(&b.address, &a).await);
    let proofs = Proofs::new(&a.keys.proof_key, other.get_ref().1).unwrap();
    assert_eq!(proofs.dial(&mut one).await.unwrap(), Verdict::Refused);
    assert!(b.accepted_before(&handshake("z", "secret")).await.is_empty());
}

/// A rolling upgrade: the members that know the old handshake only get it, and nobody gets it once
/// they are gone.
#[tokio::test]
async fn the_old_handshake_is_spoken_only_while_a_member_needs_it() {
    let mut b = Listener::start("b", "secret").await;
    let a = handshake("a", "secret");
    let old = Target { legacy: true, ..b.target() };
    assert_eq!(a.dial(&old).await.err(), Some(DialError::Unreachable));
    b.handshake.has_legacy_members.store(true, Ordering::Relaxed);
    assert!(a.dial(&old).await.is_ok());
    assert_eq!(b.accepted_before(&handshake("z", "secret")).await, [NodeName::new("a")]);
    assert_eq!(handshake("c", "other").dial(&old).await.err(), Some(DialError::Unreachable));
    b.handshake.has_legacy_members.store(false, Ordering::Relaxed);
    assert_eq!(a.dial(&old).await.err(), Some(DialError::Unreachable));
    assert!(b.accepted_before(&handshake("z", "secret")).await.is_empty());
}
