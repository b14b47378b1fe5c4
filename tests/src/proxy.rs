//! A TCP proxy that breaks connections the way networks do.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::deadline::within;

/// Concurrent connections: more than any test opens. A further connection is closed.
const MAX_CONNECTIONS: usize = 256;
/// The size of one read.
const CHUNK_BYTES: usize = 16 * 1024;
/// Delayed chunks per direction; beyond them the sender is slowed down.
const MAX_DELAYED_CHUNKS: usize = 64;

/// A direction of the bytes on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    ToTarget,
    ToClient,
}

/// A proxy on a free loopback port, whose connections lead to a target. Dropping it ends it with
/// all its connections.
pub struct Proxy {
    address: SocketAddr,
    faults: watch::Sender<Faults>,
    listens: watch::Receiver<bool>,
}

#[derive(Clone, Default)]
struct Faults {
    target: Option<String>,
    refuses: bool,
    /// Counts up; each increment closes the connections that are open.
    cuts: u64,
    to_target: Link,
    to_client: Link,
}

/// The faults of one direction.
#[derive(Clone, Copy, Default)]
struct Link {
    delay: Duration,
    swallows: bool,
}

impl Faults {
    fn link(&self, direction: Direction) -> Link {
        match direction {
            Direction::ToTarget => self.to_target,
            Direction::ToClient => self.to_client,
        }
    }
}

impl Proxy {
    /// Starts a proxy without a target: until `aim`, every connection is closed at once.
    pub fn start() -> Self {
        // Bound but never listening: it reserves the port while connections are refused.
        let reserved = socket("127.0.0.1:0".parse().unwrap());
        let address = reserved.local_addr().unwrap();
        let faults = watch::channel(Faults::default()).0;
        let (listening, listens) = watch::channel(true);
        let serve = serve(listen(address), faults.subscribe(), listening);
        // The task ends when the proxy, which has the sender of the faults, is dropped.
        tokio::spawn(async move {
            let _reserved = reserved;
            serve.await;
        });
        Self { address, faults, listens }
    }

    /// Starts a proxy to this host and port.
    pub fn to(target: &str) -> Self {
        let proxy = Self::start();
        proxy.aim(target);
        proxy
    }

    /// The address on which the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the target of new connections.
    pub fn aim(&self, target: &str) {
        self.faults.send_modify(|faults| faults.target = Some(target.to_owned()));
    }

    /// Closes every open connection; new ones are accepted.
    pub fn cut(&self) {
        self.faults.send_modify(|faults| faults.cuts += 1);
    }

    /// Refuses new connections, like a machine on which nothing listens; open ones stay.
    pub async fn refuse(&self) {
        self.faults.send_modify(|faults| faults.refuses = true);
        self.wait_until_listening(false).await;
    }

    /// Delays everything that is read from now on in this direction.
    pub fn delay(&self, direction: Direction, delay: Duration) {
        self.link(direction, |link| link.delay = delay);
    }

    /// Loses everything that is sent in this direction without a sign: a half-open connection.
    pub fn swallow(&self, direction: Direction) {
        self.link(direction, |link| link.swallows = true);
    }

    /// Ends all faults. Connections that lost bytes are closed: TCP never leaves a hole in a
    /// stream.
    pub async fn heal(&self) {
        self.faults.send_modify(|faults| {
            faults.refuses = false;
            faults.to_target = Link::default();
            faults.to_client = Link::default();
        });
        self.wait_until_listening(true).await;
    }

    fn link(&self, direction: Direction, change: impl FnOnce(&mut Link)) {
        self.faults.send_modify(|faults| match direction {
            Direction::ToTarget => change(&mut faults.to_target),
            Direction::ToClient => change(&mut faults.to_client),
        });
    }

    async fn wait_until_listening(&self, expected: bool) {
        let mut listens = self.listens.clone();
        let changed = listens.wait_for(|listens| *listens == expected);
        within("the proxy to change whether it listens", changed).await.unwrap();
    }
}

