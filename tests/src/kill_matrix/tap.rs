//! A proxy between a node and Redis that knows the commands, and holds one at the gate.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::gate::{Gate, Side};
use super::resp::{Scripts, command, point, reply_length};

/// The size of one read.
const CHUNK_BYTES: usize = 16 * 1024;

/// The proxy; dropping it ends it with all its connections.
pub(super) struct Tap {
    pub(super) address: String,
    /// Counts up; each increment closes the connections that are open.
    cuts: watch::Sender<u64>,
}

/// The await points whose replies have not come, in order; `None` for any other command.
type Pending = Arc<Mutex<VecDeque<Option<String>>>>;

impl Tap {
    pub(super) async fn to(redis: &str, gate: &Gate, scripts: &Scripts) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let cuts = watch::Sender::new(0);
        let mut cut = cuts.subscribe();
        let redis = redis.to_owned();
        let (gate, scripts) = (gate.clone(), scripts.clone());
        tokio::spawn(async move {
            loop {
                let client = tokio::select! {
                    accepted = listener.accept() => accepted.map(|(client, _)| client),
                    changed = cut.changed() => match changed {
                        Ok(()) => continue,
                        Err(_) => return,
                    },
                };
                if let Ok(client) = client {
                    let connection =
                        connection(client, redis.clone(), gate.clone(), scripts.clone());
                    let mut cut = cut.clone();
                    tokio::spawn(async move {
                        tokio::select! {
                            _ = connection => {}
                            // Also when the proxy is dropped.
                            _ = cut.changed() => {}
                        }
                    });
                }
            }
        });
        Self { address, cuts }
    }

    /// Closes every open connection; new ones are accepted.
    pub(super) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

async fn connection(client: TcpStream, redis: String, gate: Gate, scripts: Scripts) -> Option<()> {
    let redis = TcpStream::connect(&redis).await.ok()?;
    let _ = (client.set_nodelay(true), redis.set_nodelay(true));
    let (from_node, to_node) = client.into_split();
    let (from_redis, to_redis) = redis.into_split();
    let pending = Pending::default();
    // The end of either direction ends both, as a broken connection does.
    tokio::select! {
        _ = commands(from_node, to_redis, &gate, &scripts, &pending) => {}
        _ = replies(from_redis, to_node, &gate, &pending) => {}
    }
    Some(())
}

async fn commands(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    gate: &Gate,
    scripts: &Scripts,
    pending: &Pending,
) -> Option<()> {
    let mut unread = Vec::new();
    loop {
        while let Some((length, words)) = command(&unread) {
            let point = point(&words, scripts);
            if let Some(point) = &point {
                gate.pass(point, Side::Before).await;
            }
            pending.lock().unwrap().push_back(point);
            to.write_all(&unread[..length]).await.ok()?;
            unread.drain(..length);
        }
        read_more(&mut from, &mut unread).await?;
    }
}

async fn replies(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    gate: &Gate,
    pending: &Pending,
) -> Option<()> {
    let mut unread = Vec::new();
    loop {
        while let Some(length) = reply_length(&unread) {
            let point = pending.lock().unwrap().pop_front().flatten();
            if let Some(point) = point {
                gate.pass(&point, Side::After).await;
            }
            to.write_all(&unread[..length]).await.ok()?;
            unread.drain(..length);
        }
        read_more(&mut from, &mut unread).await?;
    }
}

async fn read_more(from: &mut OwnedReadHalf, unread: &mut Vec<u8>) -> Option<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let length = from.read(&mut chunk).await.ok().filter(|length| *length > 0)?;
    unread.extend_from_slice(&chunk[..length]);
    Some(())
}
