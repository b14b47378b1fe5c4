//! A proxy between two nodes that can cut, redirect or block their connections.

use std::sync::{Arc, Mutex};

use socket2::{SockFilter, SockRef};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// A program of the kernel's packet filter: none of a packet is passed on. What is dropped here is not
/// acknowledged, as if it had been lost on the way.
const DROP_ALL: [SockFilter; 1] = [SockFilter::new(0x06, 0, 0, 0)];

pub struct Proxy {
    pub address: String,
    to: Arc<Mutex<String>>,
    open: watch::Sender<bool>,
    cut: watch::Sender<()>,
    abandoned: watch::Sender<()>,
    loss: watch::Sender<()>,
    _accept: AbortOnDropHandle<()>,
}

impl Proxy {
    pub async fn start(to: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let to = Arc::new(Mutex::new(to.to_owned()));
        let (open, cut) = (watch::Sender::new(true), watch::Sender::new(()));
        let (abandoned, loss) = (watch::Sender::new(()), watch::Sender::new(()));
        let target = to.clone();
        let opened = open.subscribe();
        let cuts = cut.clone();
        let abandon = abandoned.clone();
        let losses = loss.clone();
        let accept = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (near, _) = listener.accept().await.unwrap();
                let far = target.lock().unwrap().clone();
                connections.spawn(carry(
                    near,
                    far,
                    opened.clone(),
                    cuts.subscribe(),
                    abandon.subscribe(),
                    losses.subscribe(),
                ));
            }
        });
        Self { address, to, open, cut, abandoned, loss, _accept: AbortOnDropHandle::new(accept) }
    }

    /// Cuts all connections, and leads new ones to another address.
    pub fn redirect(&self, to: &str) {
        to.clone_into(&mut self.to.lock().unwrap());
        self.cut.send_replace(());
    }

    /// Closes the dialling side of all connections; the dialled side stays open.
    pub fn abandon_callee(&self) {
        self.abandoned.send_replace(());
    }

    /// Loses every packet of the present connections, without a word to anybody.
    pub fn lose_packets(&self) {
        self.loss.send_replace(());
    }

    /// Lets bytes through, or silently holds them back.
    pub fn set_open(&self, open: bool) {
        self.open.send_replace(open);
    }
}

async fn carry(
    near: TcpStream,
    far: String,
    open: watch::Receiver<bool>,
    mut cut: watch::Receiver<()>,
    mut abandoned: watch::Receiver<()>,
    mut loss: watch::Receiver<()>,
) {
    let Ok(far) = TcpStream::connect(far).await else { return };
    let ((mut near_in, mut near_out), (mut far_in, mut far_out)) =
        (near.into_split(), far.into_split());
    tokio::select! {
        () = copy(&mut near_in, &mut far_out, open.clone()) => return,
        () = copy(&mut far_in, &mut near_out, open) => return,
        _ = cut.changed() => return,
        _ = abandoned.changed() => {}
        _ = loss.changed() => {
            for side in [near_in.as_ref(), far_in.as_ref()] {
                SockRef::from(side).attach_filter(&DROP_ALL).unwrap();
            }
            // The sides give the connection up by themselves, and nobody learns of it.
            return std::future::pending().await;
        }
    }
    drop((near_in, near_out));
    // The dialled side stays open until its node closes it.
    let _ = tokio::io::copy(&mut far_in, &mut tokio::io::sink()).await;
}

async fn copy(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf, mut open: watch::Receiver<bool>) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        if open.wait_for(|open| *open).await.is_err() {
            return;
        }
        if to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}