fn socket(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    socket
}

fn listen(address: SocketAddr) -> TcpListener {
    // The backlog is as long as there may be connections.
    socket(address).listen(MAX_CONNECTIONS as u32).unwrap()
}

async fn serve(
    listener: TcpListener,
    mut faults: watch::Receiver<Faults>,
    listening: watch::Sender<bool>,
) {
    let address = listener.local_addr().unwrap();
    let mut listener = Some(listener);
    let mut open = JoinSet::new();
    loop {
        match (faults.borrow_and_update().refuses, &listener) {
            (true, Some(_)) => listener = None,
            (false, None) => listener = Some(listen(address)),
            _ => {}
        }
        listening.send_replace(listener.is_some());
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = faults.changed() => if changed.is_err() { return },
            Some(_) = open.join_next() => {}
            accepted = accepted => if let Ok((client, _)) = accepted && open.len() < MAX_CONNECTIONS {
                open.spawn(connection(client, faults.clone()));
            },
        }
    }
}

/// Serves one connection until it ends.
async fn connection(client: TcpStream, mut faults: watch::Receiver<Faults>) {
    let (cuts, target) = {
        let faults = faults.borrow();
        (faults.cuts, faults.target.clone())
    };
    let Some(target) = target else { return };
    let (there, back) = (faults.clone(), faults.clone());
    let both = async {
        let target = TcpStream::connect(&target).await.ok()?;
        // Tests measure the delays with small messages.
        let _ = (client.set_nodelay(true), target.set_nodelay(true));
        let (from_client, to_client) = client.into_split();
        let (from_target, to_target) = target.into_split();
        tokio::try_join!(
            carry(from_client, to_target, Direction::ToTarget, there),
            carry(from_target, to_client, Direction::ToClient, back),
        )
        .ok()
    };
    tokio::select! {
        _ = both => {}
        _ = faults.wait_for(|now| now.cuts != cuts) => {}
    }
}

/// The connection is over and must be closed.
struct ConnectionBroken;

/// Carries one direction to its end. Dropping the write half then signals the end to the other
/// side.
async fn carry(
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    direction: Direction,
    faults: watch::Receiver<Faults>,
) -> Result<(), ConnectionBroken> {
    let (chunks, due) = mpsc::channel(MAX_DELAYED_CHUNKS);
    tokio::try_join!(read(from, direction, faults, chunks), write(to, due)).map(|_| ())
}

async fn read(
    mut from: OwnedReadHalf,
    direction: Direction,
    mut faults: watch::Receiver<Faults>,
    chunks: mpsc::Sender<(Instant, Vec<u8>)>,
) -> Result<(), ConnectionBroken> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let length = from.read(&mut chunk).await.map_err(|_| ConnectionBroken)?;
        let link = faults.borrow().link(direction);
        if link.swallows {
            return swallow(from, direction, &mut faults).await;
        }
        if length == 0 {
            return Ok(());
        }
        let due = Instant::now() + link.delay;
        chunks.send((due, chunk[..length].to_vec())).await.map_err(|_| ConnectionBroken)?;
    }
}

/// Reads and discards until the fault ends.
async fn swallow(
    mut from: OwnedReadHalf,
    direction: Direction,
    faults: &mut watch::Receiver<Faults>,
) -> Result<(), ConnectionBroken> {
    let discard = async {
        // Even the end of the stream is lost: the connection ends only once the network is healed.
        let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = discard => {}
        _ = faults.wait_for(|now| !now.link(direction).swallows) => {}
    }
    Err(ConnectionBroken)
}

async fn write(
    mut to: OwnedWriteHalf,
    mut chunks: mpsc::Receiver<(Instant, Vec<u8>)>,
) -> Result<(), ConnectionBroken> {
    while let Some((due, chunk)) = chunks.recv().await {
        tokio::time::sleep_until(due).await;
        to.write_all(&chunk).await.map_err(|_| ConnectionBroken)?;
    }
    Ok(())
}
