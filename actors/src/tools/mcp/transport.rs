//! A transport that bounds what a server sends: its size, its rate, and the replies it leaves
//! unread.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, ProtocolVersion, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::service::{ClientLifecycleMode, RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::time::{Instant, timeout_at};

/// A result of 1 MB may be sent twice, as text and as JSON, with every quote escaped.
pub(super) const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024;
/// Notifications and requests that a server may send in a burst, and per second after that. The
/// rest is dropped: these messages are mostly progress for people.
const MAX_BURST_MESSAGES: f64 = 500.0;
const MESSAGES_PER_SECOND: f64 = 100.0;
/// Replies of ours that the server has not read. A connection with more is closed.
const MAX_UNREAD_REPLIES: usize = 64;

/// The protocol version of the server, if a late answer to the probe has shown it.
#[derive(Debug, Default)]
pub(super) struct NegotiatedVersion(AtomicU8);

impl NegotiatedVersion {
    const NEWEST: u8 = 1;
    const OLDER: u8 = 2;

    /// How to connect.
    pub(super) fn lifecycle(&self) -> ClientLifecycleMode {
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        match self.0.load(Ordering::Relaxed) {
            Self::NEWEST => ClientLifecycleMode::Discover { preferred_versions },
            Self::OLDER => ClientLifecycleMode::Initialize,
            _ => ClientLifecycleMode::Auto { preferred_versions, legacy_version: None },
        }
    }

    /// Whether the version is known.
    pub(super) fn is_known(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    fn record(&self, answer: &ServerJsonRpcMessage) {
        let newest = matches!(answer, ServerJsonRpcMessage::Response(_));
        self.0.store(if newest { Self::NEWEST } else { Self::OLDER }, Ordering::Relaxed);
    }
}

/// A transport with limits on what the server sends.
pub(super) struct BoundedTransport<T> {
    inner: T,
    tokens: f64,
    refilled_at: Instant,
    unread_replies: Arc<AtomicUsize>,
    probe: Probe,
    probe_timeout: Duration,
    version: Arc<NegotiatedVersion>,
}

/// The state of the probe: the request that asks whether the server knows the newest protocol.
enum Probe {
    NotAsked,
    Asked {
        id: RequestId,
        until: Instant,
    },
    /// We have answered in the server's place; its own answer is late.
    GivenUp(RequestId),
}

impl<T> BoundedTransport<T> {
    /// `probe` is how long the server may take to answer the probe for the newest protocol; there
    /// is no probe if the version is known.
    pub(super) fn new(inner: T, probe: Duration, version: Arc<NegotiatedVersion>) -> Self {
        Self {
            inner,
            tokens: MAX_BURST_MESSAGES,
            refilled_at: Instant::now(),
            unread_replies: Arc::default(),
            probe: Probe::NotAsked,
            probe_timeout: probe,
            version,
        }
    }

    /// Takes a token for an unsolicited message; false if the rate limit is exceeded.
    fn admit(&mut self) -> bool {
        let now = Instant::now();
        let since = now.duration_since(self.refilled_at).as_secs_f64();
        self.tokens = (self.tokens + since * MESSAGES_PER_SECOND).min(MAX_BURST_MESSAGES);
        self.refilled_at = now;
        let admits = self.tokens >= 1.0;
        if admits {
            self.tokens -= 1.0;
        }
        admits
    }

    /// Gives the probe up: the answer of a server that does not know the newest protocol.
    fn give_up_probe(&mut self, id: RequestId) -> ServerJsonRpcMessage {
        self.probe = Probe::GivenUp(id.clone());
        let unknown = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "no answer", None);
        ServerJsonRpcMessage::error(unknown, Some(id))
    }

    /// Whether the message is passed on.
    fn accept(&mut self, message: &ServerJsonRpcMessage) -> bool {
        match message {
            ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => {
                self.admit()
            }
            ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_) => {
                if matches!(self.probe, Probe::Asked { .. }) {
                    self.probe = Probe::NotAsked;
                }
                true
            }
        }
    }

    /// Whether it is the answer to a probe that was given up.
    fn is_late_probe_answer(&self, message: &ServerJsonRpcMessage) -> bool {
        let id = match message {
            ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => None,
            ServerJsonRpcMessage::Response(response) => Some(&response.id),
            ServerJsonRpcMessage::Error(error) => error.id.as_ref(),
        };
        matches!((&self.probe, id), (Probe::GivenUp(given), Some(id)) if given == id)
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for BoundedTransport<T> {
    type Error = T::Error;

    fn name() -> Cow<'static, str> {
        T::name()
    }

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if let ClientJsonRpcMessage::Request(request) = &item
            && matches!(request.request, ClientRequest::DiscoverRequest(_))
            && !self.version.is_known()
        {
            let until = Instant::now() + self.probe_timeout;
            self.probe = Probe::Asked { id: request.id.clone(), until };
        }
        let answers =
            matches!(item, ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_));
        let unread = answers.then(|| UnreadReply::one(&self.unread_replies));
        let sending = self.inner.send(item);
        async move {
            let sent = sending.await;
            drop(unread);
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let message = match &self.probe {
                Probe::Asked { id, until } => {
                    let (id, until) = (id.clone(), *until);
                    match timeout_at(until, self.inner.receive()).await {
                        Ok(message) => message?,
                        Err(_) => return Some(self.give_up_probe(id)),
                    }
                }
                Probe::NotAsked | Probe::GivenUp(_) => self.inner.receive().await?,
            };
            if self.unread_replies.load(Ordering::Relaxed) > MAX_UNREAD_REPLIES {
                tracing::warn!("MCP connection closed: the server does not read replies");
                return None;
            }
            if self.is_late_probe_answer(&message) {
                // The server is slow, not old, and the fallback handshake is not what it expects:
                // reconnect.
                self.version.record(&message);
                return None;
            }
            if self.accept(&message) {
                return Some(message);
            }
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.inner.close()
    }
}

/// A reply that is being sent; counted until it is sent or dropped.
struct UnreadReply(Arc<AtomicUsize>);

impl UnreadReply {
    fn one(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for UnreadReply {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
