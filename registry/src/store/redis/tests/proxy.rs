//! A proxy that can be told to lose a reply, or to hang.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

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
                tokio::spawn(forward(from_client, to_server, None));
                tokio::spawn(forward(from_server, to_client, Some(Arc::clone(&own))));
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
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, faults: Option<Arc<Faults>>) {
    let mut bytes = [0; 16 << 10];
    let mut hung = false;
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if let Some(faults) = &faults {
            let count_down = |left: usize| left.checked_sub(1);
            let lose = faults.lose.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count_down);
            if lose == Ok(1) {
                return;
            }
            hung |= faults.hang.load(Ordering::SeqCst);
        }
        if !hung && to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
