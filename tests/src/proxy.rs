//! A TCP proxy that breaks connections as networks do.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::deadline::within;

/// Connections at once, more than any test opens; a further one is closed.
const MAX_CONNECTIONS: usize = 256;
/// What one read takes.
const CHUNK_BYTES: usize = 16 * 1024;
/// Chunks that wait for their time in one direction; then the sender is slowed down.
const MAX_DELAYED_CHUNKS: usize = 64;

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    ToTarget,
    ToClient,
}

/// A free port of loopback whose connections go on to a target, until told otherwise. It ends,
/// with all its connections, when it is dropped.
pub struct Proxy {
    address: SocketAddr,
    faults: watch::Sender<Faults>,
    listens: watch::Receiver<bool>,
}

#[derive(Clone, Default)]
struct Faults {
    target: Option<String>,
    refuses: bool,
    /// Counts up; what was open before is closed.
    cuts: u64,
    to_target: Link,
    to_client: Link,
}

/// What happens to the bytes of one direction.
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
    /// To a target that is not known yet: until `aim`, whoever connects is hung up on.
    pub fn start() -> Self {
        // Bound and never listening: nobody else gets the port while connections are refused.
        let reserved = socket("127.0.0.1:0".parse().unwrap());
        let address = reserved.local_addr().unwrap();
        let faults = watch::channel(Faults::default()).0;
        let (listening, listens) = watch::channel(true);
        let serve = serve(listen(address), faults.subscribe(), listening);
        // It ends when nobody can tell it of faults any more.
        tokio::spawn(async move {
            let _reserved = reserved;
            serve.await;
        });
        Self { address, faults, listens }
    }

    /// To this host and port.
    pub fn to(target: &str) -> Self {
        let proxy = Self::start();
        proxy.aim(target);
        proxy
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends connections from now on there.
    pub fn aim(&self, target: &str) {
        self.faults.send_modify(|faults| faults.target = Some(target.to_owned()));
    }

    /// Closes every connection; new ones are welcome.
    pub fn cut(&self) {
        self.faults.send_modify(|faults| faults.cuts += 1);
    }

    /// New connections are refused, as by a machine where nobody listens; open ones stay.
    pub async fn refuse(&self) {
        self.faults.send_modify(|faults| faults.refuses = true);
        self.listening(false).await;
    }

    /// What is read from now on in this direction arrives so much later.
    pub fn delay(&self, direction: Direction, delay: Duration) {
        self.link(direction, |link| link.delay = delay);
    }

    /// What is sent in this direction is lost, and nobody is told: a half-open connection.
    pub fn swallow(&self, direction: Direction) {
        self.link(direction, |link| link.swallows = true);
    }

    /// Ends all faults. Connections that lost bytes are closed, as no network leaves a hole.
    pub async fn heal(&self) {
        self.faults.send_modify(|faults| {
            (faults.refuses, faults.to_target, faults.to_client) = Default::default();
        });
        self.listening(true).await;
    }

    fn link(&self, direction: Direction, change: impl FnOnce(&mut Link)) {
        self.faults.send_modify(|faults| match direction {
            Direction::ToTarget => change(&mut faults.to_target),
            Direction::ToClient => change(&mut faults.to_client),
        });
    }

    async fn listening(&self, is: bool) {
        let mut listens = self.listens.clone();
        let changed = listens.wait_for(|listens| *listens == is);
        within("a proxy to follow", changed).await.unwrap();
    }
}

fn socket(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    socket
}

fn listen(address: SocketAddr) -> TcpListener {
    // As many as may be open.
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

/// One connection, to its end.
async fn connection(client: TcpStream, mut faults: watch::Receiver<Faults>) {
    let (cuts, target) = {
        let faults = faults.borrow();
        (faults.cuts, faults.target.clone())
    };
    let Some(target) = target else { return };
    let (there, back) = (faults.clone(), faults.clone());
    let both = async {
        let target = TcpStream::connect(&target).await.ok()?;
        // Small messages are what the delays are measured with.
        let _ = (client.set_nodelay(true), target.set_nodelay(true));
        let ((from_client, to_client), (from_target, to_target)) =
            (client.into_split(), target.into_split());
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

/// The connection cannot go on.
struct ConnectionBroken;

/// Carries one direction to its end, which the other side is told of: a dropped half says so.
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

/// Reads and forgets, until the fault ends.
async fn swallow(
    mut from: OwnedReadHalf,
    direction: Direction,
    faults: &mut watch::Receiver<Faults>,
) -> Result<(), ConnectionBroken> {
    let forget = async {
        // Even the end is lost: only the healed network says that this connection is over.
        let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = forget => {}
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
