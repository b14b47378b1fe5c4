//! How a connection between two nodes begins: whoever is through has the key, speaks our version,
//! and is who it should be.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsStream;
use tokio_util::task::AbortOnDropHandle;

use super::hello::Hello;
use super::keys::Keys;
use super::links::{LinkEvent, LinkEvents};
use super::refusals::{RejectionCause, RejectionLog};
use crate::wire::WIRE;

/// For a whole handshake, TCP included: a few round trips and two signatures, on a busy machine.
const HANDSHAKE: Duration = Duration::from_secs(3);
/// How many may be in their handshake at a time: more than a cluster has nodes, and each holds
/// little memory until it is through.
const UNPROVEN: usize = 64;
/// After an accept that failed, most likely for want of file descriptors.
const BREATH: Duration = Duration::from_millis(100);

/// Begins connections, from either side.
pub(super) struct Handshake {
    pub(super) name: String,
    pub(super) process: String,
    pub(super) keys: Keys,
    pub(super) refusals: RejectionLog,
}

/// A connection that is through.
pub(super) struct Authenticated {
    pub(super) name: String,
    pub(super) process: String,
    /// By this process.
    pub(super) dialled: bool,
    pub(super) stream: TlsStream<TcpStream>,
}

/// Whom to dial.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) name: String,
    pub(super) process: String,
    pub(super) address: String,
    /// It is asked who it is, and no more.
    pub(super) probe: bool,
}

/// Why nothing came of dialling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missed {
    /// The address refuses connections, or is another process's.
    Nobody,
    /// It may be there.
    Silent,
}

/// Why a handshake ended, and what it is counted as; a peer that only went away is no refusal.
struct Broken(Option<RejectionCause>, io::Error);

impl Handshake {
    /// Accepts for ever, and hands on what is through.
    pub(super) async fn accept(self: Arc<Self>, listener: TcpListener, happened: LinkEvents) {
        let mut unproven: VecDeque<AbortOnDropHandle<()>> = VecDeque::new();
        loop {
            let (tcp, from) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection between nodes");
                    sleep(BREATH).await;
                    continue;
                }
            };
            unproven.retain(|admission| !admission.is_finished());
            // The oldest has had the most time to show its key.
            if unproven.len() >= UNPROVEN && unproven.pop_front().is_some() {
                self.refusals.refuse(RejectionCause::Crowded, None, from);
            }
            let (door, happened) = (self.clone(), happened.clone());
            let admission = tokio::spawn(async move {
                if let Some(opened) = door.admit(tcp, from).await {
                    // If nobody listens any more, the process ends.
                    let _ = happened.send(LinkEvent::Opened(opened));
                }
            });
            unproven.push_back(AbortOnDropHandle::new(admission));
        }
    }

    /// Dials a process, and makes sure that it is the one.
    pub(super) async fn dial(&self, target: &Target) -> Result<Authenticated, Missed> {
        let Ok(dialled) = timeout(HANDSHAKE, self.introduce(target)).await else {
            return Err(Missed::Silent);
        };
        let (hello, stream) = dialled.map_err(|Broken(cause, error)| {
            if let Some(cause) = cause {
                self.refusals.refuse(cause, Some(&target.name), &error);
            }
            match error.kind() {
                io::ErrorKind::ConnectionRefused => Missed::Nobody,
                _ => Missed::Silent,
            }
        })?;
        let refused = |cause, detail| {
            self.refusals.refuse(cause, Some(&target.name), detail);
            Err(if cause == RejectionCause::Wire { Missed::Silent } else { Missed::Nobody })
        };
        if hello.process == self.process {
            return refused(RejectionCause::Ourselves, target.address.clone());
        }
        if hello.wire != WIRE {
            return refused(RejectionCause::Wire, format!("{}, and {WIRE} here", hello.wire));
        }
        if (&hello.name, &hello.process) != (&target.name, &target.process) {
            let who = format!("{} at {}", hello.name, target.address);
            return refused(RejectionCause::Other, who);
        }
        let Hello { name, process, .. } = hello;
        Ok(Authenticated { name, process, dialled: true, stream })
    }

    async fn introduce(&self, to: &Target) -> Result<(Hello, TlsStream<TcpStream>), Broken> {
        let tcp = TcpStream::connect(&to.address).await.map_err(gone)?;
        prepare(&tcp).map_err(gone)?;
        // Nobody looks at the name: the key says whether it is one of us.
        let name = ServerName::try_from("abide").map_err(|error| gone(io::Error::other(error)))?;
        let tls = self.keys.connector.connect(name, tcp).await.map_err(broken)?;
        let mut stream = TlsStream::from(tls);
        let hello = Hello { to: Some(to.process.clone()), probe: to.probe, ..self.hello() };
        hello.send(&mut stream).await.map_err(broken)?;
        Ok((Hello::receive(&mut stream).await.map_err(broken)?, stream))
    }

    /// The connection, if whoever dialled may have it.
    async fn admit(&self, tcp: TcpStream, from: SocketAddr) -> Option<Authenticated> {
        let answered = match timeout(HANDSHAKE, self.answer(tcp)).await {
            Ok(answered) => answered,
            Err(_) => {
                self.refusals.refuse(RejectionCause::Silent, None, from);
                return None;
            }
        };
        let (hello, stream) = match answered {
            Ok(answered) => answered,
            Err(Broken(Some(cause), error)) => {
                self.refusals.refuse(cause, None, format_args!("{from}: {error}"));
                return None;
            }
            Err(Broken(None, error)) => {
                tracing::debug!(%from, %error, "a connection ended before its handshake did");
                return None;
            }
        };
        if hello.process == self.process {
            self.refusals.refuse(RejectionCause::Ourselves, Some(&hello.name), from);
            return None;
        }
        if hello.wire != WIRE {
            let versions = format!("{}, and {WIRE} here", hello.wire);
            self.refusals.refuse(RejectionCause::Wire, Some(&hello.name), versions);
            return None;
        }
        // Who meant another process reads in the answer that it is wrong here, and says so itself.
        let meant = hello.to.as_deref() == Some(&self.process);
        let Hello { name, process, probe, .. } = hello;
        (meant && !probe).then_some(Authenticated { name, process, dialled: false, stream })
    }

    async fn answer(&self, tcp: TcpStream) -> Result<(Hello, TlsStream<TcpStream>), Broken> {
        prepare(&tcp).map_err(gone)?;
        let tls = self.keys.acceptor.accept(tcp).await.map_err(broken)?;
        let mut stream = TlsStream::from(tls);
        let hello = Hello::receive(&mut stream).await.map_err(broken)?;
        self.hello().send(&mut stream).await.map_err(broken)?;
        Ok((hello, stream))
    }

    fn hello(&self) -> Hello {
        let (name, process) = (self.name.clone(), self.process.clone());
        Hello { wire: WIRE, name, process, to: None, probe: false }
    }
}

fn prepare(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    SockRef::from(tcp).set_keepalive(true)
}

fn gone(error: io::Error) -> Broken {
    Broken(None, error)
}

/// Sorts the ends of a handshake. Whoever has another key learns it from this side's, and says so
/// in an alert, or shows its own.
fn broken(error: io::Error) -> Broken {
    let tls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    let cause = match tls {
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::AlertReceived(_)) => {
            Some(RejectionCause::Secret)
        }
        Some(_) => Some(RejectionCause::Garbage),
        None if error.kind() == io::ErrorKind::InvalidData => Some(RejectionCause::Garbage),
        None => None,
    };
    Broken(cause, error)
}

#[cfg(test)]
mod tests;
