//! Who gets through the door, from either side.
#![allow(clippy::unwrap_used)]

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_util::task::AbortOnDropHandle;

use super::*;

struct House {
    door: Arc<Handshake>,
    address: String,
    came: UnboundedReceiver<LinkEvent>,
    _accept: AbortOnDropHandle<()>,
}

impl House {
    async fn of(name: &str, secret: &str) -> Self {
        let door = door(name, secret);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (happened, came) = unbounded_channel();
        let accept = tokio::spawn(door.clone().accept(listener, happened));
        Self { door, address, came, _accept: AbortOnDropHandle::new(accept) }
    }

    fn target(&self) -> Target {
        let (name, process) = (self.door.name.clone(), self.door.process.clone());
        Target { name, process, address: self.address.clone(), probe: false }
    }

    /// Who came through last, when everybody before `last` has been dealt with.
    async fn through(&mut self, last: &Handshake) -> Vec<String> {
        last.dial(&self.target()).await.unwrap();
        let mut names = Vec::new();
        loop {
            let Some(LinkEvent::Opened(Authenticated { name, dialled: false, .. })) =
                self.came.recv().await
            else {
                panic!("something else came");
            };
            if name == last.name {
                return names;
            }
            names.push(name);
        }
    }
}

fn door(name: &str, secret: &str) -> Arc<Handshake> {
    let keys = Keys::derive(Some(secret)).unwrap();
    let (name, process) = (name.to_owned(), format!("p-{name}"));
    Arc::new(Handshake { name, process, keys, refusals: RejectionLog::default() })
}

/// Says this to a house with the right key, and hears its answer.
async fn say(house: &House, from: &Handshake, hello: &Hello) -> Option<Hello> {
    let tcp = TcpStream::connect(&house.address).await.unwrap();
    let name = ServerName::try_from("abide").unwrap();
    let mut stream = from.keys.connector.connect(name, tcp).await.unwrap();
    hello.send(&mut stream).await.unwrap();
    Hello::receive(&mut stream).await.ok()
}

#[tokio::test]
async fn who_has_the_key_is_let_in_and_finds_whom_it_meant() {
    let mut b = House::of("b", "secret").await;
    let a = door("a", "secret");
    let opened = a.dial(&b.target()).await.unwrap_or_else(|missed| panic!("{missed:?}"));
    assert_eq!((opened.name.as_str(), opened.process.as_str(), opened.dialled), ("b", "p-b", true));
    assert_eq!(b.through(&door("z", "secret")).await, ["a"]);
}

#[tokio::test]
async fn another_secret_opens_nothing() {
    let mut b = House::of("b", "secret").await;
    assert_eq!(door("a", "other").dial(&b.target()).await.err(), Some(Missed::Silent));
    assert!(b.through(&door("z", "secret")).await.is_empty());
}

#[tokio::test]
async fn a_probe_hears_who_is_there_and_comes_not_in() {
    let mut b = House::of("b", "secret").await;
    let target = Target { probe: true, ..b.target() };
    assert!(door("a", "secret").dial(&target).await.is_ok());
    assert!(b.through(&door("z", "secret")).await.is_empty());
}

#[tokio::test]
async fn one_that_means_another_process_learns_that_it_is_gone() {
    let mut b = House::of("b", "secret").await;
    let target = Target { process: "p-before".to_owned(), ..b.target() };
    assert_eq!(door("a", "secret").dial(&target).await.err(), Some(Missed::Nobody));
    assert!(b.through(&door("z", "secret")).await.is_empty());
}

#[tokio::test]
async fn nobody_is_where_nothing_listens() {
    let b = House::of("b", "secret").await;
    let target = b.target();
    drop(b);
    let a = door("a", "secret");
    // The listener goes when its task does.
    let missed = async {
        while a.dial(&target).await.err() != Some(Missed::Nobody) {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(30), missed).await.unwrap();
}

#[tokio::test]
async fn a_node_of_another_wire_version_is_refused_by_both() {
    let mut b = House::of("b", "secret").await;
    let a = door("a", "secret");
    let to = Some("p-b".to_owned());
    let answer = say(&b, &a, &Hello { wire: WIRE + 1, to, ..a.hello() }).await.unwrap();
    // It learns the version from the answer, whatever it is.
    assert_eq!(answer, b.door.hello());
    assert!(b.through(&door("z", "secret")).await.is_empty());

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let newer = b.door.clone();
    tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        let mut stream = newer.keys.acceptor.accept(tcp).await.unwrap();
        Hello::receive(&mut stream).await.unwrap();
        Hello { wire: WIRE + 1, ..newer.hello() }.send(&mut stream).await.unwrap();
    });
    let target = Target { address, ..b.target() };
    assert_eq!(a.dial(&target).await.err(), Some(Missed::Silent));
}

/// A relay leads it back, and whoever is meant, this door answers.
#[tokio::test]
async fn a_handshake_that_comes_back_is_refused_at_both_ends() {
    let mut a = House::of("a", "secret").await;
    assert_eq!(a.door.dial(&a.target()).await.err(), Some(Missed::Nobody));
    let elsewhere = Target { process: "p-b".to_owned(), ..a.target() };
    assert_eq!(a.door.dial(&elsewhere).await.err(), Some(Missed::Nobody));
    let to = Some("p-a".to_owned());
    say(&a, &a.door, &Hello { to, ..a.door.hello() }).await.unwrap();
    assert!(a.through(&door("z", "secret")).await.is_empty());
}

#[tokio::test]
async fn a_hello_that_is_too_long_or_no_hello_ends_the_connection() {
    let mut b = House::of("b", "secret").await;
    let a = door("a", "secret");
    for bytes in [&[0xff; 64][..], b"\x00\x02{}", b"\x00\x04\xf0\x9f\x92\xa9"] {
        let tcp = TcpStream::connect(&b.address).await.unwrap();
        let name = ServerName::try_from("abide").unwrap();
        let mut stream = a.keys.connector.connect(name, tcp).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream.flush().await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.is_empty());
    }
    assert!(b.through(&door("z", "secret")).await.is_empty());
}

#[tokio::test]
async fn nobody_gets_through_the_door_of_the_library_even_with_the_key() {
    let keys = Keys::derive(Some("secret")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    let name = ServerName::try_from("abide").unwrap();
    let (inside, outside) =
        tokio::join!(keys.nobody.accept(accepted), keys.connector.connect(name, tcp));
    assert!(inside.is_err() && outside.is_err());
}

#[test]
fn keys_are_the_secrets_and_nobody_elses() {
    let cookie = |secret| Keys::derive(secret).unwrap().cookie;
    assert_eq!(cookie(Some("secret")), cookie(Some("secret")));
    assert_ne!(cookie(Some("secret")), cookie(Some("secre")));
    assert_ne!(cookie(Some("secret")), cookie(None));
    assert_eq!(cookie(None).len(), 64);
}
