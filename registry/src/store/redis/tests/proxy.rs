//! A proxy that can be told to lose a reply, to hang, or to die at a message.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::super::RedisUrl;

/// A proxy between a store and its server, which ends with the test.
pub(super) struct Proxy {
    port: u16,
    faults: Arc<Faults>,
}

#[derive(Default)]
struct Faults {
    /// How many replies are left up to the one to drop, whose connection is closed; 0: none is.
    lose: AtomicUsize,
    /// Keep connections open, but forward no more replies.
    hang: AtomicBool,
    /// How many requests, and how many replies, are left up to the one at which all ends; 0: none is.
    last: [AtomicUsize; 2],
    /// Whether all has ended: nothing passes any more.
    dead: watch::Sender<bool>,
}

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    ToServer,
    ToClient,
}

impl Proxy {
    pub(super) async fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let faults = Arc::new(Faults::default());
        let own = Arc::clone(&faults);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { continue };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(forward(from_client, to_server, Arc::clone(&own), Way::ToServer));
                tokio::spawn(forward(from_server, to_client, Arc::clone(&own), Way::ToClient));
            }
        });
        Self { port, faults }
    }

    pub(super) fn url(&self) -> RedisUrl {
        format!("redis://127.0.0.1:{}", self.port).parse().unwrap()
    }

    pub(super) fn lose_next_reply(&self) {
        self.lose_nth_reply(1);
    }

    /// Drops the reply after the next `n - 1`.
    pub(super) fn lose_nth_reply(&self, n: usize) {
        self.faults.lose.store(n, Ordering::SeqCst);
    }

    /// Whether the reply has been dropped.
    pub(super) fn has_lost_reply(&self) -> bool {
        self.faults.lose.load(Ordering::SeqCst) == 0
    }

    pub(super) fn hang(&self, hang: bool) {
        self.faults.hang.store(hang, Ordering::SeqCst);
    }

    /// Lets nothing pass from the N-th message of this way on, in either way: as if the client had died
    /// before the server carried it out, or after.
    pub(super) fn die_at(&self, n: usize, way: Way) {
        self.faults.last[way as usize].store(n, Ordering::SeqCst);
    }

    /// Whether all has ended.
    pub(super) fn is_dead(&self) -> bool {
        *self.faults.dead.borrow()
    }

    /// Waits until all has ended.
    pub(super) async fn wait_until_dead(&self) {
        self.faults.dead.subscribe().wait_for(|dead| *dead).await.unwrap();
    }
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, faults: Arc<Faults>, way: Way) {
    let count_down = |count: &AtomicUsize| {
        let next = |left: usize| left.checked_sub(1);
        count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next)
    };
    let mut bytes = [0; 16 << 10];
    let mut hung = false;
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if count_down(&faults.last[way as usize]) == Ok(1) {
            faults.dead.send_replace(true);
        }
        if *faults.dead.borrow() {
            return;
        }
        if way == Way::ToClient {
            if count_down(&faults.lose) == Ok(1) {
                return;
            }
            hung |= faults.hang.load(Ordering::SeqCst);
        }
        if !hung && to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
