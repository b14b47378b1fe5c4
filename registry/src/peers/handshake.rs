//! The handshake between two nodes: it proves that the peer has the secret, speaks our version, and is
//! the process that it should be.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use abide_actors::identity::NodeName;
use rustls::pki_types::ServerName;
use rustls::server::Acceptor;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::{LazyConfigAcceptor, TlsStream};
use tokio_util::task::AbortOnDropHandle;

use super::event::{LinkEvent, LinkEvents};
use super::hello::Hello;
use super::keys::{ALPN, Keys};
use super::proof::{Proofs, Verdict};
use super::rejection_log::{RejectionCause, RejectionLog};
use crate::member::ProcessId;
use crate::protocol::PROTOCOL_VERSION;

/// The limit for a whole handshake, TCP included: a few round trips and two signatures, on a busy
/// machine.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);
/// How many handshakes may be unfinished at a time: more than a cluster has nodes, and each holds
/// little memory.
const MAX_UNFINISHED_HANDSHAKES: usize = 64;
/// The delay after an accept that failed, most likely for lack of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// How long the other side's machine may take to acknowledge what it was sent.
pub(super) const ACKNOWLEDGEMENT_TIMEOUT: Duration = Duration::from_secs(2);
/// After this much silence, the other side's machine is asked to acknowledge something.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Establishes connections, from either side.
pub(super) struct Handshake {
    pub(super) name: NodeName,
    pub(super) process: ProcessId,
    pub(super) keys: Keys,
    /// The cookie of the sessions: see [`ClusterSecrets::cookie`].
    ///
    /// [`ClusterSecrets::cookie`]: super::ClusterSecrets::cookie
    pub(super) cookie: String,
    /// Whether a member of the cluster is of a build that knows handshake version 0 only.
    pub(super) has_legacy_members: AtomicBool,
    pub(super) rejections: RejectionLog,
}

/// A connection that has completed its handshake.
pub(super) struct Authenticated {
    pub(super) name: NodeName,
    pub(super) process: ProcessId,
    /// Whether this process dialled it.
    pub(super) dialled: bool,
    pub(super) stream: TlsStream<TcpStream>,
}

/// The process to dial.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) name: NodeName,
    pub(super) process: ProcessId,
    pub(super) address: String,
    /// It is only asked who it is; the connection is not used.
    pub(super) probe: bool,
    /// It is of a build that knows handshake version 0 only.
    pub(super) legacy: bool,
}

/// Why dialling brought no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DialError {
    /// The address refuses connections.
    Refused,
    /// Another process answers at the address.
    OtherProcess,
    /// The process may be there.
    Unreachable,
}

/// Why a handshake failed. A peer that only disconnected has no cause of rejection.
struct HandshakeError {
    cause: Option<RejectionCause>,
    error: io::Error,
}

