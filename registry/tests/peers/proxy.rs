//! A proxy between two nodes that can cut, redirect or block their connections.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

pub struct Proxy {
    pub address: String,
    to: Arc<Mutex<String>>,
    open: watch::Sender<bool>,
    cut: watch::Sender<()>,
    abandoned: watch::Sender<()>,
    _accept: AbortOnDropHandle<()>,
}

impl Proxy {
    pub async fn start(to: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let to = Arc::new(Mutex::new(to.to_owned()));
        let (open, cut) = (watch::Sender::new(true), watch::Sender::new(()));
        let abandoned = watch::Sender::new(());
        let target = to.clone();
        let opened = open.subscribe();
        let cuts = cut.clone();
        let abandon = abandoned.clone();
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
                ));
            }
        });
        Self { address, to, open, cut, abandoned, _accept: AbortOnDropHandle::new(accept) }
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
) {
    let Ok(far) = TcpStream::connect(far).await else { return };
    let ((mut near_in, mut near_out), (mut far_in, mut far_out)) =
        (near.into_split(), far.into_split());
    tokio::select! {
        () = copy(&mut near_in, &mut far_out, open.clone()) => return,
        () = copy(&mut far_in, &mut near_out, open) => return,
        _ = cut.changed() => return,
        _ = abandoned.changed() => {}
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