impl Handshake {
    /// Accepts connections for ever, and reports those that complete the handshake.
    pub(super) async fn accept(self: Arc<Self>, listener: TcpListener, events: LinkEvents) {
        let mut unfinished: VecDeque<AbortOnDropHandle<()>> = VecDeque::new();
        loop {
            let (tcp, from) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "peer connection cannot be accepted");
                    sleep(ACCEPT_RETRY_DELAY).await;
                    continue;
                }
            };
            unfinished.retain(|admission| !admission.is_finished());
            // The oldest has had the most time to prove its key.
            if unfinished.len() >= MAX_UNFINISHED_HANDSHAKES && unfinished.pop_front().is_some() {
                self.rejections.reject(RejectionCause::Crowded, None, from);
            }
            let handshake = self.clone();
            let events = events.clone();
            let admission = tokio::spawn(async move {
                if let Some(admitted) = handshake.admit(tcp, from).await {
                    // Without a receiver the process is ending.
                    let _ = events.send(admitted);
                }
            });
            unfinished.push_back(AbortOnDropHandle::new(admission));
        }
    }

    /// Dials a process, and verifies that it is the target.
    pub(super) async fn dial(&self, target: &Target) -> Result<Authenticated, DialError> {
        let Ok(dialled) = timeout(HANDSHAKE_TIMEOUT, self.connect(target)).await else {
            return Err(DialError::Unreachable);
        };
        let (hello, stream) = dialled.map_err(|HandshakeError { cause, error }| {
            if let Some(cause) = cause {
                self.rejections.reject(cause, Some(&target.name), &error);
            }
            match error.kind() {
                io::ErrorKind::ConnectionRefused => DialError::Refused,
                _ => DialError::Unreachable,
            }
        })?;
        let reject = |cause, detail| {
            self.rejections.reject(cause, Some(&target.name), detail);
            Err(if cause == RejectionCause::ProtocolVersion {
                DialError::Unreachable
            } else {
                DialError::OtherProcess
            })
        };
        if hello.process == self.process {
            return reject(RejectionCause::Ourselves, target.address.clone());
        }
        if hello.protocol_version != PROTOCOL_VERSION {
            return reject(
                RejectionCause::ProtocolVersion,
                format!("{} there, {PROTOCOL_VERSION} here", hello.protocol_version),
            );
        }
        if (&hello.name, &hello.process) != (&target.name, &target.process) {
            let who = format!("{} at {}", hello.name, target.address);
            return reject(RejectionCause::Other, who);
        }
        let Hello { name, process, .. } = hello;
        Ok(Authenticated { name, process, dialled: true, stream })
    }

    async fn connect(
        &self,
        target: &Target,
    ) -> Result<(Hello, TlsStream<TcpStream>), HandshakeError> {
        let tcp = TcpStream::connect(&target.address).await.map_err(disconnected)?;
        prepare(&tcp).map_err(disconnected)?;
        // The name is not verified: the key proves that the peer belongs to the cluster.
        let name =
            ServerName::try_from("abide").map_err(|error| disconnected(io::Error::other(error)))?;
        let mut stream = if target.legacy {
            self.keys.legacy.connector.connect(name, tcp).await.map_err(classify)?
        } else {
            let mut tls = self.keys.connector.connect(name, tcp).await.map_err(classify)?;
            let proofs = Proofs::new(&self.keys.proof_key, tls.get_ref().1).map_err(failed)?;
            expect_proof(proofs.dial(&mut tls).await)?;
            tls
        };
        let hello = Hello { to: Some(target.process.clone()), probe: target.probe, ..self.hello() };
        hello.send(&mut stream).await.map_err(classify)?;
        Ok((Hello::receive(&mut stream).await.map_err(classify)?, stream.into()))
    }

    /// The connection, if the peer that dialled may have it, or its probe.
    async fn admit(&self, tcp: TcpStream, from: SocketAddr) -> Option<LinkEvent> {
        let accepted = match timeout(HANDSHAKE_TIMEOUT, self.accept_one(tcp)).await {
            Ok(accepted) => accepted,
            Err(_) => {
                self.rejections.reject(RejectionCause::Silent, None, from);
                return None;
            }
        };
        let (hello, stream) = match accepted {
            Ok(accepted) => accepted,
            Err(HandshakeError { cause: Some(cause), error }) => {
                self.rejections.reject(cause, None, format_args!("{from}: {error}"));
                return None;
            }
            Err(HandshakeError { cause: None, error }) => {
                tracing::debug!(%from, %error, "peer disconnected during its handshake");
                return None;
            }
        };
        if hello.process == self.process {
            self.rejections.reject(RejectionCause::Ourselves, Some(&hello.name), from);
            return None;
        }
        if hello.protocol_version != PROTOCOL_VERSION {
            let versions = format!("{} there, {PROTOCOL_VERSION} here", hello.protocol_version);
            self.rejections.reject(RejectionCause::ProtocolVersion, Some(&hello.name), versions);
            return None;
        }
        // A peer that meant another process learns from our hello that it is wrong, and logs it
        // itself.
        if hello.to.as_ref() != Some(&self.process) {
            return None;
        }
        let Hello { name, process, probe, .. } = hello;
        Some(if probe {
            LinkEvent::Probed { process }
        } else {
            LinkEvent::Accepted(Authenticated { name, process, dialled: false, stream })
        })
    }

    async fn accept_one(
        &self,
        tcp: TcpStream,
    ) -> Result<(Hello, TlsStream<TcpStream>), HandshakeError> {
        prepare(&tcp).map_err(disconnected)?;
        let opening = LazyConfigAcceptor::new(Acceptor::default(), tcp);
        let opening = opening.await.map_err(classify)?;
        let offers = opening.client_hello().alpn();
        let is_current = offers.is_some_and(|mut offers| offers.any(|offer| offer == ALPN));
        let mut stream = if is_current {
            let tls = opening.into_stream(self.keys.acceptor.clone());
            let mut tls = tls.await.map_err(classify)?;
            let keys = [Some(&self.keys.proof_key), self.keys.also.as_ref()];
            let accepted = keys.into_iter().flatten().map(|key| Proofs::new(key, tls.get_ref().1));
            let accepted = accepted.collect::<Result<Vec<_>, _>>().map_err(failed)?;
            expect_proof(Proofs::listen(&accepted, &mut tls).await)?;
            tls
        } else if self.has_legacy_members.load(Ordering::Relaxed) {
            let tls = opening.into_stream(self.keys.legacy.acceptor.clone());
            tls.await.map_err(classify)?
        } else {
            let error = io::Error::other("handshake version 0, which no member needs");
            return Err(HandshakeError { cause: Some(RejectionCause::ProtocolVersion), error });
        };
        let hello = Hello::receive(&mut stream).await.map_err(classify)?;
        self.hello().send(&mut stream).await.map_err(classify)?;
        Ok((hello, stream.into()))
    }

    fn hello(&self) -> Hello {
        let (name, process) = (self.name.clone(), self.process.clone());
        Hello { protocol_version: PROTOCOL_VERSION, name, process, to: None, probe: false }
    }
}

/// Has the connection end soon if packets are lost on the way. A machine acknowledges them also
/// while its process hangs.
fn prepare(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    let socket = SockRef::from(tcp);
    let probes = TcpKeepalive::new().with_time(PROBE_INTERVAL).with_interval(PROBE_INTERVAL);
    socket.set_tcp_keepalive(&probes)?;
    socket.set_tcp_user_timeout(Some(ACKNOWLEDGEMENT_TIMEOUT))
}

fn failed(error: rustls::Error) -> HandshakeError {
    disconnected(io::Error::other(error))
}

fn expect_proof(verdict: io::Result<Verdict>) -> Result<(), HandshakeError> {
    match verdict.map_err(classify)? {
        Verdict::Proved => Ok(()),
        Verdict::Refused => {
            let error = io::Error::other("the proofs of the secret differ");
            Err(HandshakeError { cause: Some(RejectionCause::Secret), error })
        }
    }
}

fn disconnected(error: io::Error) -> HandshakeError {
    HandshakeError { cause: None, error }
}

/// Classifies the failure of a handshake. In handshake version 0 a peer with another key learns so
/// from ours and sends an alert, or presents its own key.
fn classify(error: io::Error) -> HandshakeError {
    let tls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    let cause = match tls {
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::AlertReceived(_)) => {
            Some(RejectionCause::Secret)
        }
        Some(_) => Some(RejectionCause::Garbage),
        None if error.kind() == io::ErrorKind::InvalidData => Some(RejectionCause::Garbage),
        None => None,
    };
    HandshakeError { cause, error }
}

#[cfg(test)]
mod tests;
